"""Replays stored traces: gives their units to a scorer at a limited rate, counts them, and writes the scores to a journal."""

from __future__ import annotations

import os
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import IO, Any, Final

from opentelemetry._logs import NoOpLoggerProvider
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from spanscore.capture.whole_units import StoredUnits
from spanscore.config.judging import JudgeSettings
from spanscore.config.outputs import Outputs
from spanscore.config.reading import read_settings
from spanscore.config.tree import Configuration, ScorerSettings
from spanscore.core.codecs.otlp import json_line, read_spans, request_line
from spanscore.core.codecs.otlp_request import UnreadableRequest, WireSpan, from_json, request_of
from spanscore.core.files import ProcessLock
from spanscore.core.job import ReplayState
from spanscore.core.score import Score
from spanscore.core.span import SpanData, Unit, UnitKey
from spanscore.errors import ConfigurationError, writing
from spanscore.outputs.providers import Providers
from spanscore.outputs.score_spans import EvaluationSpans
from spanscore.pipeline.decisions import keep_latest
from spanscore.protocols import Metric, Sink
from spanscore.scorer import OnlineScorer
from spanscore.stored.trace_stores import TraceSource
from spanscore.stored.unit_reading import StoredUnit, UnitPlan, UnitReader, plan_of
from spanscore.wiring.from_config import scorer_arguments

MOST_UNDER_WAY: Final = 128
"""Maximum number of units at once: enough for 32 workers and their waiting units."""
MOST_IN_BATCHES: Final = 5_000
"""Maximum number of units at once whose questions wait for batches, with their content in memory."""
_LEAST: Final = 1_000
"""Least size of the queue, and least number of units that the journal keeps; twice the number of units at once, if larger."""
_LINE_START: Final = b'{"resourceSpans":'
"""First bytes of every line of a journal."""


class Journal(SpanExporter):
    """A file of scored units as OTLP-JSON lines, for reports and for resuming a replay.

    Each score is a line; a line with the spans of its unit comes before its first score. ``sink`` writes on the span thread;
    the other methods are called on the thread of the replay.

    Args:
        path: path of the file. Only the file's owner may read it, because it contains prompts and answers.
        waits: whether lines wait for ``commit``. If scores are exported, a score is written only after its delivery.
        under_way: maximum number of units that are scored at once.

    Attributes:
        sink: sink of the scorer, which writes its scores to the file.

    Raises:
        ConfigurationError: the file cannot be written, another replay is writing it, or it has other content.
    """

    def __init__(self, path: Path, *, waits: bool = False, under_way: int = MOST_UNDER_WAY) -> None:
        self.path = path
        self._waits_for_commit = waits
        self._most_units = max(_LEAST, 2 * under_way)
        self._waiting: list[str] = []
        self._spans_of: OrderedDict[UnitKey, Sequence[WireSpan]] = OrderedDict()
        self._lock = ProcessLock(path)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not self._lock.take():
                raise ConfigurationError(
                    f"{path} is being written by another replay: wait for it, or write another file"
                )
            try:
                self._file = _open_journal(path)
            except BaseException:
                self._lock.release()
                raise
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self))
        # without these providers, the environment would choose exporters, which would export the spans
        providers = Providers(provider, NoOpMeterProvider(), NoOpLoggerProvider())
        self.sink = EvaluationSpans(providers, content=True)

    def expect(self, key: UnitKey, spans: Sequence[WireSpan]) -> None:
        """Keep a unit's spans until its first score. If too many units wait for a score, the oldest are dropped."""
        keep_latest(self._spans_of, key, spans, self._most_units)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write evaluation spans."""
        for span in spans:
            parent: Any = span.parent
            unit_spans = self._spans_of.pop(UnitKey(parent.trace_id, parent.span_id), None)
            if unit_spans:
                self._waiting.append(request_line(request_of((wire.origin, wire.raw) for wire in unit_spans)))
            self._waiting.append(json_line([span]))
        if not self._waits_for_commit:
            self.commit()
        return SpanExportResult.SUCCESS

    def commit(self) -> None:
        """Write the waiting lines."""
        lines, self._waiting = self._waiting, []
        if not self._file.closed:
            self._file.writelines(lines)
            self._file.flush()

    def close(self) -> None:
        """Close and unlock the file; waiting lines are lost."""
        self._file.close()
        self._lock.release()

    @staticmethod
    def spans(path: Path) -> Iterator[SpanData]:
        """Yield the spans of a journal; an incomplete last line of a killed process is skipped."""
        with path.open(encoding="utf-8", errors="replace") as lines:
            yield from read_spans(line for line in lines if line.endswith("\n") or _is_whole(line.encode()))


def _open_journal(path: Path) -> IO[str]:
    """Return the file, opened for appending, without an incomplete last line of a killed process."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_RDWR, 0o600), "rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end and file.seek(end - 1) is not None and file.read(1) != b"\n":
            end -= 1
        file.seek(end)
        last = file.read()
        if last and _is_whole(last):
            file.write(b"\n")
        elif _LINE_START.startswith(last[: len(_LINE_START)]):
            file.truncate(end)
        else:
            raise ConfigurationError(f"{path} is not a file of a replay: name such a file, or a new one")
    path.chmod(0o600)  # an existing file may be readable by other users
    return path.open("a", encoding="utf-8")


