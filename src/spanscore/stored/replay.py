"""Replay: a store, read once → its units, at a pace, to a scorer; with journal and tally."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import IO, Any, Final, Self

from opentelemetry._logs import NoOpLoggerProvider
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from spanscore.capture.stored import StoredUnits
from spanscore.config.judging import Budget, JudgeSettings
from spanscore.config.outputs import Outputs
from spanscore.config.reading import read_settings
from spanscore.config.tree import Configuration, ScorerSettings
from spanscore.core.codecs.otlp import json_line, read_spans, request_line
from spanscore.core.codecs.otlp_request import UnreadableRequest, WireSpan, from_json, request_of
from spanscore.core.files import ProcessLock
from spanscore.core.job import ReplayState
from spanscore.core.score import Outcome, Score
from spanscore.core.span import SpanData, Unit, UnitKey
from spanscore.errors import ConfigurationError, writing
from spanscore.outputs.providers import Providers
from spanscore.outputs.score_spans import EvaluationSpans
from spanscore.protocols import Metric, Sink
from spanscore.scorer import OnlineScorer
from spanscore.stored.traces import TraceStore, Unread
from spanscore.stored.unit_reading import StoredUnit, UnitPlan, UnitReader, plan_of
from spanscore.wiring.from_config import scorer_arguments

__all__ = [
    "Journal",
    "Replay",
    "ReplayBounds",
    "ReplayScorer",
    "ReplayTally",
    "refuse_unready",
    "replay_scorer",
    "units_between",
]

# --- journal --------------------------------------------------------------------------------------------------------

# Journal: units that were scored, with their scores, as OTLP-JSON lines: what a report shows and a resumed replay knows.
#
# A line is written when a score is there, and before it the unit's own spans, once.

_EXPECTED: Final = 1_000
"""Units whose spans are kept: some times as many as are scored at once."""
_BEGINNING: Final = b'{"resourceSpans":'
"""Of every line."""


class Journal(SpanExporter):
    """A file that is appended to. Its ``sink`` writes scores, on the span thread; the rest is for who replays.

    Args:
        path: of the file; made for its owner alone, as it holds prompts and answers.
        waits: whether lines wait for ``commit``: what is emitted counts when it has arrived.

    Attributes:
        path: as it was given.
        sink: to be given to the scorer.

    Raises:
        ConfigurationError: it cannot be written, another replay writes it, or it holds something else.
    """

    def __init__(self, path: Path, *, waits: bool = False) -> None:
        self.path = path
        self._waits = waits
        self._waiting: list[str] = []
        self._expected: dict[UnitKey, Sequence[WireSpan]] = {}
        self._lock = ProcessLock(path)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not self._lock.take():
                raise ConfigurationError(
                    f"{path} is being written by another replay: wait for it, or write another file"
                )
            self._file = _opened(path)
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self))
        providers = Providers(
            provider, NoOpMeterProvider(), NoOpLoggerProvider()
        )  # else by the environment, and they leave
        self.sink = EvaluationSpans(providers, content=True)

    def expect(self, key: UnitKey, spans: Sequence[WireSpan]) -> None:
        """Keep a unit's spans until its first score is there; of too many, of which no score ever came, the oldest go."""
        self._expected[key] = spans
        if len(self._expected) > _EXPECTED:
            self._expected.pop(next(iter(self._expected)), None)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write evaluation spans."""
        for span in spans:
            parent: Any = span.parent
            own = self._expected.pop(UnitKey(parent.trace_id, parent.span_id), None)
            if own:
                self._waiting.append(request_line(request_of((one.origin, one.raw) for one in own)))
            self._waiting.append(json_line([span]))
        if not self._waits:
            self.commit()
        return SpanExportResult.SUCCESS

    def commit(self) -> None:
        """Write what waits."""
        lines, self._waiting = self._waiting, []
        if not self._file.closed:
            self._file.writelines(lines)
            self._file.flush()

    def close(self) -> None:
        """Write no more."""
        self._file.close()
        self._lock.let_go()

    @staticmethod
    def spans(path: Path) -> Iterator[SpanData]:
        """Yield the spans of such a file; a last line that is not whole, as of a process that was killed, is passed over."""
        with path.open(encoding="utf-8", errors="replace") as lines:
            yield from read_spans(line for line in lines if line.endswith("\n") or _is_whole(line.encode()))


def _opened(path: Path) -> IO[str]:
    """Return the file to append to, without a last line that is not whole: the process that wrote it was killed."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_RDWR, 0o600), "rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end and file.seek(end - 1) is not None and file.read(1) != b"\n":
            end -= 1
        file.seek(end)
        last = file.read()
        if last and _is_whole(last):
            file.write(b"\n")
        elif _BEGINNING.startswith(last[: len(_BEGINNING)]):
            file.truncate(end)
        else:
            raise ConfigurationError(f"{path} is no file of a replay: name that of one, or a new one")
    path.chmod(0o600)  # it may have been there, and others' to read
    return path.open("a", encoding="utf-8")


