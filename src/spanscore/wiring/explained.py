"""Explains why a trace has units or none, and from which span each part of a unit's sample is, for ``spanscore explain``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Self

from rich.console import Group
from rich.table import Table
from rich.text import Text

from spanscore import semconv
from spanscore.config.tree import ScorerSettings
from spanscore.core.codecs.media import MARKER
from spanscore.core.job import SampledUnit
from spanscore.core.printable import format_count, printable
from spanscore.core.sample import AIMessage, Samples, ToolCall
from spanscore.core.score import Outcome
from spanscore.core.span import CUT, SpanData, Unit, UnitKey
from spanscore.core.terminal import as_plain
from spanscore.core.timebox import Timebox
from spanscore.pipeline.evaluation import absent_fields
from spanscore.pipeline.jobs import Hooks, JobBuilder, redactor_in
from spanscore.protocols import Metric
from spanscore.samples.extraction import SEVERAL_TEXTS
from spanscore.samples.normalizers.building import raw_attributes
from spanscore.samples.normalizers.registry import SpanNormalizers
from spanscore.wiring.metrics import dialects_of, fields_on_demand, image_limit_of

if TYPE_CHECKING:
    from spanscore.wiring.build import Pipeline

_LABELS: Final = {
    "user_input": "question",
    "response": "answer",
    "retrieved_contexts": "context",
    "tool_calls": "tool call",
}
_MAX_TEXT: Final = 200
"""Maximum number of shown characters of a text."""
_MAX_PARTS: Final = 10
"""Maximum number of shown contexts, and of shown calls, of a unit."""
_MAX_CLAIM: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedSpan:
    """A span of a trace.

    Attributes:
        span_id: 16 hex digits.
        parent_id: 16 hex digits; None if it has no parent.
        name: name of the span.
        scope: instrumentation scope of the span.
        operation: ``gen_ai.operation.name`` after normalization; None if it has no operation, or it is in no unit.
        claimed_by: name of the normalizer that reads it; None if no normalizer does.
        unit: span id of its unit's root; None if it is in no unit.
        note: a remark such as ``no content``; empty without a remark.
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
        """Return the explanation of a span, which is original or in GenAI names.

        Args:
            span: the span.
            by: name of the normalizer that reads it; None if no normalizer does.
            member: the span in GenAI names in its unit; None if it is in no unit.
            root: key of that unit; None if it is in no unit.
            note: reason why it is not read; empty if unknown.
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
        text: the part, redacted; None if it was not found, or no text may be shown.
        span_id: 16 hex digits of the span that contains it; None if no span contains it unchanged.
        span: name of that span; None with ``span_id``.
        attribute: attribute of that span, under its original name if the original spans are available; None with ``span_id``.
        searched: searched places; None if it was found.
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
        span_id: 16 hex digits of its root.
        root: name of its root.
        kind: ``agent``, ``chat`` or ``workflow``.
        why: reason why this span is the root.
        parts: parts of its sample.
        outcome: outcome of every metric, such as ``no_sample``; None if it can be scored.
        reason: reason of that outcome; None without a reason.
        missing: metric → required fields that this unit lacks; empty without metrics.
        change: switches and keys that would make it scorable, a sentence each; empty if the unit lacks nothing.
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
    """A trace with its explanation; ``print`` it for its tree and, per unit, root, parts and changes, in 80 columns.

    Attributes:
        trace_id: 32 hex digits.
        spans: spans in the order of their starts.
        units: units in the order of their starts; empty if no part of the trace can be scored.
        reason: reason why there is no unit; None if there is a unit.
        change: switches and keys that would make units of it, a sentence each.
    """

    trace_id: str
    spans: Sequence[ExplainedSpan]
    units: Sequence[ExplainedUnit]
    reason: str | None = None
    change: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the explanation as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        return as_plain(self)

    def __rich__(self) -> Any:
        return Group(*_render(self))


@dataclass(frozen=True, slots=True)
class _SpanTree:
    """Spans with their guide lines, in the order of the tree. rich prints a line for each, with its claim in a column."""

    rows: Sequence[tuple[str, ExplainedSpan]]

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        claims = list[str]()
        for _, span in self.rows:
            root = "root" if span.unit == span.span_id else ""
            claims.append(", ".join(filter(None, (span.claimed_by or "none", root, span.note)))[:_MAX_CLAIM])
        digits, right = len(str(len(claims))), max(map(len, claims))
        left = max(options.max_width - right - 2, 10)
        for number, ((guide, span), claim) in enumerate(zip(self.rows, claims, strict=True), 1):
            drawn = guide if len(guide) <= left // 2 else f"…{guide[-(left // 2) :]}"
            line = Text(f"{number:>{digits}} {drawn}{printable(span.name)}")
            line.truncate(left, overflow="ellipsis", pad=True)
            yield Text.assemble(line, "  ", (claim, "bold" if span.unit == span.span_id else "dim"), no_wrap=True)


def _render(trace: ExplainedTrace) -> Iterator[Any]:
    rows = [*_tree_rows(trace.spans)]
    numbers = {span.span_id: number for number, (_, span) in enumerate(rows, 1)}
    counts = f"{format_count(len(rows), 'span')}, {format_count(len(trace.units), 'unit')}"
    yield Text(f"trace {trace.trace_id}: {counts}", style="bold")
    if rows:
        yield _SpanTree(rows)
    lines = [] if trace.reason is None else [("no unit", trace.reason)]
    for unit in trace.units:
        lines += _unit_rows(unit, numbers)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in [*lines, *(("to change", change) for change in trace.change)]:
        table.add_row(Text(f"  {label}", style="cyan"), Text(text))
    yield table


def _tree_rows(spans: Sequence[ExplainedSpan]) -> Iterator[tuple[str, ExplainedSpan]]:
    """Yield each span once, in the order of the tree; spans in a cycle of parents are at the top."""
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


def _unit_rows(unit: ExplainedUnit, numbers: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    yield "root", f"{_span_text(unit.span_id, unit.root, numbers)} ({unit.kind}): {unit.why}"
    needed = {field for fields in unit.missing.values() for field in fields} | {"user_input", "response"}
    counts: Counter[str] = Counter()
    for part in unit.parts:
        counts[part.field] += 1
        if counts[part.field] <= _MAX_PARTS:
            yield _LABELS[part.field], _part_text(part, numbers, is_needed=part.field in needed)
    yield from (
        ("", f"{format_count(many - _MAX_PARTS, _LABELS[field])} more")
        for field, many in counts.items()
        if many > _MAX_PARTS
    )
    yield from (("lacks", f"{metric}: {', '.join(fields)}") for metric, fields in unit.missing.items())
    if unit.reason is not None:
        yield ("note", unit.reason) if unit.outcome is None else (unit.outcome, unit.reason)
    yield from (("to change", change) for change in unit.change)


def _part_text(part: ExplainedPart, numbers: Mapping[str, int], *, is_needed: bool) -> str:
    if part.searched is not None:
        return f"none in {part.searched}" if is_needed else "none"
    if part.span_id is None or part.span is None:
        place = "no span contains it unchanged"
    else:
        place = f"from {_span_text(part.span_id, part.span, numbers)}: {part.attribute}"
    if part.text is None:
        return place
    flowing = " ".join(part.text.split())
    return f"{flowing[:_MAX_TEXT]}{'…' if len(flowing) > _MAX_TEXT else ''}\n{place}"


def _span_text(span_id: str, name: str, numbers: Mapping[str, int]) -> str:
    return f"{numbers.get(span_id, '?')} {name}"


# --- unit explainer --------------------------------------------------------------------------------------------------

_BEGINNING_LENGTH: Final = 60
"""Number of characters of a text's first line by which the text is found if no attribute contains all of it."""
_MIN_TEXT: Final = 12
"""Minimum number of characters of a text that is searched inside longer texts."""
_MAX_PATHS: Final = 6
_KEY_OF: Final = {
    "user_input": "capture.extract.user_input (Extract(user_input=…))",
    "response": "capture.extract.response (Extract(response=…))",
    "retrieved_contexts": "capture.extract.retrieved_contexts (in Python Extract(retrieved_contexts=…) or retrieval_tools=[…])",
}
_NOT_WHOLE: Final = (
    "units.max_spans, units.max_bytes and units.max_age bound a unit: raise the one that this trace exceeds"
)
_NOT_CAPTURED: Final = (
    f"capture.content: true (Capture(content=True), or {semconv.CAPTURE_CONTENT_ENV}=true) exports it"
)
_BY_REASON: Final = {
    "the run failed": "capture.score_failed: true scores the model's answer in a failed run",
    "the stream was abandoned": "capture.score_abandoned: true scores the received part of an abandoned stream",
    "the run was cancelled": "a cancelled run has no answer, and no setting changes that",
    "the turn was interrupted": "the run that resumes it is scored: send its spans, too",
    "units.kinds": "units.kinds chooses the kinds of units that are scored: add this one",
    CUT.reason: CUT.hint,
}
"""Prefix of the reason of a unit without a sample → the change that gives the unit a sample."""
_AttributeValue = tuple[SpanData, str, str]
"""A span, the name of one of its attributes, and the attribute's value as JSON."""


