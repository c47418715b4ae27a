"""ReportRow: one (unit × metric), a score or why there is none: all that a page's numbers are made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from spanscore.core.codecs.text import as_text
from spanscore.core.score import BINARY, UNIT_INTERVAL, Direction, Kind, Label, Outcome
from spanscore.core.span import UnitKey

__all__ = ["PENDING", "ReportRow", "by_unit", "default_threshold", "name_within", "unit_name"]

PENDING = "pending"
"""The outcome of a score that had not arrived when its span left, nor in the file since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """One (unit × metric): a score, or why there is none. Also what judged data sets hand in.

    Attributes:
        unit: what the rows of one unit share: trace id and span id in hex, or a sample's own name; of a conversation its id.
        metric: empty where a unit has an outcome and nothing tells for which metric. What a fallback judged is a metric of its
            own (``name_within``): in no mean of the configured judge.
        outcome: one of ``Outcome``, ``pending``, or several joined by " or " where the span cannot tell them apart.
        time_ns: nanoseconds since the epoch; None = not known, the row is in no trend.
        value: on the metric's own scale; None unless the outcome is ``scored``.
        quality: 0…1, 1 good; None for an open scale.
        reason: what happened instead of a score; low cardinality.
        probability: with which this (unit × metric) was chosen, (0, 1]; None = it was not sampled.
        range: lowest and highest value; None = open or not known.
        pass_at: lowest quality that passes; None = not known.
        evaluator_version: metric version, judge and votes; None = the spans do not tell.
        name: of the unit.
        trace_id: 32 hex digits.
        question: None where it was not captured; likewise ``answer`` and ``contexts``.
        contexts: in rank order.
        left_out: share of a question that its judge was not shown, (0.5, 1); 0 if it was shown half of each or more.
        applies: whether the metric's condition holds; None where there is none, or nobody could say.
        of_conversation: what was judged is a whole conversation, not a turn of it.
    """

    unit: str
    metric: str
    outcome: str = Outcome.SCORED.value
    time_ns: int | None = None
    value: float | None = None
    quality: float | None = None
    label: Label | None = None
    reason: str | None = None
    explanation: str | None = None
    probability: float | None = None
    kind: Kind = "continuous"
    range: tuple[float, float] | None = None
    direction: Direction = "higher"
    pass_at: float | None = None
    evaluator_version: str | None = None
    judge_model: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    name: str = ""
    trace_id: str | None = None
    question: str | None = None
    answer: str | None = None
    contexts: tuple[str, ...] | None = None
    of_conversation: bool = False
    applies: bool | None = None
    left_out: float = 0.0

    @property
    def weight(self) -> float:
        """1 / probability: how many units of the traffic this one stands for."""
        return 1.0 / self.probability if self.probability else 1.0

    @property
    def threshold(self) -> float:
        """Lowest quality that passes; the default of its kind where it is not known."""
        return self.pass_at if self.pass_at is not None else default_threshold(self.kind)


def default_threshold(kind: Kind) -> float:
    """Return the lowest quality that passes where the metric was given no ``pass_at``."""
    return BINARY.pass_at if kind == "binary" else UNIT_INTERVAL.pass_at


def name_within(metric: str, source: Any) -> str:
    """Return how rows call a metric whose score is of a source: ``faithfulness (fallback)``; None = the population."""
    return f"{metric} ({as_text(source)})" if source else metric


def unit_name(key: UnitKey) -> str:
    """Return how rows call a unit of spans."""
    return f"{key.trace_id:032x}/{key.span_id:016x}"


def by_unit(rows: Iterable[ReportRow]) -> dict[str, list[ReportRow]]:
    """Return unit → its rows, both in the order in which they came."""
    rows_of: dict[str, list[ReportRow]] = {}
    for row in rows:
        rows_of.setdefault(row.unit, []).append(row)
    return rows_of
