"""``assert_quality``, which fails a test if answers are not good enough; its message shows the worst cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from spanscore.core.printable import format_value, printable
from spanscore.errors import ConfigurationError
from spanscore.protocols import Metric
from spanscore.stored.evaluation import evaluate_sync
from spanscore.stored.evaluation_result import Result, read_rows
from spanscore.stored.quality_gate import MAX_UNSCORED, UNSCORED_ADVICE, GateResult, QualityBounds, check_quality

_WORST: Final = 3
"""Number of a metric's worst cases in the message."""


def assert_quality(
    samples: Iterable[Any] | str | Path,
    metrics: Sequence[Metric | str],
    *,
    least: Mapping[str, float] | None = None,
    baseline: str | Path | None = None,
    max_drop: Mapping[str, float] | None = None,
    max_unscored: float = MAX_UNSCORED,
) -> Result:
    """Score samples, and fail if they are not good enough: ``spanscore evaluate --min … --max-drop …``, as a test.

    Args:
        samples: samples, records (dicts), or the path of a file of them.
        metrics: metrics, or names of metrics, which then use the offline judge.
        least: metric → lowest acceptable mean quality, [0, 1].
        baseline: rows of an earlier run, as ``Result.to_jsonl`` or ``spanscore evaluate --out`` writes them.
        max_drop: metric → largest acceptable fall of the mean quality on the same cases, [0, 1]; a drop within the noise does
            not fail.
        max_unscored: largest acceptable share of a metric's cases without a score, [0, 1]. These include cases of the baseline
            that are gone, and unreadable records. Cases that the metric's ``applies_when`` excludes do not count.

    Raises:
        AssertionError: a bound does not hold, or too many cases have no score; the message shows the worst cases.
        ConfigurationError: no bound is given, a bound is not a number from 0 to 1 or names an unknown metric, or the baseline
            is missing.
    """
    if not least and not max_drop:
        raise ConfigurationError("assert_quality needs a bound: least={...}, or baseline= and max_drop={...}")
    rows = None if baseline is None else list(read_rows(Path(baseline)))
    if rows is not None and not rows:
        raise ConfigurationError(f"{baseline} has no rows to compare with; Result.to_jsonl writes them")
    gate = QualityBounds(rows, max_drop or {}, least or {}, max_unscored)
    result = evaluate_sync(samples, metrics)
    gate_result = check_quality(gate, result)
    if not gate_result.passed or gate_result.incomplete:
        raise AssertionError("\n".join(_describe_failures(gate_result, result)))
    return result


def _describe_failures(gate_result: GateResult, result: Result) -> Iterable[str]:
    for metric in gate_result.metrics:
        if not metric.failed and not metric.incomplete:
            continue
        yield f"{metric.metric}: {'; '.join([*metric.failed, *([metric.lacks] * metric.incomplete)])}"
        rows = [row for row in result.rows if row.metric == metric.metric]
        for row in sorted(rows, key=lambda row: -1.0 if row.quality is None else row.quality)[:_WORST]:
            name = f"line {row.line}" if row.id is None else str(row.id)
            value = row.outcome.value if row.value is None else format_value(row.value)
            yield f"  {printable(': '.join(filter(None, [name, value, row.explanation or row.reason])))}"
    if gate_result.incomplete:
        yield f"{UNSCORED_ADVICE}; max_unscored= allows more"
