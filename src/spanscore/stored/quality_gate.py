"""The quality gate of a data set: checks bounds on the quality of each metric, and writes the verdict in JUnit's format."""

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

MAX_UNSCORED: Final = 0.05
UNSCORED_ADVICE: Final = (
    "a case without a score is neither a drop nor a pass. Use a metric's applies_when to exclude cases, or move cases "
    "that lack its fields to a separate file. If you remove cases, write a new baseline"
)
"""Advice on how to make an incomplete run complete."""
_FALLBACK, _NOT_READ, _ABSENT = "judged by a fallback", "not read", "not in this run"
"""Reasons for a case without a score, in addition to the outcomes."""
_SAME: Final = 1e-9
"""Differences of qualities up to this are rounding."""
_Cases: TypeAlias = dict[tuple[str, str], Row]
"""Case and metric → row."""


@dataclass(frozen=True, slots=True)
class QualityBounds:
    """The bounds of a run: how far the quality of each metric may fall below a baseline, and its lowest value.

    Attributes:
        baseline: rows of an earlier run; None = there is no baseline.
        max_drop: metric → largest fall of its mean quality, [0, 1].
        least: metric → lowest mean quality, [0, 1].
        max_unscored: share of a metric's cases that may have no score, [0, 1]. Cases that its ``applies_when`` excludes do not
            count, unless they have a score in the baseline.
        replaces: whether the run replaces the baseline, so that cases of the baseline may be missing.

    Raises:
        ConfigurationError: a bound is not a number from 0 to 1.
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
        """Refuse bounds that cannot be checked.

        Raises:
            ConfigurationError: a bound names an unknown metric, or a drop is bounded without scores in the baseline.
        """
        for option, bounds in (("--max-drop", self.max_drop), ("--min", self.least)):
            if unknown := sorted(bounds.keys() - {*metrics}):
                raise ConfigurationError(
                    f"{option} names {unknown[0]!r}, which is not scored; the metrics are {', '.join(metrics)}"
                )
        if self.max_drop and self.baseline is None:
            raise ConfigurationError("--max-drop needs a baseline to fall from: --baseline base.jsonl")
        scored = dict.fromkeys(row.metric for row in self.baseline or () if row.quality is not None)
        if self.baseline is not None and (unscored := sorted(self.max_drop.keys() - scored.keys())):
            raise ConfigurationError(
                f"--max-drop names {unscored[0]!r}, but the baseline has no score of it; it has scores of "
                f"{names_listed(scored) or 'nothing'}; --update-baseline writes it anew"
            )

    def refuse_cases(self, ids: Sequence[str | int | None]) -> None:
        """Refuse cases that cannot be compared with the baseline, before they are scored.

        Raises:
            ConfigurationError: two cases have one id, or no case is in the baseline.
        """
        before = [row.id for row in self.baseline or ()]
        if not before or None in ids or None in before:  # no baseline, or cases are compared by line
            return
        twice = next((case for case, times in Counter(ids).items() if times > 1), None)
        if twice is not None:
            raise ConfigurationError(_twice(str(twice)))
        if not {*map(str, ids)} & {*map(str, before)}:
            raise ConfigurationError(_no_overlap(str(before[0]), str(ids[0])))


@dataclass(frozen=True, slots=True)
class CaseChange:
    """A case with a changed quality by a metric.

    Attributes:
        case: id of the case, or its line.
        metric: name of the metric.
        before: quality in the baseline, [0, 1].
        after: quality now, [0, 1].
        explanation: the judge's words now; may quote the sample.
    """

    case: str
    metric: str
    before: float
    after: float
    explanation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricGate:
    """The verdict on one metric.

    Attributes:
        metric: name of the metric.
        quality: mean quality now, [0, 1]; None = there is no score.
        before: mean quality of the same cases in the baseline; None = there are no such cases.
        change: mean of now − before over these cases, with its 95 % interval; None if there are no such cases.
        cases: number of cases with a score in this run and in the baseline.
        unscored: share of its cases without a score, [0, 1]. Cases that its ``applies_when`` excludes do not count, unless they
            have a score in the baseline.
        no_score: reason → number of cases without a score: an outcome, "not read" (a bad line), "not in this run" (a case of
            the baseline that is absent), "judged by a fallback"; "not applicable" only for a case with a score in the baseline.
        lost: number of cases with a score in the baseline and no score in this run, absent cases included.
        failed: bounds that do not hold, a sentence each; empty = it passes.
        notes: remarks, a sentence each.
        incomplete: whether more cases than allowed lack a score, or a bound has no scores to be checked on.
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
        """The cases without a score in words, with their reasons; empty if each case has a score."""
        without = sum(self.no_score.values())
        if not without and not self.incomplete:
            return ""
        if not without:
            return f"no case has a score{'' if self.quality is None else ' in this run and in the baseline'}"
        why = ", ".join(f"{reason} {cases:,}" for reason, cases in Counter(self.no_score).most_common())
        lost = f"; {self.lost:,} of them had a score in the baseline" if self.lost else ""
        cases = f"{without:,} cases ({self.unscored:.0%}) have" if without > 1 else f"1 case ({self.unscored:.0%}) has"
        return f"{cases} no score: {why}{lost}"