def _is_whole(line: bytes) -> bool:
    try:
        from_json(line)
    except UnreadableRequest:
        return False
    return True


# --- tally ----------------------------------------------------------------------------------------------------------

# ReplayTally: what a replay has read and scored so far; it is the sink that counts scores, too.

_NAMED = 20
"""Of what could not be read, that is named one by one."""


class ReplayTally:
    """Counts. What is read is counted on one thread, scores on the span thread; any may look.

    Args:
        looked_at: keys of metadata at which rules look.

    Attributes:
        lacking: of these keys, units whose root does not have it.
        traces: that were read.
        units: in them, within the time that was asked for; ``with_content``: of these, those whose spans hold some.
        outside: units before or after it.
        dialects: what reads a unit's root → units.
        taken: metric → units that it takes and has not scored.
        skipped: metric → units that it has scored already.
        told: decisions that a score in the store tells; ``anew`` = the others of those that take a unit.
        unread: what could not be read, the first of it; ``unread_total`` = how much that is.
        outcomes: metric → outcome → scores; what was no sample is not among them.
        failed: of them.
        tokens: of the judges.
        usd: likewise; None while no price is known.
    """

    def __init__(self, looked_at: Iterable[str] = ()) -> None:
        self._looked_at = frozenset(looked_at)
        self.lacking: Counter[str] = Counter()
        self.traces = self.units = self.with_content = self.outside = self.told = self.anew = self.unread_total = 0
        self.dialects: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.unread: list[Unread] = []
        self.outcomes: dict[str, Counter[str]] = {}
        self.scored = self.calls = self.tokens = 0
        self.usd: float | None = None

    def could_not_read(self, unread: Unread) -> None:
        """Name something, if it is among the first."""
        self.unread_total += 1
        if len(self.unread) < _NAMED:
            self.unread.append(unread)

    def read(self, stored: StoredUnit, plan: UnitPlan) -> None:
        """Count a unit and what becomes of it."""
        self.units += 1
        self.with_content += stored.has_content
        root = stored.unit.root
        self.lacking.update(self._looked_at.difference(() if root is None else root.metadata))
        self.dialects[stored.dialect or "no dialect"] += 1
        self.taken.update(plan.taken)
        self.skipped.update(plan.skipped)
        self.told += len(plan.told)
        self.anew += len(plan.taken | plan.skipped) - len(plan.told)

    def state(self) -> ReplayState:
        """Return how far it is."""
        return ReplayState(self.traces, self.units, sum([*self.skipped.values()]), self.scored, self.usd)

    def of(self, outcome: Outcome) -> int:
        """Return how many scores of all metrics ended so."""
        return sum(found[outcome.value] for found in self.outcomes.values())

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
        """Do nothing: it holds nothing back."""

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "traces": self.traces,
            "units": self.units,
            "with_content": self.with_content,
            "outside": self.outside,
            "dialects": dict(self.dialects),
            "taken": dict(self.taken),
            "skipped": dict(self.skipped),
            "decisions": {"told": self.told, "anew": self.anew},
            "lacking_metadata": dict(self.lacking),
            "unread": self.unread_total,
            "unread_first": [one._asdict() for one in self.unread],
            "outcomes": {metric: dict(found) for metric, found in self.outcomes.items()},
            "judge_calls": self.calls,
            "tokens": self.tokens,
            "usd": self.usd,
        }


# --- scorer ---------------------------------------------------------------------------------------------------------

# A configuration → the scorer of a replay: its metrics, rates and rules, and nothing of what belongs to live traffic.

