"""A trace that explains itself, as a value and as lines that fit a terminal of 80 columns.

Its tree comes first; then, per unit, its root, what was taken from where, and what would have it scored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from rich.console import Group
from rich.table import Table
from rich.text import Text

from spanscore.core.printable import format_count, printable
from spanscore.core.span import SpanData, UnitKey
from spanscore.core.terminal import as_plain

__all__ = ["ExplainedPart", "ExplainedSpan", "ExplainedTrace", "ExplainedUnit"]

_LABELS: Final = {
    "user_input": "question",
    "response": "answer",
    "retrieved_contexts": "context",
    "tool_calls": "tool call",
}
_LONGEST: Final = 200
"""Characters of a text."""
_MOST_PARTS: Final = 10
"""Contexts, and calls, that are shown of a unit."""
_WIDEST_CLAIM: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedSpan:
    """A span of a trace.

    Attributes:
        span_id: 16 hex digits.
        parent_id: 16 hex digits; None = it has no parent.
        name: of the span.
        scope: of its instrumentation.
        operation: ``gen_ai.operation.name`` as its translation has it; None = none, or no unit has the span.
        claimed_by: name of the translation that reads it; None = none does.
        unit: span id of its unit's root; None = it is of no unit.
        note: what is to be known of it, such as ``no content``; empty = nothing.
    """

    span_id: str
    parent_id: str | None
    name: str
    scope: str
    operation: str | None
    claimed_by: str | None
    unit: str | None = None
    note: str = ""

    @classmethod
    def of(cls, span: SpanData, by: str | None, member: SpanData | None, root: UnitKey | None, note: str = "") -> Self:
        """Return a span with its claim.

        Args:
            span: as its writer has it, or in GenAI names.
            by: name of the translation that reads it; None = none does.
            member: the span in GenAI names, as its unit has it; None = it is of no unit.
            root: of that unit; None = it is of no unit.
            note: why it is not read; empty = nothing is known.
        """
        lacks = member is not None and member.no_content is not None
        return cls(
            span_id=f"{span.span_id:016x}",
            parent_id=None if span.parent_id is None else f"{span.parent_id:016x}",
            name=span.name,
            scope=span.scope,
            operation=None if member is None else member.operation,
            claimed_by=by,
            unit=None if root is None else f"{root.span_id:016x}",
            note="no content" if lacks else note,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPart:
    """A part of a unit's sample.

    Attributes:
        field: ``user_input``, ``response``, ``retrieved_contexts`` or ``tool_calls``; the last two once per context and call.
        text: what was taken, redacted; None = nothing was taken, or no text may be shown.
        span_id: 16 hex digits, of the span that holds it; None = no span holds it as it is.
        span: name of that span; None likewise.
        attribute: of that span, in its writer's name where the spans are at hand as they came; None likewise.
        searched: where it was looked for; None where it was taken.
    """

    field: str
    text: str | None = None
    span_id: str | None = None
    span: str | None = None
    attribute: str | None = None
    searched: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedUnit:
    """A unit of a trace.

    Attributes:
        span_id: 16 hex digits, of its root.
        root: name of its root.
        kind: ``agent``, ``chat`` or ``workflow``.
        why: why this span is the root.
        parts: of its sample.
        outcome: with which every metric ends, such as ``no_sample``; None = it can be scored.
        reason: of that outcome; None = there is none.
        missing: metric → fields that it needs and this unit lacks; without metrics empty.
        change: switches and keys that would have it scored, a sentence each; empty where nothing is missing.
    """

    span_id: str
    root: str
    kind: str
    why: str
    parts: Sequence[ExplainedPart]
    outcome: str | None
    reason: str | None
    missing: Mapping[str, Sequence[str]]
    change: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedTrace:
    """A trace that explains itself; ``print`` it for its tree.

    Attributes:
        trace_id: 32 hex digits.
        spans: in the order of their starts.
        units: in the order of their starts; empty = nothing of the trace can be scored.
        reason: why there is no unit; None = there is one.
        change: switches and keys that would make a unit, or units, of it, a sentence each.
    """

    trace_id: str
    spans: Sequence[ExplainedSpan]
    units: Sequence[ExplainedUnit]
    reason: str | None = None
    change: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        return as_plain(self)

    def __rich__(self) -> Any:
        """Return tree and table."""
        return Group(*_render(self))


# --- shown -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SpanTree:
    """Spans with what is drawn before each, in the order of the tree; for rich, a line each with its claim in a column."""

    rows: Sequence[tuple[str, ExplainedSpan]]

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        claims = [_claim(span) for _, span in self.rows]
        digits, right = len(str(len(claims))), max(map(len, claims))
        left = max(options.max_width - right - 2, 10)
        for number, ((guide, span), claim) in enumerate(zip(self.rows, claims, strict=True), 1):
            drawn = guide if len(guide) <= left // 2 else f"…{guide[-(left // 2) :]}"
            line = Text(f"{number:>{digits}} {drawn}{printable(span.name)}")
            line.truncate(left, overflow="ellipsis", pad=True)
            yield Text.assemble(line, "  ", (claim, "bold" if span.unit == span.span_id else "dim"), no_wrap=True)


def _render(trace: ExplainedTrace) -> Iterator[Any]:
    rows = [*_rows(trace.spans)]
    numbers = {span.span_id: number for number, (_, span) in enumerate(rows, 1)}
    counts = f"{format_count(len(rows), 'span')}, {format_count(len(trace.units), 'unit')}"
    yield Text(f"trace {trace.trace_id}: {counts}", style="bold")
    if rows:
        yield _SpanTree(rows)
    lines = [] if trace.reason is None else [("no unit", trace.reason)]
    for unit in trace.units:
        lines += _unit(unit, numbers)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in [*lines, *(("to change", change) for change in trace.change)]:
        table.add_row(Text(f"  {label}", style="cyan"), Text(text))
    yield table


def _rows(spans: Sequence[ExplainedSpan]) -> Iterator[tuple[str, ExplainedSpan]]:
    """Yield each span once, in the order of the tree; spans whose parents are a circle stand at the top."""
    ids = {span.span_id for span in spans}
    below: dict[str | None, list[ExplainedSpan]] = {}
    for span in spans:
        below.setdefault(span.parent_id if span.parent_id in ids else None, []).append(span)
    done = set[str]()
    for top in [*below.get(None, ()), *spans]:
        waiting = [(top, "", "")]
        while waiting:
            span, guide, prefix = waiting.pop()
            if span.span_id in done:
                continue
            done.add(span.span_id)
            yield guide, span
            children = below.get(span.span_id, [])
            ends = [("├ ", "│ ")] * (len(children) - 1) + [("└ ", "  ")] * bool(children)
            below_it = ((child, *end) for child, end in zip(children, ends, strict=True))
            waiting += [(child, prefix + end, prefix + more) for child, end, more in below_it][::-1]


def _claim(span: ExplainedSpan) -> str:
    root = "root" if span.unit == span.span_id else ""
    return ", ".join(filter(None, (span.claimed_by or "none", root, span.note)))[:_WIDEST_CLAIM]


def _unit(unit: ExplainedUnit, numbers: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    yield "root", f"{_span(unit.span_id, unit.root, numbers)} ({unit.kind}): {unit.why}"
    needed = {field for fields in unit.missing.values() for field in fields} | {"user_input", "response"}
    counts: Counter[str] = Counter()
    for part in unit.parts:
        counts[part.field] += 1
        if counts[part.field] <= _MOST_PARTS:
            yield _LABELS[part.field], _part(part, numbers, is_needed=part.field in needed)
    yield from (
        ("", f"{format_count(many - _MOST_PARTS, _LABELS[field])} more")
        for field, many in counts.items()
        if many > _MOST_PARTS
    )
    yield from (("lacks", f"{metric}: {', '.join(fields)}") for metric, fields in unit.missing.items())
    if unit.reason is not None:
        yield ("note", unit.reason) if unit.outcome is None else (unit.outcome, unit.reason)
    yield from (("to change", change) for change in unit.change)


def _part(part: ExplainedPart, numbers: Mapping[str, int], *, is_needed: bool) -> str:
    if part.searched is not None:
        return f"none in {part.searched}" if is_needed else "none"
    if part.span_id is None or part.span is None:
        place = "no span has it as it is"
    else:
        place = f"from {_span(part.span_id, part.span, numbers)}: {part.attribute}"
    return place if part.text is None else f"{_cut(part.text)}\n{place}"


def _span(span_id: str, name: str, numbers: Mapping[str, int]) -> str:
    return f"{numbers.get(span_id, '?')} {name}"


def _cut(text: str) -> str:
    flowing = " ".join(text.split())
    return flowing if len(flowing) <= _LONGEST else f"{flowing[:_LONGEST]}…"
