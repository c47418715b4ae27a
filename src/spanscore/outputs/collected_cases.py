"""Collects units that meet a condition as cases of a data set, and appends them to a file.

A process appends each question once per file, as far as the question is among the latest 10,000.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, Final, NamedTuple, Self

from spanscore.config.collect import Collect
from spanscore.core import loop
from spanscore.core.files import Appended, FileIdentity, LineFile
from spanscore.core.job import Job
from spanscore.core.log import log_internal_error, log_once
from spanscore.core.printable import format_count
from spanscore.core.sample import MultiTurnSample, Sample, Samples
from spanscore.core.score import Score, ScoreValue
from spanscore.core.span import Session, UnitKey
from spanscore.core.threads import SerialThread


class FoundScore(NamedTuple):
    """One score of a case, as it is stored in a file or a trace store.

    Attributes:
        value: value on the metric's own scale, or the word of a categorical scale; None = no value.
        label: ``pass`` or ``fail``; None = no label.
        evaluator_version: metric version, judge model and votes.
        probability: sampling probability of the unit, (0, 1]; None = unknown.
        explanation: the judge's words; may quote the sample. None = unknown.
        disagreement: highest quality among the jurors minus the lowest, [0, 1]; None = no jury.
    """

    value: ScoreValue | None
    label: str | None
    evaluator_version: str | None
    probability: float | None
    explanation: str | None = None
    disagreement: float | None = None

    @classmethod
    def of(cls, score: Score) -> Self:
        """Return the data of a new score."""
        value = score.category or score.number
        probability = None if score.probability is None else float(score.probability)
        disagreement = None if score.jury is None else score.jury.disagreement
        return cls(value, score.label, score.evaluator_version or None, probability, score.explanation, disagreement)

    def as_json(self) -> dict[str, Any]:
        """Return the values other than None, as JSON types."""
        return {name: value for name, value in self._asdict().items() if value is not None}


@dataclass(slots=True)
class CollectedCase:
    """One case of a data set.

    Attributes:
        key: key of the unit; for a conversation, the key of its last turn.
        sample: the redacted sample.
        scores: metric → its latest score.
        times: number of units with the case's question.
        session: the conversation, if the case is a whole conversation; None for a unit.
    """

    key: UnitKey
    sample: Sample
    scores: Mapping[str, FoundScore]
    times: int = 1
    session: Session | None = None

    @property
    def probability(self) -> float | None:
        """Highest sampling probability of the unit for any of its metrics, (0, 1]; None = unknown."""
        probabilities = (score.probability for score in self.scores.values() if score.probability is not None)
        return max(probabilities, default=None)

    def multiply_probabilities(self, chance: float) -> CollectedCase:
        """Return the case with its known probabilities multiplied by ``chance``, (0, 1]: that of being drawn from the cases."""
        scores = {
            name: score if score.probability is None else score._replace(probability=score.probability * chance)
            for name, score in self.scores.items()
        }
        return replace(self, scores=scores)

    @property
    def id(self) -> str:
        """Trace id and span id of the unit; for a conversation the hash of its id, which differs from each unit's id."""
        trace_id, span_id = self.key if self.session is None else self.session.key
        return f"{trace_id:032x}-{span_id:016x}"

    @property
    def question(self) -> str:
        """The user's question with normalized case and spaces; for a conversation, the text of the whole conversation.

        Samples with equal questions become one case.
        """
        text = self.sample.pretty() if isinstance(self.sample, MultiTurnSample) else self.sample.user_input or ""
        return " ".join(text.split()).casefold()

    def record(self) -> dict[str, Any]:
        """Return the case as a record of a data set, which ``spanscore evaluate`` and ragas can read."""
        scores = {name: score.as_json() for name, score in self.scores.items()}
        ids = {"trace_id": f"{self.key.trace_id:032x}", "span_id": f"{self.key.span_id:016x}"}
        turns = {} if self.session is None else {"turns": self.session.turns}
        fields: dict[str, Any] = {**ids, **turns, "times": self.times, "scores": scores}
        if self.probability is not None:
            fields["probability"] = float(f"{self.probability:.6g}")
        return {"id": self.id, **self.sample.model_dump(exclude_none=True), **fields}

    def line(self) -> str:
        """Return the case as a line of a file, with its line end."""
        return f"{json.dumps(self.record(), ensure_ascii=False, default=str)}\n"