class UnitExplainer:
    """Explains units by the extractors, kinds and redactor of a scorer, without a judge. One thread at a time.

    To find the source of a part, its text is searched in the attributes of the unit's spans.

    Args:
        settings: settings of the scorer.
        metrics: metrics whose required fields a unit may lack.
        texts: whether the explained parts have their texts.
    """

    def __init__(self, settings: ScorerSettings, metrics: Sequence[Metric], *, texts: bool) -> None:
        self._builder = JobBuilder(
            dialects_of(settings, Timebox()),
            kinds=settings.units.kinds,
            on_demand=fields_on_demand(metrics),
            images=image_limit_of(settings, redacts=bool(settings.redactor)),
        )
        self._hooks = Hooks(redactor_in(settings.redactor), settings.sample_filter)
        self._metrics = metrics
        self._texts = texts

    def unit(self, unit: Unit, above: str, raw: Mapping[int, SpanData]) -> ExplainedUnit:
        """Return the explanation of a unit in GenAI names.

        Args:
            unit: the unit.
            above: a clause about the span above its topmost span.
            raw: span id → the original span; places in a span that is missing here have GenAI names.
        """
        samples = self._builder.job(SampledUnit(unit, {})).samples
        shown = self._hooks.apply(samples)
        metrics = () if samples.outcome else self._metrics
        missing = {metric.name: absent_fields(metric, samples) for metric in metrics}
        missing = {name: fields for name, fields in missing.items() if fields}
        outcome = shown.outcome if unit.complete else Outcome.INCOMPLETE
        return ExplainedUnit(
            span_id=f"{unit.key.span_id:016x}",
            root="" if unit.root is None else unit.root.name,
            kind=unit.kind,
            why=f"topmost span that can hold a question and an answer: {_describe_above(unit) or above}",
            parts=[*_parts(unit, samples, shown if self._texts else Samples(), raw)],
            outcome=None if outcome is None else outcome.value,
            reason=shown.reason if unit.complete else "spans of the unit are missing",
            missing=missing,
            change=_changes(unit, samples, missing) if unit.complete else [_NOT_WHOLE],
        )


