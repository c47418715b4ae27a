"""A new version of an instrumentation is compared by the samples that its recordings give."""

from __future__ import annotations

from dataclasses import replace

from tests.traces.newest import changes

from spanscore.core.sample import Samples, SingleTurnSample
from spanscore.core.score import Outcome

OLD = Samples(single_turn=SingleTurnSample(user_input="q", response="a", retrieved_contexts=["c"]))


def test_each_unit_whose_sample_changed_is_named_with_the_fields() -> None:
    new = replace(OLD, single_turn=SingleTurnSample(user_input="q", response="b"))

    assert changes([OLD, new], [OLD, OLD]) == ["unit 2: response and retrieved_contexts"]


def test_a_unit_without_a_sample_or_without_a_unit_to_compare_is_a_change() -> None:
    assert changes([Samples(outcome=Outcome.NO_SAMPLE)], [OLD]) == ["unit 1: no_sample, not a sample"]
    assert changes([], [OLD]) == ["0 units, not 1"]


def test_the_same_samples_are_no_change() -> None:
    assert changes([OLD], [OLD]) == []