def case_sample(
    samples: Samples, metrics: Collection[str], requires: Mapping[str, Mapping[str, Collection[str]]]
) -> Sample | None:
    """Return the sample that metrics scored: the turn, or the conversation if all metrics score conversations.

    If the unit lacks that kind of sample, the other kind is returned; None if the unit has no sample.

    Args:
        samples: redacted samples of the unit.
        metrics: names of the metrics.
        requires: metric → kind of sample → required fields; a metric that is missing here may score either kind.
    """
    if samples.outcome is not None:
        return None
    kinds = [requires[name] for name in metrics if name in requires]
    if kinds and all("single_turn" not in kind for kind in kinds):
        return samples.multi_turn or samples.single_turn
    return samples.single_turn or samples.multi_turn


MOST_QUESTIONS: Final = 10_000
"""Number of the latest questions per file that are kept in memory; each takes about 0.1 kB."""


class QuestionIndex:
    """Hashes of the latest 10,000 questions that this process has appended, per file: the present one and its predecessor.

    Use it from one thread only.
    """

    def __init__(self) -> None:
        self._of_file: dict[FileIdentity, dict[bytes, None]] = {}

    def has(self, question: str, files: Collection[FileIdentity]) -> bool:
        """Return whether this process has appended a question to one of these files; drop the hashes of all other files."""
        self._of_file = {file: digests for file, digests in self._of_file.items() if file in files}
        return any(_digest(question) in digests for digests in self._of_file.values())

    def add(self, question: str, appended: Appended) -> None:
        """Record an appended question. If its line is the first of the file, earlier hashes of the file are dropped."""
        if appended.is_first:
            self._of_file[appended.file] = {}
        digests = self._of_file.setdefault(appended.file, {})
        digests[_digest(question)] = None
        if len(digests) > MOST_QUESTIONS:
            del digests[next(iter(digests))]


def _digest(question: str) -> bytes:
    return blake2b(question.encode("utf-8", "replace"), digest_size=16).digest()


WRITTEN, FOLDED, LOST = "written", "folded", "lost"
"""Results of a case. ``folded``: the file already has a case with the same question."""
_MOST_WAITING: Final = 1_000
_MOST_WAITING_BYTES: Final = 16_000_000
_RETRY_S: Final = (1.0, 5.0, 30.0)
"""Seconds until the next attempt: after the first failure, after the second, and after each later failure."""

OnResult = Callable[[str, int], object]


class _WaitingCase(NamedTuple):
    case: CollectedCase
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CollectState:
    """The counts of collected cases.

    Attributes:
        cases: result → number of cases: ``written``, ``folded`` (the file has the question already), ``lost``.
        waiting: number of cases that are not written yet.
        fault: the operating system's error that prevents writing now; empty without an error.
    """

    path: Path
    cases: Mapping[str, int] = field(default_factory=dict)
    waiting: int = 0
    fault: str = ""