_QUEUE_BYTES: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ReplayScorer:
    """What a replay scores with.

    Attributes:
        settings: what is in force.
        notes: what of the configuration is not in force, a sentence each.
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
) -> ReplayScorer:
    """Make it.

    Args:
        config: of the live scorer.
        emits: whether evaluation spans leave, by its providers, and its own sinks are told; else nothing does.
        answers: file where the judge's answers are kept, unless the configuration names one; None = none.
        sinks: told of scores, beside.
        metrics: those of the configuration that score units, made otherwise; None = they are made as it says.

    Raises:
        ConfigurationError: the configuration is wrong, or scores conversations alone.
    """
    read = read_settings(config)
    settings = read.settings
    if answers is not None and settings.judge.cache in (None, "", "memory"):
        judge = settings.judge.model_copy(update={"cache": str(answers)})
        settings = settings.model_copy(update={"judge": judge})
    with read.as_written.told():
        arguments = _arguments(config, settings, metrics)
        notes = [*_notes(arguments)]
        arguments |= _without_live_parts(arguments, sinks, emits=emits)
        scorer = OnlineScorer(**arguments)
    return ReplayScorer(scorer, ScorerSettings.of(arguments), notes)


def refuse_unready(config: Path) -> None:
    """Make sure that the metrics of a configuration can be made here; no file is written for it.

    Raises:
        ConfigurationError: they cannot; the message names the key, the library or the setting.
    """
    read = read_settings(config)
    judge = read.settings.judge.model_copy(update={"cache": None})
    settings = read.settings.model_copy(update={"judge": judge})
    with read.as_written.told():
        _arguments(config, settings)


def _arguments(config: Path, settings: Configuration, metrics: Sequence[Metric] | None = None) -> dict[str, Any]:
    """Return a configuration as arguments of ``OnlineScorer``, without the sections by which other processes would score."""
    arguments = scorer_arguments(settings.model_copy(update={"spool": None, "remote_scoring": None}), metrics)
    if not arguments["metrics"]:
        raise ConfigurationError(f"{config} scores whole conversations alone, and these are not replayed")
    return arguments


def _without_live_parts(arguments: Mapping[str, Any], sinks: Sequence[Sink], *, emits: bool) -> dict[str, Any]:
    """Return the arguments of ``OnlineScorer`` that a replay has otherwise: nothing of what belongs to live traffic.

    The queue has room for all units that are under way, which are few: none is to be lost for it.
    """
    outputs, judge, limits = arguments["outputs"], arguments["judge"], arguments["limits"]
    silent: dict[str, Any] = {} if emits else _silent()
    own = {"queue_size": 1_000, "queue_bytes": _QUEUE_BYTES, "job_queue": "memory"}
    return {
        "judge": JudgeSettings(
            budget=_budgets(judge.budget), replica_share=judge.replica_share, trace=judge.trace and emits
        ),
        "sampling": arguments["sampling"].model_copy(update={"feedback": None}),
        "capture": arguments["capture"].model_copy(update={"enabled": False, "metrics": False}),
        "outputs": Outputs(
            span=False,
            evaluation_span=emits,
            event=False,
            instruments=False,
            hold=outputs.hold,
            sinks=[*(outputs.sinks if emits else ()), *sinks],
            spans_to=outputs.spans_to,
        ),
        "limits": limits.model_copy(update=own),
        "sessions": arguments["sessions"].model_copy(update={"metrics": ()}),
        "judge_check": None,
        "collect": None,
        **silent,
    }


def _budgets(given: Sequence[Budget]) -> Sequence[Budget]:
    """Return budgets that lower no rate: the configuration's rates decide, and the rest of a window ends
    ``budget_exhausted``.
    """
    return [budget.model_copy(update={"lowers_rates": False}) for budget in given]


def _silent() -> dict[str, Any]:
    """Return providers by which nothing leaves the process, whatever the environment says of exporters."""
    return {
        "tracer_provider": TracerProvider(),
        "meter_provider": NoOpMeterProvider(),
        "logger_provider": NoOpLoggerProvider(),
    }


def _notes(arguments: Mapping[str, Any]) -> Iterator[str]:
    if of_sessions := arguments["sessions"].metrics:
        yield f"conversations are not replayed: {', '.join(metric.name for metric in of_sessions)} scores none"
    if arguments["judge"].shadows:
        yield "second judges are not asked"


# --- run ------------------------------------------------------------------------------------------------------------

# Replay: a store, read once → its units, at a pace, to a scorer; until its end, a limit, or Ctrl-C.

_MOST_UNDER_WAY: Final = 128
"""Units at once: enough for 32 workers and what waits for them, far from what the queue refuses."""
_LOOK_S: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayBounds:
    """What of a store is scored, and how fast.

    Attributes:
        since_ns: units that began before are left alone.
        until_ns: units that began then or later are.
        per_second: units that are handed over; infinite = as fast as they are scored.
        limit: units that some metric scores, at most; None = all.
        again: whether those that have been scored are, too.
    """

    since_ns: float = 0
    until_ns: float = inf
    per_second: float = inf
    limit: int | None = None
    again: bool = False

    @classmethod
    def of(cls, since_s: float | None, until_s: float | None, *, limit: int | None = None) -> Self:
        """Return those of units that began between two times, seconds since the epoch; None = no bound."""
        return cls(since_ns=(since_s or 0) * 1e9, until_ns=inf if until_s is None else until_s * 1e9, limit=limit)

    def hold(self, unit: Unit) -> bool:
        """Whether a unit began between both times."""
        return self.since_ns <= (unit.root or unit.spans[0]).start_ns < self.until_ns


def units_between(
    store: TraceStore, reader: UnitReader, bounds: ReplayBounds, tally: ReplayTally, told: Callable[[], None]
) -> Iterator[StoredUnit]:
    """Read a store once, and yield its units that began in time; all else is counted.

    Args:
        tally: takes in what was read, but for the units that are yielded.
        told: called after each trace.
    """
    for trace in store.traces():
        if isinstance(trace, Unread):
            tally.could_not_read(trace)
            continue
        tally.traces += 1
        for stored in reader.units(trace):
            if bounds.hold(stored.unit):
                yield stored
            else:
                tally.outside += 1
        told()


class Replay:
    """One run over a store. The thread of its caller.

    Args:
        store: what is read.
        reader: makes units of its traces.
        door: the scorer's; its sampler decides.
        bounds: what is scored.
        journal: keeps what is scored; None = nothing does.
        told: called after each trace, and while it waits.
        clock: steady, in seconds; likewise ``sleep``.

    Attributes:
        tally: what came of it so far.
    """

    def __init__(
        self,
        store: TraceStore,
        reader: UnitReader,
        door: StoredUnits,
        bounds: ReplayBounds,
        *,
        tally: ReplayTally,
        journal: Journal | None = None,
        told: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._reader = reader
        self._door = door
        self._bounds = bounds
        self._journal = journal
        self._told = told
        self._clock = clock
        self._sleep = sleep
        self._next_s = -inf
        self._chosen = 0
        self.tally = tally
        door.replayed = tally.state

    def look(self) -> None:
        """Read the store and count, and score nothing."""
        self._read(lambda stored, plan: None)

    def score(self) -> None:
        """Read the store and have its units scored; return when the last of them is. Ctrl-C ends it: what is there stays."""
        self._read(self._hand_over)
        self.wait()

    def wait(self, most: int = 0) -> None:
        """Wait until no more units than that are under way."""
        while self._door.under_way > most:
            self._told()
            self._sleep(_LOOK_S)

    def _read(self, take: Callable[[StoredUnit, UnitPlan], None]) -> None:
        for stored in units_between(self._store, self._reader, self._bounds, self.tally, self._told):
            plan = plan_of(stored, self._door.metrics, self._door.decisions, again=self._bounds.again)
            if plan.taken and self._chosen == self._bounds.limit:
                return
            self._chosen += bool(plan.taken)
            self.tally.read(stored, plan)
            take(stored, plan)

    def _hand_over(self, stored: StoredUnit, plan: UnitPlan) -> None:
        self.wait(_MOST_UNDER_WAY)
        if plan.taken:
            self._keep_pace()
            if self._journal is not None:
                self._journal.expect(stored.unit.key, stored.spans)
        for unit in plan.units:
            self._door.put(unit)

    def _keep_pace(self) -> None:
        now_s = self._clock()
        if now_s < self._next_s:
            self._told()
            self._sleep(self._next_s - now_s)
        self._next_s = max(now_s, self._next_s) + 1 / self._bounds.per_second
