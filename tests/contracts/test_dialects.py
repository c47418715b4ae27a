"""Every extractor passes the contract, and the contract rejects faulty ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from tests.contracts.found import failing, implementations, never_failing
from tests.samples.builders import chat, retriever, root, tool, unit

from spanscore import semconv
from spanscore.core.sample import Samples, SingleTurnSample
from spanscore.core.score import Outcome
from spanscore.core.span import SpanData, Unit
from spanscore.protocols import SampleExtractor
from spanscore.samples.genai import GenAIExtractor
from spanscore.testing import SampleExtractorContract, make_span, make_unit


def captured() -> Unit:
    """A unit of our own callback, with one run of each kind."""
    asked, found = [HumanMessage("When?")], [{"page_content": "It opened in 1931.", "metadata": {"id": "a"}}]
    return unit(
        root({"messages": asked}, {"messages": [*asked, AIMessage("In 1931.")]}, {"reference": "1931"}),
        retriever("when", found),
        tool("look_up", {"q": "bridge"}, "1931", call_id="1"),
        chat(asked, "In 1931."),
    )


UNITS: dict[type, Callable[[], Unit]] = {GenAIExtractor: captured}
"""A unit that each extractor reads; an extractor without a unit has no test."""


@pytest.mark.parametrize("kind", implementations("samples", SampleExtractor))
class TestDialects(SampleExtractorContract):
    @pytest.fixture(autouse=True)
    def _of(self, kind: Any) -> None:
        assert kind in UNITS, f"{kind.__name__} is to have a unit in UNITS"
        self.make, self.unit = kind, UNITS[kind]  # type: ignore[method-assign]


class Plain:
    """Reads two attributes."""

    def accepts(self, span: SpanData) -> bool:
        return span.scope == "shop" and span.operation != semconv.EVALUATION

    def extract(self, unit: Unit) -> Samples:
        asked, said = self.texts(unit)
        if not isinstance(asked, str) or not isinstance(said, str):
            return Samples(outcome=Outcome.NO_SAMPLE, reason="question or answer is no text")
        return Samples(single_turn=SingleTurnSample(user_input=self.clean(asked), response=self.clean(said)))

    def texts(self, unit: Unit) -> tuple[Any, Any]:
        held = {} if unit.root is None else unit.root.attributes
        return held.get("shop.asked"), held.get("shop.said")

    def clean(self, text: str) -> str:
        return text.encode(errors="replace").decode()


class Rootless(Plain):
    """Takes it for granted that there is a root."""

    def texts(self, unit: Unit) -> tuple[Any, Any]:
        held: Any = unit.root and unit.root.attributes
        return held["shop.asked"], held["shop.said"]


class Trusting(Plain):
    """Expects attributes of the usual types."""

    def texts(self, unit: Unit) -> tuple[Any, Any]:
        return tuple(text and text.strip() for text in super().texts(unit))  # type: ignore[return-value]


class Careless(Plain):
    def clean(self, text: str) -> str:
        return text


class Greedy(Plain):
    """Claims all there is, evaluations too."""

    def accepts(self, span: SpanData) -> bool:
        return True


class Silent(Plain):
    """Gives no reason."""

    def texts(self, unit: Unit) -> tuple[Any, Any]:
        return None, None


class Consuming(Plain):
    """Takes the texts out of the span."""

    def texts(self, unit: Unit) -> tuple[Any, Any]:
        held: Any = {} if unit.root is None else unit.root.attributes
        return held.pop("shop.asked", None), held.pop("shop.said", None)


class Counting(Plain):
    """Remembers."""

    made = 0

    def clean(self, text: str) -> str:
        Counting.made += 1
        return f"{self.made} {super().clean(text)}"


BROKEN = [Rootless, Trusting, Careless, Greedy, Silent, Consuming, Counting]


def suite(kind: Any) -> type[SampleExtractorContract]:
    class Suite(SampleExtractorContract):
        def make(self) -> SampleExtractor:
            made: SampleExtractor = kind()
            return made

        def unit(self) -> Unit:
            return make_unit(make_span("sell", scope="shop", attributes={"shop.asked": "q", "shop.said": "a"}))

    return Suite


def test_a_dialect_of_two_attributes_keeps_the_contract() -> None:
    assert not failing(suite(Plain))


@pytest.mark.parametrize("kind", BROKEN)
def test_a_dialect_that_breaks_a_promise_is_turned_away(kind: Any) -> None:
    assert failing(suite(kind))


def test_every_check_turns_one_of_them_away() -> None:
    assert never_failing(SampleExtractorContract, map(suite, BROKEN)) == {"test_it_is_an_extractor"}
    assert "test_it_is_an_extractor" in failing(suite(dict))
