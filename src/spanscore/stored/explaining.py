"""Explains how stored traces are read, without a judge, for ``spanscore explain`` and ``spanscore.explain``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from spanscore import semconv
from spanscore.capture.scopes import Role
from spanscore.config.tree import ScorerSettings
from spanscore.core.codecs.otlp import json_line
from spanscore.core.codecs.otlp_request import UnreadableRequest, WireSpan, span_data_of
from spanscore.core.log import type_name
from spanscore.core.span import NoContent, SpanData
from spanscore.errors import SampleError
from spanscore.pipeline.assembly import RootRole
from spanscore.protocols import Metric
from spanscore.samples.normalizers.building import raw_attributes
from spanscore.samples.normalizers.genai import conventional
from spanscore.samples.normalizers.logfire import Logfire, is_streamed_request
from spanscore.stored.traces import GatheredTraces, StoredTrace, add_line
from spanscore.stored.unit_reading import StoredUnit, UnitReader, reading_settings
from spanscore.wiring.explained import ExplainedSpan, ExplainedTrace, ExplainedUnit, UnitExplainer
from spanscore.wiring.from_config import override

_MOST_NAMES: Final = 5
_NO_TEXT: Final = (
    "trace the calls of the model with an instrumentation (OpenTelemetry GenAI, OpenInference, OpenLLMetry …), and have it"
    f" write content ({semconv.CAPTURE_CONTENT_ENV}=SPAN_ONLY)"
)

_STREAMED: Final = (
    "request of a streamed call, ignored on purpose: Logfire writes the call with its answer on a log span, without a parent in"
    " a trace of its own"
)
_NO_ROOT: Final = (
    "send all spans of the trace: a sampler or a filter of the writer or the Collector has dropped one; in spanscore serve,"
    " units.orphan_wait is the time for which it may arrive later"
)


def explain(
    spans: Iterable[str | bytes | ReadableSpan | WireSpan | StoredTrace],
    *,
    config: str | Path | None = None,
    texts: bool = True,
    **options: Any,
) -> list[ExplainedTrace]:
    """Return an explanation of each trace among the spans: the tree, the units, and how to get missing parts scored.

    No judge is called, and no scorer is made. ``print`` an explanation to see its tree.

    Args:
        spans: lines of OTLP-JSON (of spans, or of logs with content), ended spans of OpenTelemetry's SDK, received spans
            (``WireSpan``), or the traces of a ``spanscore replay`` store; mixed, in any order. A received span that cannot be
            decoded is left out.
        config: configuration file; None = the defaults. Its metrics are not read, so only the command reports missing fields.
        texts: whether question, answer, contexts and calls include their redacted texts; otherwise only their places.
        options: arguments of ``OnlineScorer`` for reading spans: ``extract``, ``units``, ``capture``, ``redactor`` and
            ``sample_filter``. They replace the keys of ``config``. Other arguments have no effect.

    Returns:
        One explanation per trace, in the order of the traces' first spans; above 64 MB of spans in another order.

    Raises:
        ConfigurationError: the configuration or an option is wrong.
        SampleError: a line is not OTLP-JSON, or a span is not valid.
    """
    chosen = override(reading_settings(None if config is None else Path(config)), options)
    explainer = TraceExplainer(chosen, texts=texts)
    with GatheredTraces() as gathered:
        for number, span in enumerate(spans, 1):
            _gather(gathered, span, f"item {number}")
        return [explainer.trace(trace) for trace in gathered.traces()]


def _gather(gathered: GatheredTraces, span: str | bytes | ReadableSpan | WireSpan | StoredTrace, name: str) -> None:
    if isinstance(span, WireSpan):
        gathered.add([span])
    elif isinstance(span, StoredTrace):
        gathered.add(span.spans)
    else:
        line = json_line([span]) if isinstance(span, ReadableSpan) else span
        encoded = line.encode("utf-8", "replace") if isinstance(line, str) else line
        for unread in add_line(gathered, name, encoded) if encoded.strip() else ():
            raise SampleError(f"{unread.name}: {unread.because}")


@dataclass(frozen=True, slots=True)
class _ReadSpan:
    """A span of a trace, and how a scorer would read it."""

    wire: WireSpan
    data: SpanData
    role: Role  # of its scope
    claimed: bool  # it may belong to a unit
    by: str | None  # name of the normalizer that reads it
    raised: str  # error of a normalizer on it; empty = no error

    @property
    def note(self) -> str:
        """Reason for which the span is not read; empty if it is read, or has nothing to read."""
        if self.role is Role.OURS:
            return "of spanscore"
        if self.role is Role.IGNORED:
            return "ignored"
        return self.raised or ("unknown writer" if self.by is None and _remedy_for_names(self.data) else "")


class TraceExplainer:
    """Explains traces, one after the other. Use it from one thread. ``metrics`` and ``texts`` are those of ``UnitExplainer``.

    Attributes:
        reader: makes the units.
    """

    def __init__(self, settings: ScorerSettings, metrics: Sequence[Metric] = (), *, texts: bool) -> None:
        self.reader = UnitReader(settings)
        self._unit_explainer = UnitExplainer(settings, metrics, texts=texts)
        self._ignored = tuple(settings.units.ignore_scopes)

    def trace(self, trace: StoredTrace) -> ExplainedTrace:
        """Return a whole trace with its explanation."""
        seen = {
            entry.data.span_id: entry
            for entry in sorted(self._read_spans(trace), key=lambda entry: entry.data.start_ns)
        }
        stored = self.reader.units(trace)
        members = {span.span_id: (span, entry.unit.key) for entry in stored for span in entry.unit.spans}
        spans = list[ExplainedSpan]()
        for span_id, entry in seen.items():
            member, root = members.get(span_id, (None, None))
            spans.append(ExplainedSpan.of(entry.data, entry.by, member, root, entry.note))
        reason, change = (None, _suggest_common_root(stored, seen)) if stored else self._without_unit([*seen.values()])
        return ExplainedTrace(
            trace_id=trace.trace_id.hex(),
            spans=spans,
            units=[self._unit(entry, seen) for entry in stored],
            reason=reason,
            change=[*change],
        )

    def _read_spans(self, trace: StoredTrace) -> Iterator[_ReadSpan]:
        """Yield the spans of a trace that can be decoded, each once."""
        claims = self.reader.claims
        for wire in {span.span_id: span for span in reversed(trace.spans)}.values():  # the first of two duplicates
            try:
                data = span_data_of(wire)
            except UnreadableRequest:
                continue
            role, claimed = claims.of(wire.origin).role, claims.claims(wire)
            by, raised = None, ""
            if claimed and role is not Role.OURS:
                try:
                    by = self.reader.translator.normalizer_of(data)
                except Exception as error:  # noqa: BLE001  (a user's normalizer; the error's text may quote content)
                    raised = f"raised {type_name(error)}"
            yield _ReadSpan(wire, data, role, claimed, by, raised)

    def _unit(self, stored: StoredUnit, seen: Mapping[int, _ReadSpan]) -> ExplainedUnit:
        unit = stored.unit
        raw = {span.span_id: seen[span.span_id].data for span in unit.spans if span.span_id in seen}
        root = seen.get(unit.key.span_id)
        return self._unit_explainer.unit(unit, "" if root is None else _describe_parent(root, seen), raw)

    def _without_unit(self, seen: Sequence[_ReadSpan]) -> tuple[str, list[str]]:
        """Return the reasons why a trace has no unit, and the changes that would give it a unit."""
        others = [entry for entry in seen if entry.role is not Role.OURS]
        if not others:
            reason = "it contains only spans of spanscore: evaluations, human labels or judge calls"
            return reason, ["explain the file that has the spans of the application"]
        reasons = [*self._why_none(others)]
        if not reasons:
            names = _list_names({entry.data.name for entry in others})
            return f"no span can hold a question and an answer: {names}", [_NO_TEXT]
        return "; ".join(reason for reason, _ in reasons), [change for _, changes in reasons for change in changes]

    def _why_none(self, seen: Sequence[_ReadSpan]) -> Iterator[tuple[str, list[str]]]:
        """Yield each reason why spans have no unit, with the changes that would remove it."""
        ignored = {entry.data.scope for entry in seen if entry.role is Role.IGNORED}
        if ignored:
            yield f"ignored scopes: {_list_names(ignored)}", [*self._changes_for_ignored(ignored)]
        others = (entry for entry in seen if entry.by is None and entry.role is not Role.IGNORED)
        unknown = {entry.data.scope: remedy for entry in others if (remedy := _remedy_for_names(entry.data))}
        if unknown:
            changes = [f"{scope}: {remedy}" for scope, remedy in sorted(unknown.items())]
            yield f"unknown writer: {_list_names(unknown)}", changes
        yield from _why_streamed(seen)
        if top := self._find_orphan(seen):
            yield f"the root is missing: a span is missing above {top.data.name}", [_NO_ROOT]

    def _find_orphan(self, seen: Sequence[_ReadSpan]) -> _ReadSpan | None:
        here = {entry.wire.span_id for entry in seen}
        tops = (entry for entry in seen if entry.by and entry.wire.parent_id and entry.wire.parent_id not in here)
        return next((entry for entry in tops if self.reader.claims.role(entry.wire) is not RootRole.NEVER), None)

    def _changes_for_ignored(self, scopes: Iterable[str]) -> Iterator[str]:
        superseded = self.reader.claims.superseded
        for scope in sorted(scopes):
            if scope.startswith(self._ignored):
                yield f"units.ignore_scopes excludes {scope}: remove the entry with which this scope begins"
            else:
                read = superseded.get(scope, semconv.CAPTURE_SCOPE)
                yield f"add {read} to units.ignore_scopes: {scope} is then read instead"


def _why_streamed(seen: Iterable[_ReadSpan]) -> Iterator[tuple[str, list[str]]]:
    spans = (entry.data for entry in seen if entry.by == Logfire.name)
    if names := {span.name for span in spans if is_streamed_request(raw_attributes(span))}:
        yield f"{_STREAMED}: {_list_names(names)}", []


def _remedy_for_names(span: SpanData) -> str:
    """Return the remedy for texts under names that no normalizer reads; empty if the span has no such texts."""
    lacking = conventional(span, no_content=lambda scope: NoContent("no content", "")).no_content
    return "" if lacking is None else lacking.hint


def _describe_parent(root: _ReadSpan, seen: Mapping[int, _ReadSpan]) -> str:
    if root.wire.parent_is_remote:
        return "its parent is in another process"
    above = seen.get(root.data.parent_id or 0)
    if above is None:
        return "its parent is not among these spans"
    return "it began after the end of the run above it" if above.by else "no span above it is read"


def _suggest_common_root(stored: Sequence[StoredUnit], seen: Mapping[int, _ReadSpan]) -> Iterator[str]:
    """Yield the entry of ``units.scopes`` that would join several units: the scope of an unread span above all of them."""
    tops = {_top_of(entry.unit.key.span_id, seen) for entry in stored}
    top = seen.get(tops.pop()) if len(stored) > 1 and len(tops) == 1 else None
    if top is not None and top.role is Role.UNKNOWN and not top.claimed:
        yield f"units.scopes: [{top.data.scope}] makes one unit of these {len(stored)}, with {top.data.name} as its root"


def _top_of(span_id: int, seen: Mapping[int, _ReadSpan]) -> int:
    """Return the topmost span above a span, in the same process."""
    for _ in seen:  # no endless loop if the parents form a cycle
        entry = seen.get(span_id)
        above = None if entry is None or entry.wire.parent_is_remote else seen.get(entry.data.parent_id or 0)
        if above is None:
            break
        span_id = above.data.span_id
    return span_id


def _list_names(names: Iterable[str]) -> str:
    shown = sorted(name or "no scope" for name in names)
    return ", ".join(shown[:_MOST_NAMES]) + (" …" if len(shown) > _MOST_NAMES else "")
