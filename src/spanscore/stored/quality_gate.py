"""The gate of a data set: bounds on each metric's quality, and the outcome as JUnit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Self, TypeAlias
from xml.etree import ElementTree

from spanscore.core.printable import names_listed
from spanscore.core.score import NOT_APPLICABLE, Outcome
from spanscore.errors import ConfigurationError, writing
from spanscore.monitoring.estimates import MeanInterval
from spanscore.monitoring.judge_check_runs import JudgeComparison, pair
from spanscore.stored.dataset import BadRecord
from spanscore.stored.evaluation_result import Result, Row

__all__ = [
    "LEAVE_OUT",
    "MAX_UNSCORED",
    "CaseChange",
    "GateResult",
    "MetricGate",
    "QualityBounds",
    "checked",
    "write_junit",
]

# --- gate -----------------------------------------------------------------------------------------------------------

# The gate of a data set: how far the quality of each metric may fall against a baseline, and how low it may be.
#
# Cases are compared with themselves: the spread between cases cancels out of the difference. A drop whose 95 % interval
# holds 0 is noise, and said to be; one beyond it that is larger than allowed fails. A case without a score is no drop, and
# no pass: too many of them make the run incomplete.

MAX_UNSCORED: Final = 0.05
LEAVE_OUT: Final = (
    "a case without a score is no drop, and no pass. A metric's applies_when leaves out cases that it is not for; cases "
    "without its fields go into a file of their own; cases that were removed need a new baseline"
)
"""How a run becomes complete."""
_FALLBACK, _NOT_READ, _GONE = "judged by a fallback", "not read", "not in this run"
"""Reasons for which a case has no score, beside the outcomes."""
_SAME: Final = 1e-9
"""Differences of quality that are rounding."""
_Cases: TypeAlias = dict[tuple[str, str], Row]
"""Case and metric → row."""


@dataclass(frozen=True, slots=True)
class QualityBounds:
    """What must hold.

    Attributes:
        baseline: rows of the run to compare with; None = none.
        max_drop: metric → how far its mean quality may fall, [0, 1].
        least: metric → the lowest mean quality, [0, 1].
        max_unscored: share of a metric's cases that may have no score, for any reason but its ``applies_when``, [0, 1].
        replaces: whether the run takes the baseline's place: cases of the baseline may be gone.

    Raises:
        ConfigurationError: a bound is no number from 0 to 1; NaN would hold nothing.
    """

    baseline: Sequence[Row] | None = None
    max_drop: Mapping[str, float] = field(default_factory=dict)
    least: Mapping[str, float] = field(default_factory=dict)
    max_unscored: float = MAX_UNSCORED
    replaces: bool = False

    def __post_init__(self) -> None:
        bounds = {f"least[{metric!r}]": bound for metric, bound in self.least.items()}
        bounds |= {f"max_drop[{metric!r}]": bound for metric, bound in self.max_drop.items()}
        for name, bound in {**bounds, "max_unscored": self.max_unscored}.items():
            if not isinstance(bound, int | float) or not 0.0 <= bound <= 1.0:
                raise ConfigurationError(f"{name} is {bound!r}; write a number from 0 to 1")

    def refuse_unknown(self, metrics: Collection[str]) -> None:
        """Refuse bounds that would hold nothing.

        Raises:
            ConfigurationError: one names no metric of these, or there is nothing to fall from.
        """
        for option, bounds in (("--max-drop", self.max_drop), ("--min", self.least)):
            if unknown := sorted(bounds.keys() - {*metrics}):
                raise ConfigurationError(
                    f"{option} names {unknown[0]!r}, which is not scored; the metrics are {', '.join(metrics)}"
                )
        if self.max_drop and self.baseline is None:
            raise ConfigurationError("--max-drop needs a baseline to fall from: --baseline base.jsonl")
        self._refuse_unscored()

    def _refuse_unscored(self) -> None:
        scored = dict.fromkeys(row.metric for row in self.baseline or () if row.quality is not None)
        if self.baseline is not None and (unscored := sorted(self.max_drop.keys() - scored.keys())):
            raise ConfigurationError(
                f"--max-drop names {unscored[0]!r}, of which the baseline has no score; it has scores of "
                f"{names_listed(scored) or 'nothing'}; --update-baseline writes it anew"
            )

    def refuse_cases(self, ids: Sequence[str | int | None]) -> None:
        """Refuse cases that cannot be told apart, or of which none is in the baseline, before they are scored.

        Raises:
            ConfigurationError: they cannot be compared.
        """
        known = [row.id for row in self.baseline or ()]
        if not known or None in ids or None in known:  # there is none, or lines tell them apart
            return
        twice = next((case for case, times in Counter(ids).items() if times > 1), None)
        if twice is not None:
            raise ConfigurationError(_twice(str(twice)))
        if not {*map(str, ids)} & {*map(str, known)}:
            raise ConfigurationError(_no_overlap(str(known[0]), str(ids[0])))


@dataclass(frozen=True, slots=True)
class CaseChange:
    """One case of which a metric's quality has changed.

    Attributes:
        case: its id, or its line.
        before: quality, [0, 1].
        after: likewise.
        explanation: the judge's words now; may quote the sample.
    """

    case: str
    metric: str
    before: float
    after: float
    explanation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricGate:
    """One metric at the gate.

    Attributes:
        quality: mean now, [0, 1]; None where nothing was scored.
        before: that of the same cases in the baseline; None without one.
        change: mean of now − before over the cases in both, with its 95 % interval; None without such cases.
        cases: that are in both, with a score.
        unscored: share of its cases without a score, [0, 1]. Cases that its ``applies_when`` leaves out are in neither number.
        no_score: reason → cases without a score: an outcome, "not read" (a bad line), "not in this run" (a case of the
            baseline), "judged by a fallback"; "not applicable" only for a case with a score in the baseline.
        lost: cases without a score that have one in the baseline.
        failed: what does not hold, a sentence each; empty = it passes.
        notes: what must be known of it beside that.
        incomplete: whether more cases than allowed have no score, or none has.
        evaluator_version_changed: whether the baseline is of another version of the metric or another judge.
    """

    metric: str
    quality: float | None
    before: float | None = None
    change: MeanInterval | None = None
    cases: int = 0
    unscored: float = 0.0
    no_score: Mapping[str, int] = field(default_factory=dict)
    lost: int = 0
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    incomplete: bool = False
    evaluator_version_changed: bool = False

    @property
    def lacks(self) -> str:
        """Return the cases without a score in words, with their reasons; empty if there are none and the metric is complete."""
        without = sum(self.no_score.values())
        if not without:
            return "no case has a score on both sides" * self.incomplete
        why = ", ".join(f"{reason} {cases:,}" for reason, cases in Counter(self.no_score).most_common())
        lost = f"; {self.lost:,} of them had a score in the baseline" * bool(self.lost)
        cases = f"{without:,} cases ({self.unscored:.0%}) have" if without > 1 else f"1 case ({self.unscored:.0%}) has"
        return f"{cases} no score: {why}{lost}"


@dataclass(frozen=True, slots=True)
class GateResult:
    """What came of a run at the gate.

    Attributes:
        metrics: in the run's order.
        changes: cases whose quality fell, the largest fall first, and behind them those that rose.
        not_in_baseline: scored cases of this run that have no score there; ``not_in_run``: the other way round.
        by_line: whether cases were told apart by their lines, as some have no id.
    """

    metrics: tuple[MetricGate, ...]
    changes: tuple[CaseChange, ...] = ()
    not_in_baseline: int = 0
    not_in_run: int = 0
    by_line: bool = False

    @property
    def incomplete(self) -> bool:
        """Whether too many cases of some metric have no score."""
        return any(one.incomplete for one in self.metrics)

    @property
    def passed(self) -> bool:
        """Whether everything holds, as far as it could be judged."""
        return not any(one.failed for one in self.metrics)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values, for another program."""
        metrics = {one.metric: _plain(one) for one in self.metrics}
        changes = [asdict(change) for change in self.changes]
        alone = {"not_in_baseline": self.not_in_baseline, "not_in_run": self.not_in_run, "by_line": self.by_line}
        return {"passed": self.passed, "incomplete": self.incomplete, **alone, "metrics": metrics, "changes": changes}


