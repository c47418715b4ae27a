"""``assert_quality``: a test of one's own that fails where answers are not good enough, and shows the worst of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from spanscore.core.printable import printable
from spanscore.errors import ConfigurationError
from spanscore.protocols import Metric
from spanscore.stored.evaluation import evaluate_sync
from spanscore.stored.evaluation_result import Result, read_rows
from spanscore.stored.quality_gate import LEAVE_OUT, MAX_UNSCORED, GateResult, QualityBounds, checked

__all__ = ["assert_quality"]

_WORST: Final = 3
"""Cases of a metric that a failure shows."""


def assert_quality(
    samples: Iterable[Any] | str | Path,
    metrics: Sequence[Metric | str],
    *,
    least: Mapping[str, float] | None = None,
    baseline: str | Path | None = None,
    max_drop: Mapping[str, float] | None = None,
    max_unscored: float = MAX_UNSCORED,
) -> Result:
    """Score samples, and fail where they are not good enough: ``spanscore evaluate --min … --max-drop …``, as a test.

    Args:
        samples: samples, records (dicts), or a file of them.
        metrics: metrics, or names, which the offline judge scores.
        least: metric → the lowest mean quality, [0, 1].
        baseline: rows of an earlier run, as ``Result.to_jsonl`` or ``spanscore evaluate --out`` writes them.
        max_drop: metric → how far the mean quality of the same cases may fall, [0, 1]; a drop inside the noise does not fail.
        max_unscored: share of a metric's cases that may have no score, [0, 1]. Every case counts that has none, also one of the
            baseline that is gone, and a record that cannot be read; cases that the metric's ``applies_when`` leaves out do not.

    Raises:
        AssertionError: something does not hold, or too many cases have no score; the message shows the worst cases.
        ConfigurationError: nothing is asked, a bound is no number from 0 to 1 or names no metric, or there is no such baseline.
    """
    if not least and not max_drop:
        raise ConfigurationError("assert_quality needs something to hold: least={...}, or baseline= and max_drop={...}")
    rows = None if baseline is None else list(read_rows(Path(baseline)))
    if rows is not None and not rows:
        raise ConfigurationError(f"{baseline} holds no rows to compare with; Result.to_jsonl writes them")
    gate = QualityBounds(rows, max_drop or {}, least or {}, max_unscored)
    result = evaluate_sync(samples, metrics)
    held = checked(gate, result)
    if not held.passed or held.incomplete:
        raise AssertionError("\n".join(_describe_failures(held, result)))
    return result


def _describe_failures(held: GateResult, result: Result) -> Iterable[str]:
    for gate in held.metrics:
        if not gate.failed and not gate.incomplete:
            continue
        yield f"{gate.metric}: {'; '.join([*gate.failed, *([gate.lacks] * gate.incomplete)])}"
        rows = [row for row in result.rows if row.metric == gate.metric]
        for row in sorted(rows, key=lambda row: -1.0 if row.quality is None else row.quality)[:_WORST]:
            name = f"line {row.line}" if row.id is None else str(row.id)
            shown = row.outcome.value if row.value is None else f"{row.value:.2f}"
            yield f"  {printable(': '.join(filter(None, [name, shown, row.explanation or row.reason])))}"
    if held.incomplete:
        yield f"{LEAVE_OUT}; max_unscored= allows more"