def _is_whole(line: bytes) -> bool:
    try:
        from_json(line)
    except UnreadableRequest:
        return False
    return True


@dataclass(slots=True)
class ReplayTally:
    """Counts of units and scores so far in a replay or a preview. It is also a sink, which counts scores on the span thread.

    Attributes:
        trace_source: the stored traces that are read, with the counts of the source.
        metadata_keys: keys of metadata that sampling rules read.
        lacking: key of metadata → number of units with a root that lacks it.
        units: number of units that started between ``--since`` and ``--until``.
        with_content: number of these units with content on their spans.
        dialects: name of the dialect that reads a unit → number of units.
        taken: metric → number of sampled units that the metric scores now.
        skipped: metric → number of sampled units that the metric has already scored.
        from_store: number of decisions to score that a score in the store has.
        anew: number of decisions to score that the sampler made now.
        outcomes: metric → outcome → number of scores; units without a sample are not counted.
        scored: number of scores with a value.
        calls: number of requests to judges that no cache answered.
        tokens: number of tokens of these requests and their answers.
        usd: price of the questions in US dollars; None while no price is known.
    """

    trace_source: TraceSource
    metadata_keys: Set[str] = frozenset()
    lacking: Counter[str] = field(default_factory=Counter)
    units: int = 0
    with_content: int = 0
    dialects: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    from_store: int = 0
    anew: int = 0
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    scored: int = 0
    calls: int = 0
    tokens: int = 0
    usd: float | None = None

    def read(self, stored: StoredUnit, plan: UnitPlan) -> None:
        """Count a unit with its plan."""
        self.units += 1
        self.with_content += stored.has_content
        root = stored.unit.root
        self.lacking.update(self.metadata_keys - (set() if root is None else root.metadata.keys()))
        self.dialects[stored.dialect or "no dialect"] += 1
        self.taken.update(plan.taken)
        self.skipped.update(plan.skipped)
        self.from_store += len(plan.from_store)
        self.anew += len(plan.taken) + len(plan.skipped) - len(plan.from_store)

    def state(self) -> ReplayState:
        """Return the progress of the replay."""
        return ReplayState(self.trace_source.traces_read, self.units, self.skipped.total(), self.scored, self.usd)

    # --- Sink --------------------------------------------------------------------------------------------------

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Count scores."""
        for score in scores:
            self.outcomes.setdefault(score.metric, Counter())[score.outcome.value] += 1
            self.scored += score.value is not None
            self.calls += len(score.usage.calls) - score.usage.cached_calls
            self.tokens += score.usage.input_tokens + score.usage.output_tokens
            if score.usage.cost_usd is not None:
                self.usd = (self.usd or 0.0) + score.usage.cost_usd

    def shutdown(self) -> None:
        """Do nothing, because the counts are up to date."""

    def as_json(self) -> dict[str, Any]:
        """Return the counts as JSON types."""
        return {
            "traces": self.trace_source.traces_read,
            "units": self.units,
            "with_content": self.with_content,
            "outside": self.trace_source.outside,
            "dialects": dict(self.dialects),
            "taken": dict(self.taken),
            "skipped": dict(self.skipped),
            "decisions": {"recorded": self.from_store, "new": self.anew},
            "lacking_metadata": dict(self.lacking),
            "unread": self.trace_source.unread_total,
            "unread_first": [part._asdict() for part in self.trace_source.unread],
            "outcomes": {metric: dict(counts) for metric, counts in self.outcomes.items()},
            "judge_calls": self.calls,
            "tokens": self.tokens,
            "usd": self.usd,
        }


_QUEUE_BYTES: Final = 100_000_000_000
"""Practically no limit, because the number of units at once limits their content."""


@dataclass(frozen=True, slots=True)
class ReplayScorer:
    """The scorer of a replay.

    Attributes:
        scorer: a scorer without the parts for live traffic.
        settings: the applied settings.
        notes: parts of the configuration that are not applied, a sentence each.
    """

    scorer: OnlineScorer
    settings: ScorerSettings
    notes: Sequence[str]


def replay_scorer(
    config: Path,
    *,
    emits: bool = False,
    answers: Path | None = None,
    sinks: Sequence[Sink] = (),
    metrics: Sequence[Metric] | None = None,
    under_way: int = MOST_UNDER_WAY,
) -> ReplayScorer:
    """Return a scorer with the metrics, rates and rules of a configuration, without the parts for live traffic.

    Args:
        config: configuration of the live scorer.
        emits: whether evaluation spans are exported, and scores are passed to the sinks of the configuration, except webhooks.
        answers: file for the judge's answers, unless the configuration names one; None = no file.
        sinks: sinks besides those of the configuration.
        metrics: metrics of the configuration that score units; None = they are made from the configuration.
        under_way: maximum number of units that are scored at once.

    Raises:
        ConfigurationError: the configuration is wrong, or it scores only conversations.
    """
    read = read_settings(config)
    settings = read.settings
    if answers is not None and settings.judge.cache in (None, "", "memory"):
        judge = settings.judge.model_copy(update={"cache": str(answers)})
        settings = settings.model_copy(update={"judge": judge})
    with read.as_written.mask_errors():
        arguments = _arguments(config, settings, metrics)
        session_metrics = arguments["sessions"].metrics
        names = ", ".join(metric.name for metric in session_metrics)
        notes = [f"conversations are not replayed; not used: {names}"] * bool(session_metrics)
        notes += ["second judges are not called"] * bool(arguments["judge"].shadows)
        arguments |= _without_live_parts(arguments, sinks, emits=emits, under_way=under_way)
        scorer = OnlineScorer(**arguments)
    return ReplayScorer(scorer, ScorerSettings.of(arguments), notes)


def refuse_unready(config: Path) -> None:
    """Make the metrics of a configuration once, to find errors before a run. No file is written.

    Raises:
        ConfigurationError: a metric cannot be made; the message names the key, the library or the setting.
    """
    read = read_settings(config)
    judge = read.settings.judge.model_copy(update={"cache": None})
    settings = read.settings.model_copy(update={"judge": judge})
    with read.as_written.mask_errors():
        _arguments(config, settings)


def _arguments(config: Path, settings: Configuration, metrics: Sequence[Metric] | None = None) -> dict[str, Any]:
    """Return a configuration as arguments of ``OnlineScorer``, without the sections for scoring in other processes."""
    arguments = scorer_arguments(settings.model_copy(update={"spool": None, "remote_scoring": None}), metrics)
    if not arguments["metrics"]:
        raise ConfigurationError(f"{config} scores only whole conversations, which are not replayed")
    return arguments


def _without_live_parts(
    arguments: Mapping[str, Any], sinks: Sequence[Sink], *, emits: bool, under_way: int
) -> dict[str, Any]:
    """Return the arguments of ``OnlineScorer`` that a replay replaces.

    - The queue has places for all units in progress, so that no unit is lost.
    - A budget does not lower rates: the configured rates apply, and units above a window's budget end as ``budget_exhausted``.
    - Unless spans are emitted, the providers export nothing, whatever exporters the environment names.
    """
    outputs, judge, limits = arguments["outputs"], arguments["judge"], arguments["limits"]
    silent_providers: dict[str, Any] = {
        "tracer_provider": TracerProvider(),
        "meter_provider": NoOpMeterProvider(),
        "logger_provider": NoOpLoggerProvider(),
    }
    size = max(_LEAST, 2 * under_way)  # one judge account may fill at most three quarters of the queue
    size *= arguments["units"].max_spans if arguments["units"].also else 1  # a unit may bring as many inner units
    queue = {"queue_size": size, "queue_bytes": _QUEUE_BYTES, "job_queue": "memory"}
    budgets = [budget.model_copy(update={"lowers_rates": False}) for budget in judge.budget]
    return {
        "judge": JudgeSettings(budget=budgets, replica_share=judge.replica_share, trace=judge.trace and emits),
        "sampling": arguments["sampling"].model_copy(update={"feedback": None}),
        "capture": arguments["capture"].model_copy(update={"enabled": False, "metrics": False}),
        "outputs": Outputs(
            span=False,
            evaluation_span=emits,
            event=False,
            instruments=False,
            hold=outputs.hold,
            sinks=[*(_without_webhooks(outputs.sinks) if emits else ()), *sinks],
            spans_to=outputs.spans_to,
        ),
        "limits": limits.model_copy(update=queue),
        "sessions": arguments["sessions"].model_copy(update={"metrics": ()}),
        "judge_check": None,
        "collect": None,
        **({} if emits else silent_providers),
    }


def _without_webhooks(sinks: Sequence[Any]) -> Iterator[Any]:
    """Yield the sinks other than ``webhook``, whose messages are about live units only."""
    for sink in sinks:
        if not isinstance(sink, dict):
            yield sink
        elif others := {name: parameters for name, parameters in sink.items() if name != "webhook"}:
            yield others


_SHORTEST_PAUSE_S: Final = 0.01
"""Shortest pause between two checks of the number of units in progress."""
_LONGEST_PAUSE_S: Final = 1.0
"""Longest pause between two checks; a batch may be open for a day."""
_PAUSE_SHARE: Final = 0.25
"""Length of a pause as a share of the time since a unit last ended."""


@dataclass(slots=True, kw_only=True)
class Replay:
    """One run over a source, on the thread of its caller.

    Attributes:
        tally: counts of the run, with its source.
        reader: makes the units of a trace.
        receiver: receiver of the scorer for stored units; the scorer's sampler decides on them.
        per_second: highest rate at which units are handed over; infinite = as fast as they are scored.
        limit: maximum number of units that at least one metric scores; None = all.
        again: whether units with a score are scored again.
        journal: file of the scored units; None = no file.
        most_under_way: maximum number of units that are scored at once. A unit is handed over when at most this number is in
            progress, so the maximum is exceeded by at least one.
        on_progress: called after each trace, and while the run waits.
        clock: monotonic clock, in seconds.
        sleep: waits, in seconds.
    """

    tally: ReplayTally
    reader: UnitReader
    receiver: StoredUnits
    per_second: float = inf
    limit: int | None = None
    again: bool = False
    journal: Journal | None = None
    most_under_way: int = MOST_UNDER_WAY
    on_progress: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _next_s: float = field(default=-inf, init=False)

    def __post_init__(self) -> None:
        self.receiver.replayed = self.tally.state

    def run(self, *, dry: bool = False) -> None:
        """Read the source and score its units, or only count them (``dry``); return after the last score.

        Ctrl-C ends it, and scores so far are kept.
        """
        chosen = 0
        for stored in self.tally.trace_source.units(self.reader, self.on_progress):
            plan = plan_of(stored, self.receiver.metrics, self.receiver.decisions, again=self.again)
            if plan.taken and chosen == self.limit:
                break
            chosen += bool(plan.taken)
            self.tally.read(stored, plan)
            if not dry:
                self._hand_over(stored, plan)
        if not dry:
            self._wait()

    def _wait(self, most: int = 0) -> None:
        """Wait until at most ``most`` units are in progress. The pauses between checks grow while no unit ends."""
        before, since_s = -1, 0.0
        while (under_way := self.receiver.under_way) > most:
            now_s = self.clock()
            if under_way != before:
                before, since_s = under_way, now_s
            self.on_progress()
            self.sleep(min(max(_SHORTEST_PAUSE_S, _PAUSE_SHARE * (now_s - since_s)), _LONGEST_PAUSE_S))

    def _hand_over(self, stored: StoredUnit, plan: UnitPlan) -> None:
        """Give a unit to the scorer, when few enough units are in progress and the rate allows it."""
        self._wait(self.most_under_way)
        if plan.taken:
            now_s = self.clock()
            if now_s < self._next_s:
                self.on_progress()
                self.sleep(self._next_s - now_s)
            self._next_s = max(now_s, self._next_s) + 1 / self.per_second
            if self.journal is not None:
                self.journal.expect(stored.unit.key, stored.spans)
        for unit in plan.units:
            self.receiver.put(unit)