def _plain(one: MetricGate) -> dict[str, Any]:
    return {**asdict(one), "change": None if one.change is None else one.change._asdict()}


def checked(gate: QualityBounds, result: Result) -> GateResult:
    """Hold a run against a gate.

    Raises:
        ConfigurationError: the gate names a metric that was not scored, or no case of the run is in the baseline.
    """
    gate.refuse_unknown(result.scales)
    both = _Both.of(gate.baseline, result)
    return GateResult(
        tuple(_of_metric(metric, gate, result, both) for metric in result.scales),
        _changed(pair for metric in result.scales for pair in both.pairs(metric)),
        *_alone(both.now, both.known),
        both.by_line,
    )


@dataclass(frozen=True, slots=True)
class _Both:
    """The scored cases of the baseline (``known``) and of the run (``now``); both are empty without a baseline."""

    known: _Cases
    now: _Cases
    by_line: bool

    @classmethod
    def of(cls, baseline: Sequence[Row] | None, result: Result) -> Self:
        """Sort them.

        Raises:
            ConfigurationError: no case of the run, scored or not, is in the baseline; or several have one id.
        """
        if baseline is None:
            return cls({}, {}, by_line=False)
        by_line = any(row.id is None for row in (*result.rows, *baseline))
        theirs, ours = ([_case(row, by_line) for row in rows] for rows in (baseline, result.rows))
        if theirs and ours and not {*theirs} & {*_cases_of(result, by_line)}:
            raise ConfigurationError(_no_overlap(theirs[0], ours[0]))
        return cls(_scored(baseline, by_line), _scored(result.rows, by_line), by_line)

    def pairs(self, metric: str) -> list[tuple[Row, Row]]:
        """Return the rows of a metric now, each with that of the same case in the baseline; both have a quality."""
        places = [place for place in self.now if place[1] == metric and place in self.known]
        rows = [(self.now[place], self.known[place]) for place in places]
        return [(row, old) for row, old in rows if row.quality is not None and old.quality is not None]

    def lost(self, metric: str) -> set[str]:
        """Return the cases with a score of a metric in the baseline, and none now."""
        return {case for case, of in self.known if of == metric and (case, of) not in self.now}