def recent_explained(pipeline: Pipeline, trace_id: str | int) -> list[dict[str, Any]]:
    """Return the decisions on the units of a trace; with an explanation, without content, if the unit's spans are still kept.

    A unit is explained when each metric has its outcome, because before that another thread may be reading its spans.

    Raises:
        ConfigurationError: ``trace_id`` is not a trace id.
    """
    entries = pipeline.units.explain(trace_id)
    by_key = {unit.key: unit for unit in pipeline.units.recent_spans.units()}
    explainer = UnitExplainer(pipeline.settings, [*pipeline.of_units.values()], texts=False)
    translator = SpanNormalizers(pipeline.settings.units.translations)
    for entry in entries:
        unit = by_key.get(UnitKey(int(entry["trace_id"], 16), int(entry["span_id"], 16)))
        if unit is None or any(metric["outcome"] is None for metric in entry["metrics"].values()):
            continue
        names = (None if span.operation is None else translator.normalizer_of_scope(span.scope) for span in unit.spans)
        spans = [ExplainedSpan.of(span, by, span, unit.key) for span, by in zip(unit.spans, names, strict=True)]
        explained = explainer.unit(unit, "the span above it is remote, or no normalizer reads it", {})
        entry |= {**asdict(explained), **entry, "spans": [asdict(span) for span in spans]}
    return entries