@dataclass(frozen=True, slots=True)
class GateResult:
    """The verdict on a run.

    Attributes:
        metrics: metrics in the run's order.
        changes: cases with a lower quality, the largest drop first, then cases with a higher quality.
        not_in_baseline: number of cases with a score of any metric in this run, and none in the baseline.
        not_in_run: number of cases with a score of any metric in the baseline, and none in this run, absent cases included.
        by_line: whether cases were identified by line, because some have no id.
    """

    metrics: tuple[MetricGate, ...]
    changes: tuple[CaseChange, ...] = ()
    not_in_baseline: int = 0
    not_in_run: int = 0
    by_line: bool = False

    @property
    def incomplete(self) -> bool:
        """Whether some metric is incomplete."""
        return any(metric.incomplete for metric in self.metrics)

    @property
    def passed(self) -> bool:
        """Whether all bounds hold, as far as there are scores."""
        return not any(metric.failed for metric in self.metrics)

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as JSON types, for another program."""
        metrics = {
            metric.metric: {**asdict(metric), "change": metric.change and metric.change._asdict()}
            for metric in self.metrics
        }
        changes = [asdict(change) for change in self.changes]
        cases = {"not_in_baseline": self.not_in_baseline, "not_in_run": self.not_in_run, "by_line": self.by_line}
        return {"passed": self.passed, "incomplete": self.incomplete, **cases, "metrics": metrics, "changes": changes}


def check_quality(gate: QualityBounds, result: Result) -> GateResult:
    """Return the verdict on a run.

    Each case is compared with itself, so that the variation between cases cancels out of the difference. A drop larger than
    allowed fails if its 95 % interval is below 0; otherwise it only gets a note. A case without a score is neither a drop nor a
    pass: too many of them make the run incomplete.

    Raises:
        ConfigurationError: the gate names a metric that was not scored, or bounds a drop without scores in a baseline; no case
            of the run is in the baseline; or several cases have one id.
    """
    gate.refuse_unknown(result.scales)
    both = _ScoredCases.of(gate.baseline, result)
    changes = [
        CaseChange(_case(row, row.id is None), row.metric, _quality(old), _quality(row), row.explanation)
        for metric in result.scales
        for row, old in both.pairs(metric)
        if abs(_quality(row) - _quality(old)) > _SAME
    ]
    in_run, in_baseline = ({case for case, _ in cases} for cases in (both.now, both.before))
    return GateResult(
        tuple(_check_metric(metric, gate, result, both) for metric in result.scales),
        tuple(sorted(changes, key=lambda change: (change.after - change.before, change.metric, change.case))),
        len(in_run - in_baseline),
        len(in_baseline - in_run),
        both.by_line,
    )


@dataclass(frozen=True, slots=True)
class _ScoredCases:
    """The scored cases of the baseline (``before``) and of the run (``now``); both empty without a baseline.

    ``by_line`` is whether cases are identified by line, because some have no id.
    """

    before: _Cases
    now: _Cases
    by_line: bool

    @classmethod
    def of(cls, baseline: Sequence[Row] | None, result: Result) -> Self:
        """Return the cases of a baseline and of a run.

        Raises:
            ConfigurationError: no case of the run, scored or not, is in the baseline; or several cases have one id.
        """
        if baseline is None:
            return cls({}, {}, by_line=False)
        by_line = any(row.id is None for row in (*result.rows, *baseline))
        before, now = ([_case(row, by_line) for row in rows] for rows in (baseline, result.rows))
        if before and now and not {*before} & {*_cases_of(result, by_line)}:
            raise ConfigurationError(_no_overlap(before[0], now[0]))
        return cls(_rows_by_case(baseline, by_line), _rows_by_case(result.rows, by_line), by_line)

    def pairs(self, metric: str) -> list[tuple[Row, Row]]:
        """Return pairs of a metric's row now and the row of the same case in the baseline, if each has a quality."""
        keys = [key for key in self.now if key[1] == metric and key in self.before]
        rows = [(self.now[key], self.before[key]) for key in keys]
        return [(row, old) for row, old in rows if row.quality is not None and old.quality is not None]

    def find_lost(self, metric: str) -> set[str]:
        """Return the cases with a score of a metric in the baseline and no score of it now, absent cases included."""
        return {case for case, scored_by in self.before if scored_by == metric and (case, metric) not in self.now}


def _count_unscored(metric: str, result: Result, lost: set[str], *, by_line: bool) -> tuple[Counter[str], float]:
    """Return reason → number of cases of a metric without a score of the configured judge, and their share of its cases."""
    rows = [row for row in result.rows if row.metric == metric]
    without = [(_case(row, by_line), why) for row in rows if (why := _why_unscored(row))]
    reasons = Counter(why for case, why in without if why != NOT_APPLICABLE or case in lost)
    absent = lost.difference(_cases_of(result, by_line))
    # A bad line without an id may be an absent case. Each such line reduces the absent cases by one, so none counts twice.
    nameless = sum(bad.id is None and not by_line for bad in result.bad)
    reasons += Counter({_NOT_READ: len(result.bad), _ABSENT: max(0, len(absent) - nameless)})
    cases = len(rows) - len(without) + reasons.total()
    return reasons, reasons.total() / cases if cases else 0.0


