"""UnitReader: a stored trace → its units, and what is known of their scores. By the rules of spans that come over the wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spanscore import semconv
from spanscore.capture.otlp.claims import WireClaims
from spanscore.capture.otlp.spans import units_of
from spanscore.capture.otlp.streams import bounds_of
from spanscore.capture.scopes import Role
from spanscore.config.reading import read_settings
from spanscore.config.tree import ScorerSettings
from spanscore.core.codecs.otlp_request import UnreadableRequest, WireSpan, span_data_of
from spanscore.core.span import SpanData, Unit
from spanscore.pipeline.trace_index import ClosedUnit
from spanscore.pipeline.traces import TraceTable
from spanscore.replay.evaluated import EvaluatedUnit, EvaluatedUnits
from spanscore.samples.normalizers.registry import Translator
from spanscore.sources.stored import StoredTrace

__all__ = ["NO_CONTENT", "StoredUnit", "UnitReader", "reading_settings"]

NO_CONTENT = "none with content: capture.content was off; set Capture(content=True), in a file capture: {content: true}"
"""Of the units of a file, and what to do so that the next ones have some."""


@dataclass(frozen=True, slots=True)
class StoredUnit:
    """A unit as a store has it.

    Attributes:
        unit: its root says what was decided.
        dialect: that reads its root; empty where none does.
        evaluated: what is known of its scores.
        spans: its spans, still the bytes that came.
    """

    unit: Unit
    dialect: str
    evaluated: EvaluatedUnit
    spans: Sequence[WireSpan]

    @property
    def has_content(self) -> bool:
        """Whether a span of it holds a prompt, an answer or a document."""
        return any(semconv.is_content(name) for span in self.unit.spans for name in span.attributes)


class UnitReader:
    """Reads one trace after the other. One thread.

    Args:
        settings: which spans are read, and how.
        known: of scores, beside what the traces themselves say.

    Attributes:
        translator: counts what each dialect has read.
        claims: knows which spans may be of a unit.
        mended: what was not as it should be → spans.
        orphans: spans that may be of a unit whose root is not there.
    """

    def __init__(self, settings: ScorerSettings, known: EvaluatedUnits | None = None) -> None:
        self.translator = Translator(settings.units.translations)
        self.mended: Counter[str] = Counter()
        self.orphans = 0
        self.claims = WireClaims(self.translator, listed=settings.units.scopes, ignored=settings.units.ignore_scopes)
        self._known = known or EvaluatedUnits()
        bounds = bounds_of(settings.units)
        self._table = TraceTable(bounds, follows=lambda root: True, stands_alone=self.claims.stands_alone)
        self._over_ns = bounds.orphan_wait_ns + bounds.quiet_ns + 1

    def units(self, trace: StoredTrace) -> list[StoredUnit]:
        """Return the units of a whole trace, in the order of their starts."""
        known, table = EvaluatedUnits(), self._table
        for span in trace.spans:
            if self.claims.of(span.origin).role is Role.OURS:
                known.read(_read(span))
            else:
                table.add(span, claimed=self.claims.claims(span), now_ns=0)
        closed = table.due(self._over_ns)
        self.orphans += table.orphans
        table.reset()
        read = [stored for one in closed for stored in self._units(one, known)]
        return sorted(read, key=lambda one: one.unit.spans[0].start_ns)

    def _units(self, closed: ClosedUnit, in_trace: EvaluatedUnits) -> Iterator[StoredUnit]:
        if self.claims.is_none(closed):
            return
        came = {int.from_bytes(span.span_id): span for span in closed.spans}
        for unit in units_of(closed, self.translator, self.mended):
            if not unit.spans:
                continue
            evaluated = _joined(in_trace.of(unit.key), self._known.of(unit.key))
            spans = [replace(one, decided=evaluated.decided) if one is unit.root else one for one in unit.spans]
            members = [came[one.span_id] for one in unit.spans if one.span_id in came]
            yield StoredUnit(replace(unit, spans=tuple(spans)), self._dialect(unit, came), evaluated, members)

    def _dialect(self, unit: Unit, came: Mapping[int, WireSpan]) -> str:
        """Return the translation of the first span with content, the speaker before others; empty if none reads the unit."""
        order = [span for span in (unit.content_span, *unit.spans) if span is not None and span.operation is not None]
        named = next((span for span in order if span.no_content is None), unit.root)
        raw = None if named is None else came.get(named.span_id)
        read = [] if raw is None else _read(raw)
        return next((name for span in read if (name := self.translator.reads(span)) is not None), "")


def reading_settings(config: Path | None) -> ScorerSettings:
    """Return the settings of a configuration file; the defaults if there is no file.

    Raises:
        ConfigurationError: the configuration is wrong.
    """
    return ScorerSettings() if config is None else read_settings(config).settings


def _joined(first: EvaluatedUnit | None, second: EvaluatedUnit | None) -> EvaluatedUnit:
    joined = EvaluatedUnit()
    for one in (second, first):
        if one is not None:
            joined.decided |= one.decided
            joined.found |= one.found
            for metric, scores in one.scores.items():
                joined.scores[metric] = joined.scores.get(metric, {}) | scores
    return joined


def _read(span: WireSpan) -> list[SpanData]:
    try:
        return [span_data_of(span)]
    except UnreadableRequest:
        return []
