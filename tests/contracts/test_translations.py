"""Every normalizer passes the contract, and the contract rejects faulty ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.contracts.found import failing, implementations, never_failing
from tests.samples.normalizers.spans import SILENT, SPANS

from spanscore import semconv
from spanscore.core.span import Attributes, NoContent, SpanData
from spanscore.protocols import SpanNormalizer
from spanscore.testing import SpanNormalizerContract, make_span


@pytest.mark.parametrize("kind", implementations("samples", SpanNormalizer))
class TestTranslations(SpanNormalizerContract):
    @pytest.fixture(autouse=True)
    def _of(self, kind: Any) -> None:
        assert kind in SPANS, f"{kind.__name__} is to have a span in SPANS, and one in SILENT"
        self.make, self.span, self.silent = kind, SPANS[kind], SILENT[kind]  # type: ignore[method-assign]


class Shop:
    """Reads two attributes."""

    name = "shop"
    scopes: tuple[str, ...] = ("shop",)
    signatures = (b"shop.",)

    def accepts(self, span: SpanData) -> bool:
        return "shop.kind" in span.attributes

    def normalize(self, span: SpanData) -> SpanData:
        content = self.content(span)
        nothing = None if content else NoContent("content is not on the spans (shop)", "set SHOP_CONTENT=1")
        attributes = Attributes({semconv.OPERATION_NAME: semconv.CHAT}, (lambda: content) if content else None)
        return replace(span, attributes=attributes, events=(), no_content=nothing)

    def content(self, span: SpanData) -> dict[str, Any]:
        said = span.attributes.get("shop.said")
        return {} if said is None else {semconv.OUTPUT_VALUE: said}


class RemoteScoring(Shop):
    scopes = ("market",)


class Greedy(Shop):
    """Claims all there is."""

    def accepts(self, span: SpanData) -> bool:
        return True


class Leaking(Shop):
    """Keeps the raw attributes."""

    def normalize(self, span: SpanData) -> SpanData:
        return replace(super().normalize(span), attributes={**span.attributes, semconv.OUTPUT_VALUE: "a"})


class Plain(Shop):
    """Puts content under a name that is not a name of content."""

    def normalize(self, span: SpanData) -> SpanData:
        return replace(super().normalize(span), attributes=Attributes({"shop.said": "a"}))


class Mute(Shop):
    """Does not report missing content."""

    def normalize(self, span: SpanData) -> SpanData:
        return replace(super().normalize(span), no_content=None)


class Reborn(Shop):
    """Makes a new span."""

    def normalize(self, span: SpanData) -> SpanData:
        return replace(super().normalize(span), span_id=span.span_id + 1)


class Trusting(Shop):
    """Expects attributes of the usual types."""

    def content(self, span: SpanData) -> dict[str, Any]:
        said = span.attributes.get("shop.said")
        return {} if said is None else {semconv.OUTPUT_VALUE: said.strip()}


class Consuming(Shop):
    """Takes the texts out of the span."""

    def content(self, span: SpanData) -> dict[str, Any]:
        held: Any = span.attributes
        return {semconv.OUTPUT_VALUE: held.pop("shop.said")} if "shop.said" in held else {}


BROKEN = [RemoteScoring, Greedy, Leaking, Plain, Mute, Reborn, Trusting, Consuming]


def suite(kind: Any) -> type[SpanNormalizerContract]:
    class Suite(SpanNormalizerContract):
        def make(self) -> SpanNormalizer:
            made: SpanNormalizer = kind()
            return made

        def span(self) -> SpanData:
            return replace(self.silent(), attributes={"shop.kind": "sale", "shop.said": "a"})

        def silent(self) -> SpanData:
            return replace(make_span(scope="shop"), attributes={"shop.kind": "sale"})

    return Suite


def test_a_translation_of_two_attributes_keeps_the_contract() -> None:
    assert not failing(suite(Shop))


@pytest.mark.parametrize("kind", BROKEN)
def test_a_translation_that_breaks_a_promise_is_turned_away(kind: Callable[[], SpanNormalizer]) -> None:
    assert failing(suite(kind))


def test_every_check_turns_one_of_them_away() -> None:
    assert never_failing(SpanNormalizerContract, map(suite, BROKEN)) == {"test_it_is_a_normalizer"}
    assert "test_it_is_a_normalizer" in failing(suite(dict))