@dataclass(frozen=True, slots=True)
class _NoScore:
    """The cases of a metric without a score of the configured judge: reason → cases, those that are ``lost``, their share."""

    reasons: Counter[str]
    lost: int
    share: float

    @classmethod
    def of(cls, metric: str, result: Result, lost: set[str], *, by_line: bool) -> Self:
        """Count them; ``lost`` are cases with a score in the baseline and none now."""
        rows = [row for row in result.rows if row.metric == metric]
        without = [(_case(row, by_line), why) for row in rows if (why := _why_unscored(row))]
        reasons = Counter(why for case, why in without if why != NOT_APPLICABLE or case in lost)
        gone = lost.difference(_cases_of(result, by_line))
        nameless = sum(bad.id is None and not by_line for bad in result.bad)  # each may be a case of the baseline
        reasons += Counter({_NOT_READ: len(result.bad), _GONE: max(0, len(gone) - nameless)})
        cases = len(rows) - len(without) + reasons.total()
        return cls(reasons, len(lost), reasons.total() / cases if cases else 0.0)


def _why_unscored(row: Row) -> str | None:
    """Return why a row has no score of the configured judge; None if it has one."""
    if row.outcome is Outcome.SCORED:
        return None if row.source is None else _FALLBACK
    return NOT_APPLICABLE if row.outcome is Outcome.NOT_APPLICABLE else row.outcome.value


def _cases_of(result: Result, by_line: bool) -> Iterator[str]:
    """Yield the cases of a run, with bad lines."""
    return (_case(place, by_line) for places in (result.rows, result.bad) for place in places)


def _changed(pairs: Iterable[tuple[Row, Row]]) -> tuple[CaseChange, ...]:
    changes = [_change(row, old) for row, old in pairs if abs(_quality(row) - _quality(old)) > _SAME]
    return tuple(sorted(changes, key=lambda change: (change.after - change.before, change.metric, change.case)))


def _alone(now: Iterable[tuple[str, str]], known: Iterable[tuple[str, str]]) -> tuple[int, int]:
    """Return how many cases are in the first alone, and in the second."""
    here, there = ({case for case, _ in of} for of in (now, known))
    return len(here - there), len(there - here)


def _of_metric(metric: str, gate: QualityBounds, result: Result, both: _Both) -> MetricGate:
    pairs, lost = both.pairs(metric), set() if gate.replaces else both.lost(metric)
    no_score = _NoScore.of(metric, result, lost, by_line=both.by_line)
    summary = result.summary(metric)
    gap = sum((pair(_quality(old), _quality(row), None) for row, old in pairs), JudgeComparison()).gap
    fall = _Change(gate.max_drop.get(metric), gap)
    is_known = summary.quality is not None or metric not in gate.least
    return MetricGate(
        metric=metric,
        quality=summary.quality,
        before=fmean(_quality(old) for _, old in pairs) if pairs else None,
        change=gap,
        cases=len(pairs),
        unscored=no_score.share,
        no_score=no_score.reasons,
        lost=no_score.lost,
        failed=(*fall.failed, *_too_low(summary.quality, gate.least.get(metric, 0.0))),
        notes=fall.notes,
        incomplete=no_score.share > gate.max_unscored or not is_known or (metric in gate.max_drop and not pairs),
        evaluator_version_changed=any(row.evaluator_version != old.evaluator_version for row, old in pairs),
    )