class CaseCollector:
    """Appends cases to a file, on a separate thread. Thread-safe; never raises; only ``flush`` and ``finish`` block.

    If the file cannot be written, up to 1,000 cases or 16 MB wait for the next attempt. Further cases are lost.

    Args:
        requires: metric → kind of sample → required fields, as the metrics report them.
        counted: called with a result (``written`` …) and the number of cases with it.
        later: schedules a function after a number of seconds.
        clock: monotonic clock, in s.
    """

    def __init__(
        self,
        collect: Collect,
        requires: Mapping[str, Mapping[str, Collection[str]]],
        *,
        counted: OnResult = lambda result, number: None,
        later: Callable[[float, Callable[[], Any]], None] = loop.later,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._conditions = collect.conditions
        self.requires = requires
        self._file = LineFile(collect.path, collect.max_bytes)
        self._counted = counted
        self._later = later
        self._clock = clock
        self._lock = Lock()
        self._waiting: deque[_WaitingCase] = deque()
        self._bytes = 0
        self._cases: Counter[str] = Counter()
        self._failure_count, self._last_error, self._retry_at_s = 0, "", 0.0
        self._written = QuestionIndex()
        self._thread = SerialThread("spanscore-cases")
        self._finished = False

    def collect_case(self, job: Job, scores: Sequence[Score]) -> None:
        """Collect a finished job, a unit or an ended conversation, if its scores meet a condition."""
        if job.unit.is_provisional:
            return
        try:
            by_name = {score.metric: score for score in scores}
            metrics = {condition.metric for condition in self._conditions if condition.holds(by_name)}
            sample = case_sample(job.samples, metrics, self.requires) if metrics else None
            if sample is not None:
                case_scores = {name: FoundScore.of(score) for name, score in by_name.items()}
                case = CollectedCase(job.unit.key, sample, case_scores, session=job.unit.session)
                self._enqueue(_WaitingCase(case, job.size_bytes))
        except Exception as error:  # noqa: BLE001  (an error of the collector must not affect scoring)
            log_internal_error("collect a case", error)

    def state(self) -> CollectState:
        """Return the counts."""
        with self._lock:
            return CollectState(self._file.path, dict(self._cases), len(self._waiting), self._last_error)

    def flush(self, timeout_s: float) -> bool:
        """Write the waiting cases, and wait for the writes. Returns whether no case waits. Blocks."""
        with self._lock:
            if not self._waiting:
                return True
        wait([self._thread.do(self._write_waiting)], timeout_s)
        return not self._waiting

    def finish(self, timeout_s: float) -> None:
        """Write the waiting cases when the scorer ends; cases still unwritten after ``timeout_s`` count as lost. Blocks."""
        self.flush(timeout_s)
        self._thread.stop()
        with self._lock:
            self._finished = True
            left = len(self._waiting)
            self._waiting.clear()
        if left:
            self._count(LOST, left)
            why = self._last_error or "the write did not finish in time"
            log_once("cases lost", f"not written to {self._file.path}: {format_count(left, 'case')} ({why})")

    def _enqueue(self, waiting: _WaitingCase) -> None:
        with self._lock:
            has_room = len(self._waiting) < _MOST_WAITING and self._bytes + waiting.size_bytes <= _MOST_WAITING_BYTES
            is_accepted = not self._finished and (has_room or not self._waiting)
            if is_accepted:
                self._waiting.append(waiting)
                self._bytes += waiting.size_bytes
        if not is_accepted:
            self._count(LOST)
        elif self._clock() >= self._retry_at_s:
            self._thread.do(self._write_waiting)

    def _write_waiting(self) -> bool:
        """Write the waiting cases until the first failure; return whether all were written. Only on the writer thread."""
        while True:
            with self._lock:
                if not self._waiting:
                    return True
                waiting = self._waiting[0]
            try:
                result = self._write(waiting.case)
            except OSError as error:
                self._retry_later(error)
                return False
            except Exception as error:  # noqa: BLE001  (a case that cannot be written must not block later cases)
                log_internal_error("write a case", error)
                result = LOST
            self._record_result(waiting, result)

    def _write(self, case: CollectedCase) -> str:
        if self._written.has(case.question, self._file.identities()):
            return FOLDED
        line = case.line().encode("utf-8", "replace")
        if len(line) > self._file.most_bytes:
            log_once(
                f"case too large for {self._file.path}",
                f"a case of {len(line):,} bytes is not collected: the limit for one case is {self._file.most_bytes:,}, half of"
                " collect.max_bytes",
            )
            return LOST
        self._written.add(case.question, self._file.append(line))
        return WRITTEN

    def _record_result(self, waiting: _WaitingCase, result: str) -> None:
        with self._lock:
            if not self._waiting or self._waiting[0] is not waiting:
                return  # ``finish`` has counted the case as lost
            self._waiting.popleft()
            self._bytes -= waiting.size_bytes
            if result == WRITTEN:
                self._failure_count, self._last_error, self._retry_at_s = 0, "", 0.0
        self._count(result)

    def _retry_later(self, error: OSError) -> None:
        wait_s = _RETRY_S[min(self._failure_count, len(_RETRY_S) - 1)]
        with self._lock:
            self._failure_count += 1
            self._last_error = error.strerror or type(error).__name__
            self._retry_at_s = self._clock() + wait_s
        path = self._file.path
        log_once(
            f"cases of {path}",
            f"cases cannot be written to {path}: {self._last_error}; the cases wait, and are retried",
        )
        if not self._finished:
            self._later(wait_s, lambda: self._thread.do(self._write_waiting))

    def _count(self, result: str, number: int = 1) -> None:
        with self._lock:
            self._cases[result] += number
        self._counted(result, number)