def _describe_above(unit: Unit) -> str | None:
    """Return a clause about the span above a root; None if the unit has no information about that span."""
    root, top = unit.root, unit.top
    if root is None or root.parent_id is None:
        return "it never arrived" if root is None else "it has no parent"
    if top is None:
        return None
    if root.start_ns > top.end_ns:
        return f"it began when {top.name} had ended"
    return f"{top.name} above it has neither ({top.operation or 'no operation'})"


def _parts(unit: Unit, samples: Samples, shown: Samples, raw: Mapping[int, SpanData]) -> Iterator[ExplainedPart]:
    """Yield the parts of a sample; ``shown``: samples with the texts that may be shown; ``raw``: span id → original span."""
    held = {span.span_id: [*_find_values(raw.get(span.span_id, span))] for span in unit.spans}
    searched, texts = dict(samples.searched), iter(_list_parts(shown))
    for field, call, text in _list_parts(samples):
        shown_text = next(texts, (field, None, None))[2]
        if text is None:
            yield ExplainedPart(field=field, searched=searched.get(field))
            continue
        order = [value for span in _search_order(unit, field, call) for value in held[span.span_id]]
        place = next(filter(None, (_find_place(wanted, order) for wanted in _search_texts(text, call))), None)
        if place is None:
            yield ExplainedPart(field=field, text=shown_text)
        else:
            span, attribute, _ = place
            yield ExplainedPart(
                field=field, text=shown_text, span_id=f"{span.span_id:016x}", span=span.name, attribute=attribute
            )


def _list_parts(samples: Samples) -> Iterator[tuple[str, ToolCall | None, str | None]]:
    """Yield field, call and text of each part of a sample; an absent field has the text None."""
    single = samples.single_turn
    yield from ((field, None, getattr(single, field, None)) for field in _find_fields(samples))
    contexts = None if single is None else single.retrieved_contexts
    yield from (("retrieved_contexts", None, text) for text in ([None] if contexts is None else contexts))
    for message in [] if samples.multi_turn is None else samples.multi_turn.user_input:
        for call in (message.tool_calls or ()) if isinstance(message, AIMessage) else ():
            yield "tool_calls", call, f"{call.name}({json.dumps(call.args, ensure_ascii=False, default=str)})"


def _find_fields(samples: Samples) -> list[str]:
    """Return the fields that a unit's spans fill; if several texts fit a field, only the fields that the reason names."""
    reason = samples.reason or ""
    if not reason.startswith(SEVERAL_TEXTS) or samples.single_turn is not None:
        return ["user_input", "response"]
    named = reason.removeprefix(SEVERAL_TEXTS).partition(";")[0]
    return [field for field, word in (("user_input", "question"), ("response", "answer")) if word in named]


def _search_texts(text: str, call: ToolCall | None) -> list[str]:
    """Return the texts by which a part is found, the most specific first; for a call its id, longest argument and name.

    Spans have no markers of images, so a text is also searched without them.
    """
    if call is None:
        words = MARKER.sub("", text).strip()
        return [text, words] if words else [text]
    arguments = sorted((value for value in call.args.values() if isinstance(value, str)), key=len)
    return [wanted for wanted in (call.id, *arguments[-1:], call.name) if wanted]