def _too_low(quality: float | None, least: float) -> tuple[str, ...]:
    low = quality is not None and quality < least - _SAME
    return (f"mean quality {quality:.3f} is below {least:g}",) if low else ()


@dataclass(frozen=True, slots=True)
class _Change:
    allowed: float | None
    gap: MeanInterval | None

    @property
    def _is_large(self) -> bool:
        return self.allowed is not None and self.gap is not None and -self.gap.mean > self.allowed + _SAME

    @property
    def failed(self) -> tuple[str, ...]:
        """Say that it fell by more than is allowed, and by more than noise."""
        if not self._is_large or self.gap is None or self.gap.high >= 0.0:
            return ()
        return (f"fell by {_told(self.gap)}; allowed is {self.allowed:g}",)

    @property
    def notes(self) -> tuple[str, ...]:
        """Say that what looks like a drop is inside the noise."""
        if not self._is_large or self.gap is None or self.gap.high < 0.0:
            return ()
        return (f"the drop of {_told(self.gap)} is inside the noise: the interval holds 0; more cases would tell",)


def _told(gap: MeanInterval) -> str:
    low, high = sorted((-gap.low, -gap.high))
    return f"{-gap.mean:.3f} (95 %: {low:.3f} to {high:.3f})"


def _scored(rows: Iterable[Row], by_line: bool) -> _Cases:
    """Return (case, metric) → the row, of those with a score that the configured judge gave."""
    own = [row for row in rows if _why_unscored(row) is None]
    twice = [case for case, times in Counter((_case(row, by_line), row.metric) for row in own).items() if times > 1]
    if twice and not by_line:
        raise ConfigurationError(_twice(twice[0][0]))
    return {(_case(row, by_line), row.metric): row for row in own}


def _case(row: Row | BadRecord, by_line: bool) -> str:
    return f"line {row.line}" if by_line or row.id is None else str(row.id)


def _quality(row: Row) -> float:
    return row.quality or 0.0  # only of rows that have one


def _change(row: Row, old: Row) -> CaseChange:
    case = f"line {row.line}" if row.id is None else str(row.id)
    return CaseChange(case, row.metric, _quality(old), _quality(row), row.explanation)


def _twice(case: str) -> str:
    return f"several cases have the id {case!r}; each needs one of its own"


def _no_overlap(theirs: str, ours: str) -> str:
    return (
        f"no case of this run is in the baseline, whose first is {theirs!r} and here it is {ours!r}: cases are told apart by "
        "their id, or by their line; --update-baseline begins a new one"
    )


# --- junit ----------------------------------------------------------------------------------------------------------

# GateResult → a file as JUnit writes it, which every CI shows: a test per metric, a failure where it does not hold.


def write_junit(result: GateResult, path: Path, *, suite: str) -> None:
    """Write the verdicts; no content of a case is in them.

    Args:
        result: of the gate.
        path: replaced where it exists.
        suite: how they are called together: the file of the cases.

    Raises:
        ConfigurationError: it cannot be written.
    """
    told = [(metric, _why(metric)) for metric in result.metrics]
    failures = sum(bool(metric.failed) for metric, _ in told)
    errors = sum(metric.incomplete and not metric.failed for metric, _ in told)
    counts = {"tests": str(len(told)), "failures": str(failures), "errors": str(errors)}
    root = ElementTree.Element("testsuites", counts)
    suites = ElementTree.SubElement(root, "testsuite", {"name": suite, **counts})
    for metric, why in told:
        case = ElementTree.SubElement(suites, "testcase", {"classname": "spanscore", "name": metric.metric})
        if metric.failed or metric.incomplete:
            kind = "failure" if metric.failed else "error"
            ElementTree.SubElement(case, kind, {"message": why})
    with writing(path):
        ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _why(metric: MetricGate) -> str:
    return "; ".join([*metric.failed, *([metric.lacks] * metric.incomplete)])
