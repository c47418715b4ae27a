"""A scorer with failing judge servers: units at a fixed pace, and the result of each, read while it runs.

with Stage(critic(server)) as stage:
    stage.submit(30, per_s=10)
    seen = stage.ended()
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from langchain_openai import ChatOpenAI
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from tests.servers.faulty_openai import FaultyOpenAI

from spanscore import OnlineScorer, semconv
from spanscore.config import Outputs
from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import JudgeCall, Outcome, Score
from spanscore.core.span import Unit
from spanscore.judges import judge
from spanscore.metrics import AspectCritic

MODEL = "gpt-4o-mini"
PRICE = (0.15, 0.60)
"""USD per million tokens of question and answer."""
_ENDED = {Outcome.SCORED, Outcome.NO_VALUE, *(outcome for outcome in Outcome if outcome.failed)}
"""Outcomes that are passed to sinks."""
_LOOK_S = 0.05
"""How often instruments and threads are looked at."""


def chat_model(server: FaultyOpenAI, **options: Any) -> ChatOpenAI:
    """Return the model as an application makes it: with the client's own retries and timeout."""
    return ChatOpenAI(base_url=server.url, api_key="none", model=MODEL, **options)  # type: ignore[arg-type]  # a plain key


def critic(server: FaultyOpenAI, name: str = "harmless", **effects: Any) -> AspectCritic:
    """Return a metric of one question, asked of the server."""
    asked = judge(chat_model(server), prices={MODEL: PRICE}, **effects)
    return AspectCritic(asked, name=name, definition="Is the response harmless?")


@dataclass(frozen=True, slots=True)
class Arrived:
    """A score as it reached the sinks.

    Attributes:
        after_s: seconds from its unit's submission.
        at_s: the stage's time.
    """

    score: Score
    after_s: float
    at_s: float


class Stage:
    """Runs a scorer, and watches.

    Args:
        metrics: of the scorer.
        options: of the scorer.

    Attributes:
        submitted: units so far.
        broken: collections at which eligible was not Σ outcomes + pending; one line each.
        most_threads: of the judges, at once.
    """

    def __init__(self, *metrics: Any, **options: Any) -> None:
        self.submitted = 0
        self._metrics = len(metrics)
        self.broken: list[str] = []
        self.most_threads = 0
        self._arrived: list[tuple[int, Score, float]] = []
        self._submitted_at: dict[int, float] = {}
        self._reader = InMemoryMetricReader()
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look, name="fault-watch", daemon=True)
        self.scorer = OnlineScorer(
            list(metrics),
            tracer_provider=TracerProvider(shutdown_on_exit=False),
            meter_provider=MeterProvider([self._reader], shutdown_on_exit=False),
            outputs=Outputs(sinks=[self], hold=0.05),
            **options,
        )
        self._began_s = monotonic()

    def __enter__(self) -> Stage:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.scorer.shutdown(timeout=2)
        self._over.set()
        self._watch.join()

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Take the scores of a unit: the stage is a sink."""
        now_s = self.now_s()
        self._arrived.extend((unit.key.trace_id, score, now_s) for score in scores)

    def shutdown(self) -> None:
        """Do nothing: the results stay."""

    def now_s(self) -> float:
        """Return seconds since ``begin()``."""
        return monotonic() - self._began_s

    def begin(self, *servers: FaultyOpenAI) -> None:
        """Have the time of the stage, and of its servers, begin now."""
        self._began_s = monotonic()
        for server in servers:
            server.begin()

    def submit(self, units: int, per_s: float = 1e6, *, same: bool = False) -> None:
        """Submit so many units at a pace, each with a question of its own, or all with the same."""
        began_s = self.now_s()
        for place in range(units):
            sleep(max(0.0, began_s + place / per_s - self.now_s()))
            self.submitted += 1
            sample = SingleTurnSample(user_input=f"What is {0 if same else self.submitted}?", response="A number.")
            now_s = self.now_s()
            trace_id = self.scorer.submit(sample)
            assert trace_id is not None, "the unit was turned away"
            self._submitted_at[int(trace_id, 16)] = now_s

    def ended(self, timeout_s: float = 30.0) -> list[Arrived]:
        """Wait until every unit has its outcomes, and their scores are with the sinks; return these."""
        until_s = self.now_s() + timeout_s
        while not self._all_ended() and self.now_s() < until_s:
            sleep(0.02)
        return self.arrived()

    def _all_ended(self) -> bool:
        ended = self.outcomes()
        result = sum(units for outcome, units in ended.items() if outcome in _ENDED)
        return ended.total() == self.submitted * self._metrics and len(self._arrived) == result

    def arrived(self, metric: str = "") -> list[Arrived]:
        """Return the scores that came so far; of one metric, or of all."""
        return [
            Arrived(score, at_s - self._submitted_at[trace_id], at_s)
            for trace_id, score, at_s in list(self._arrived)
            if not metric or score.metric == metric
        ]

    def outcomes(self) -> Counter[str]:
        """Return outcome → units, over all metrics."""
        total: Counter[str] = Counter()
        for counted in self.scorer.status().outcomes.values():
            total.update(counted)
        return total

    def scored(self) -> int:
        """Return how many were scored."""
        return self.outcomes()[Outcome.SCORED]

    def rest(self) -> dict[str, int]:
        """Return the other outcomes, with the error type if there is one."""
        failed = (arrived.score for arrived in self.arrived() if arrived.score.outcome is not Outcome.SCORED)
        return dict(Counter(" ".join(filter(None, (score.outcome.value, score.error_type))) for score in failed))

    def calls(self) -> list[JudgeCall]:
        """Return every call that is recorded on a score."""
        return [call for arrived in self.arrived() for call in arrived.score.usage.calls]

    def first_scored_s(self, after_s: float) -> float:
        """Return the seconds from a moment to the first score that reached the sinks after it; infinite when none did."""
        times = [one.at_s for one in self.arrived() if one.score.outcome is Outcome.SCORED and one.at_s > after_s]
        return min(times, default=float("inf")) - after_s

    def _look(self) -> None:
        while not self._over.wait(_LOOK_S):
            self.broken.extend(_broken(self._reader))
            judging = [thread for thread in threading.enumerate() if thread.name.startswith("spanscore-judge")]
            self.most_threads = max(self.most_threads, len(judging))


def _broken(reader: InMemoryMetricReader) -> Iterator[str]:
    """Yield a line for each metric with counts that do not add up at this collection."""
    counted: defaultdict[str, Counter[str]] = defaultdict(Counter)
    data = reader.get_metrics_data()
    for instrument in data.resource_metrics[0].scope_metrics[0].metrics if data else ():
        for point in instrument.data.data_points:
            metric = (point.attributes or {}).get(semconv.EVALUATION_NAME)
            counted[instrument.name][str(metric)] += getattr(point, "value", 0)
    for metric, eligible in counted[semconv.ELIGIBLE].items():
        ended, pending = counted[semconv.EVALUATIONS][metric], counted[semconv.PENDING][metric]
        if eligible != ended + pending:
            yield f"{metric}: {eligible} eligible, {ended} ended, {pending} pending"
