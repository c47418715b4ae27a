"""The size of a unit: roughly the bytes of content it keeps alive, never computed by running its objects."""

from functools import partial

import pytest

from spanscore.core.sample import AIMessage, HumanMessage, MultiTurnSample, Samples, SingleTurnSample
from spanscore.core.span import Attributes, SpanData, Unit, UnitKey
from spanscore.pipeline.sizes import size_bytes_of

MB = 1_000_000
TEXT = "x" * MB


def unit(*held):
    """Return a unit of one span for each thing, which is rendered from it."""
    return of(*(Attributes({}, partial(str, one)) for one in held))


def of(*attributes):
    spans = (
        SpanData(trace_id=1, span_id=n, parent_id=None, name="span", start_ns=0, end_ns=1, attributes=one)
        for n, one in enumerate(attributes)
    )
    return Unit(UnitKey(1, 0), tuple(spans))


@pytest.mark.parametrize(
    ("held", "texts"),
    [
        ([TEXT], 1),
        ([{"docs": [TEXT, (1.0, b"y" * MB)]}], 2),
        ([[TEXT, TEXT], {"again": TEXT}], 1),
        ([["x" * MB for _ in range(3)]], 3),
        ([None, 7, object(), {}], 0),
    ],
)
def test_texts_weigh_their_length_and_each_once(held, texts):
    assert size_bytes_of(unit(*held)) == pytest.approx(texts * MB, abs=1_000)


def test_many_small_things_weigh_something():
    assert size_bytes_of(unit([[] for _ in range(1_000)])) > 50_000


def test_a_large_container_is_looked_at_for_a_while_only():
    assert size_bytes_of(unit([TEXT] + [[1]] * 100_000)) > 1.6 * MB


def test_what_is_rendered_weighs_too():
    attributes = Attributes({}, lambda: {"gen_ai.output.messages": [TEXT]})
    assert attributes["gen_ai.output.messages"]

    assert size_bytes_of(of(attributes)) == pytest.approx(MB, abs=1_000)


@pytest.mark.parametrize(
    "samples",
    [
        Samples(single_turn=SingleTurnSample(user_input="?", response="!", retrieved_contexts=[TEXT])),
        Samples(multi_turn=MultiTurnSample(user_input=[HumanMessage(content=TEXT), AIMessage(content="!")])),
    ],
)
def test_a_submitted_sample_weighs_in_its_units_place(samples):
    assert size_bytes_of(unit(), samples) == pytest.approx(MB, abs=2_000)


def test_nothing_of_the_application_runs():
    class Trap(list):
        def __getattribute__(self, name):
            raise AssertionError(name)

        def __iter__(self):
            raise AssertionError

        __len__ = __getitem__ = __iter__

    assert size_bytes_of(unit([Trap([TEXT]), TEXT])) == pytest.approx(MB, abs=1_000)


def test_attributes_that_came_as_they_are_weigh_as_much():
    assert size_bytes_of(of({"gen_ai.input.messages": [{"content": TEXT}]})) == pytest.approx(MB, abs=1_000)
