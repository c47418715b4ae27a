"""SampleExtractorContract: what every dialect promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

from spanscore import semconv
from spanscore.core.sample import Samples
from spanscore.core.span import SpanData, Unit
from spanscore.protocols import SampleExtractor
from spanscore.testing.builders import make_span

__all__ = ["ODD", "SampleExtractorContract"]

ODD: Final[tuple[Any, ...]] = (
    None,
    "",
    "\ud83d\x00",
    '[{"role": "user", "par',
    "[" * 5_000,
    -1,
    float("nan"),
    b"\xff",
    (),
    [None, 7, "text", {}],
    [{"role": None, "parts": [None, {"type": 7, "content": []}], "content": {"text": 1}}],
    {},
    {"messages": [[], {"type": "human"}], "": None},
    object(),
)
"""What stands in an attribute where a writer has a fault, or a processor on the way cut it."""


class SampleExtractorContract:
    """Subclass it in a test and say how your dialect is made, and what a unit that it reads looks like."""

    def make(self) -> SampleExtractor:
        """Return a dialect."""
        raise NotImplementedError

    def unit(self) -> Unit:
        """Return a complete unit with a question and an answer, as the writer of such spans makes it."""
        raise NotImplementedError

    def test_it_is_a_dialect(self) -> None:
        """It has ``accepts`` and ``extract``."""
        assert isinstance(self.make(), SampleExtractor)

    def test_it_reads_its_own(self) -> None:
        """It claims the unit's root, and finds a sample in the unit."""
        dialect, unit = self.make(), self.unit()

        made = dialect.extract(unit)

        assert unit.root is not None, "unit() is to have a root"
        assert dialect.accepts(unit.root) is True, "it does not claim the root of its own unit"
        assert made.single_turn or made.multi_turn, f"it finds no sample in its own unit: {made.reason}"

    def test_it_leaves_evaluations_alone(self) -> None:
        """An evaluation is never evaluated."""
        spans = [
            make_span(semconv.EVALUATION, scope=semconv.SCOPE, attributes={semconv.EVALUATION_NAME: "faithfulness"}),
            make_span(semconv.EVALUATION, scope="another evaluator"),
            make_span(semconv.CHAT, scope=semconv.JUDGE_SCOPE, attributes={semconv.EVALUATION_NAME: "faithfulness"}),
        ]

        claimed = [span.scope for span in spans if self.make().accepts(span)]
        assert claimed == [], "it claims evaluation spans, or what judges were asked"

    def test_the_same_unit_makes_the_same_samples(self) -> None:
        """On whatever thread, how often soever: it reads spans and nothing else."""
        dialect, unit = self.make(), self.unit()

        with ThreadPoolExecutor(1) as thread:
            elsewhere = thread.submit(self.make().extract, unit).result()

        assert dialect.extract(unit) == dialect.extract(unit) == elsewhere

    def test_a_unit_stays_as_it_was(self) -> None:
        """Its spans are not the dialect's to change."""
        unit = self.unit()
        before = deepcopy([dict(span.attributes) for span in unit.spans])

        self.make().extract(unit)

        assert [dict(span.attributes) for span in unit.spans] == before, "samples changed the unit's attributes"

    def test_no_payload_makes_it_raise(self) -> None:
        """Whatever an attribute holds, there is a sample, or an outcome with a reason."""
        dialect = self.make()

        for unit in _spoilt(self.unit()):
            for span in unit.spans:
                dialect.accepts(span)
            _check(dialect.extract(unit))

    def test_a_unit_that_lost_spans_is_read_as_well(self) -> None:
        """Its root too may never arrive."""
        dialect, unit = self.make(), self.unit()

        for lost in unit.spans:
            left = tuple(span for span in unit.spans if span is not lost)
            _check(dialect.extract(replace(unit, spans=left, complete=False)))


def _check(made: Samples) -> None:
    there = made.single_turn is not None or made.multi_turn is not None
    assert there == (made.outcome is None), "there is either a sample or an outcome"
    assert there or made.reason, "an outcome is to have a reason"
    for sample in (made.single_turn, made.multi_turn):
        assert sample is None or sample.model_dump_json().encode()


def _spoilt(unit: Unit) -> Iterator[Unit]:
    """Yield the unit with one attribute odd, with all of one span odd, and with spans that are in error and endless."""
    for odd in ODD:
        for span in unit.spans:
            yield from (_with(unit, span, {**span.attributes, name: odd}) for name in span.attributes)
            yield _with(unit, span, dict.fromkeys(span.attributes, odd))
    yield replace(unit, spans=tuple(replace(span, status="error", end_ns=0) for span in unit.spans))
    yield replace(unit, spans=tuple(replace(span, parent_id=span.span_id) for span in unit.spans))


def _with(unit: Unit, changed: SpanData, attributes: Mapping[str, Any]) -> Unit:
    spans = (replace(span, attributes=attributes) if span is changed else span for span in unit.spans)
    return replace(unit, spans=tuple(spans))