def _search_order(unit: Unit, field: str, call: ToolCall | None) -> list[SpanData]:
    """Return the spans of a unit in the order in which a part is searched, the most likely source first."""
    if call is not None:
        return sorted(unit.spans, key=lambda span: span.attributes.get(semconv.TOOL_NAME) != call.name)
    if field == "retrieved_contexts":
        return sorted(unit.spans, key=lambda span: span.operation != semconv.RETRIEVAL)
    last_first = sorted(unit.spans, key=lambda span: span.end_ns, reverse=True)
    return sorted(last_first if field == "response" else unit.spans, key=lambda span: span is not unit.content_span)


def _find_values(span: SpanData) -> Iterator[_AttributeValue]:
    in_events = ((f"event {event}: {name}", value) for event, held in span.events for name, value in held.items())
    for name, value in chain(raw_attributes(span).items(), in_events):
        if name not in semconv.PLAIN_ATTRIBUTES or name == semconv.TOOL_NAME:
            as_json = f'"{value}"' if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            yield span, name, as_json


def _find_place(text: str, order: Sequence[_AttributeValue]) -> _AttributeValue | None:
    """Return the first attribute with exactly this text; otherwise one that contains the text, or its beginning."""
    forms = _forms(text)
    beginning = _forms(text.lstrip().partition("\n")[0][:_BEGINNING_LENGTH])
    whole = tuple(f"{quote}{form}{quote}" for form in forms for quote in ('"', '\\"', "'"))
    for sought in (whole, forms, beginning):
        if sought is whole or len(sought[0]) >= _MIN_TEXT:
            for held in order:
                if any(form in held[2] for form in sought):
                    return held
    return None


def _forms(text: str) -> tuple[str, ...]:
    """Return a text unchanged, and in the notation of JSON, JSON in JSON and Python."""
    written = [json.dumps(text, ensure_ascii=ascii)[1:-1] for ascii in (False, True)]
    return tuple(dict.fromkeys([text, *written, *(json.dumps(text)[1:-1] for text in written), repr(text)[1:-1]]))


def _changes(unit: Unit, samples: Samples, missing: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the changes that would make a unit scorable; none if it has all fields."""
    reason = "" if samples.outcome is None else samples.reason or ""
    lacks = _lacking_fields(samples, missing)
    known_changes = [change for begin, change in _BY_REASON.items() if reason.startswith(begin)]
    remedies = known_changes or (_content_switches(unit) if lacks else [])
    places = [] if known_changes or (remedies and reason) else lacks
    return [*remedies, *(_field_change(field, unit) for field in places)]


def _lacking_fields(samples: Samples, missing: Mapping[str, Sequence[str]]) -> Sequence[str]:
    lacking = (field for field in _find_fields(samples) if getattr(samples.single_turn, field, None) is None)
    return [*dict.fromkeys(chain(lacking, *missing.values()))]


def _content_switches(unit: Unit) -> list[str]:
    """Return the switches that would record content on the spans of a unit, for the spans without content."""
    if unit.root is not None and unit.root.scope == semconv.CAPTURE_SCOPE:
        has_content = any(semconv.is_content(name) for span in unit.spans for name in span.attributes)
        return [] if has_content else [_NOT_CAPTURED]
    return sorted({span.no_content.hint for span in unit.spans if span.no_content is not None})


def _field_change(field: str, unit: Unit) -> str:
    if field.endswith("_turn"):
        return f"use another metric: this unit has no {field.replace('_', '-')} sample"
    if field not in _KEY_OF:
        return f"the application provides {field}: spanscore.references({field}=…) around the request"
    attributes = {} if unit.content_span is None else unit.content_span.attributes
    sides = (("input", attributes.get(semconv.INPUT_VALUE)), ("output", attributes.get(semconv.OUTPUT_VALUE)))
    paths = [f"{side}.{key}" for side, value in sides if isinstance(value, dict) for key in value][:_MAX_PATHS]
    return f"{_KEY_OF[field]} names its place: {', '.join(paths) or 'input.<key>, output.<key>'}"