def _why_unscored(row: Row) -> str | None:
    """Return the reason why a row has no score of the configured judge; None if it has a score."""
    if row.outcome is Outcome.SCORED:
        return None if row.source is None else _FALLBACK
    return NOT_APPLICABLE if row.outcome is Outcome.NOT_APPLICABLE else row.outcome.value


def _cases_of(result: Result, by_line: bool) -> Iterator[str]:
    return (_case(place, by_line) for places in (result.rows, result.bad) for place in places)


def _check_metric(metric: str, gate: QualityBounds, result: Result, both: _ScoredCases) -> MetricGate:
    pairs, lost = both.pairs(metric), set() if gate.replaces else both.find_lost(metric)
    no_score, unscored = _count_unscored(metric, result, lost, by_line=both.by_line)
    quality = result.summary(metric).quality
    # The mean of paired differences with its interval, as in the comparison of two judges: run − baseline of each case.
    gap = sum((pair(_quality(old), _quality(row), None) for row, old in pairs), JudgeComparison()).gap
    failed, notes = _check_drop(gate.max_drop.get(metric), gap)
    least = gate.least.get(metric, 0.0)
    if quality is not None and quality < least - _SAME:
        failed.append(f"mean quality {quality:.3f} is below {least:g}")
    can_check_least = quality is not None or metric not in gate.least
    return MetricGate(
        metric=metric,
        quality=quality,
        before=fmean(_quality(old) for _, old in pairs) if pairs else None,
        change=gap,
        cases=len(pairs),
        unscored=unscored,
        no_score=no_score,
        lost=len(lost),
        failed=tuple(failed),
        notes=tuple(notes),
        incomplete=unscored > gate.max_unscored or not can_check_least or (metric in gate.max_drop and not pairs),
        evaluator_version_changed=any(row.evaluator_version != old.evaluator_version for row, old in pairs),
    )


def _check_drop(allowed: float | None, gap: MeanInterval | None) -> tuple[list[str], list[str]]:
    """Return sentences on a drop that is too large, and sentences on a drop within the noise."""
    if allowed is None or gap is None or not -gap.mean > allowed + _SAME:
        return [], []
    low, high = sorted((-gap.low, -gap.high))
    drop = f"{-gap.mean:.3f} (95 %: {low:.3f} to {high:.3f})"
    if gap.high < 0.0:
        return [f"fell by {drop}; allowed is {allowed:g}"], []
    return [], [f"the drop of {drop} is within the noise: the interval contains 0; more cases would decide it"]


def _rows_by_case(rows: Iterable[Row], by_line: bool) -> _Cases:
    """Return (case, metric) → row, for rows with a score of the configured judge."""
    scored = [((_case(row, by_line), row.metric), row) for row in rows if _why_unscored(row) is None]
    twice = [key for key, times in Counter(key for key, _ in scored).items() if times > 1]
    if twice and not by_line:
        raise ConfigurationError(_twice(twice[0][0]))
    return dict(scored)


def _case(row: Row | BadRecord, by_line: bool) -> str:
    return f"line {row.line}" if by_line or row.id is None else str(row.id)


def _quality(row: Row) -> float:
    return row.quality or 0.0  # called only for rows with a quality


def _twice(case: str) -> str:
    return f"several cases have the id {case!r}; each needs one of its own"


def _no_overlap(before: str, now: str) -> str:
    return (
        f"no case of this run is in the baseline: its first case is {before!r}, here it is {now!r}. Cases are identified by "
        "their id, or by their line; --update-baseline begins a new one"
    )


def write_junit(result: GateResult, path: Path, *, suite: str) -> None:
    """Write a file in JUnit's format, which a CI can show, with one test per metric and without content of a case.

    An existing file is replaced. ``suite`` is the name of the suite: the file of the cases.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    failures = sum(bool(metric.failed) for metric in result.metrics)
    errors = sum(metric.incomplete and not metric.failed for metric in result.metrics)
    counts = {"tests": str(len(result.metrics)), "failures": str(failures), "errors": str(errors)}
    root = ElementTree.Element("testsuites", counts)
    suites = ElementTree.SubElement(root, "testsuite", {"name": suite, **counts})
    for metric in result.metrics:
        case = ElementTree.SubElement(suites, "testcase", {"classname": "spanscore", "name": metric.metric})
        if metric.failed or metric.incomplete:
            kind = "failure" if metric.failed else "error"
            message = "; ".join([*metric.failed, *([metric.lacks] * metric.incomplete)])
            ElementTree.SubElement(case, kind, {"message": message})
    with writing(path):
        ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
