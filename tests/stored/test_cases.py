"""Stored units as cases: the selection, each question once, and a draw that represents all traffic."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import fmean

import pytest

from spanscore.config.collect import condition_of
from spanscore.core.sample import SingleTurnSample
from spanscore.core.span import UnitKey
from spanscore.errors import ConfigurationError
from spanscore.outputs.collected_cases import CollectedCase, FoundScore
from spanscore.stored.unit_reading import draw_cases, fold_cases


def scores(value=None, label=None):
    return {"grounded": FoundScore(value, label, "1", 0.5)}


def case(number, question="When?", probability=1.0):
    return CollectedCase(
        UnitKey(number, number),
        SingleTurnSample(user_input=question),
        {"any": FoundScore(None, None, None, probability)},
    )


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("grounded<0.5", True),
        ("grounded <= 0.4", True),
        ("grounded>0.4", False),
        ("grounded=0.4", True),
        ("grounded != 0.4", False),
        ("grounded=fail", True),
        ("grounded!=pass", True),
        ("other<0.5", False),
    ],
)
def test_a_condition_is_of_a_value_or_a_label(text, holds):
    assert condition_of(text).holds(scores(0.4, "fail")) is holds


@pytest.mark.parametrize("text", ["grounded<1", "grounded=fail", "grounded!=pass"])
def test_what_has_no_score_is_no_case_of_any_condition(text):
    assert not condition_of(text).holds(scores())


@pytest.mark.parametrize("text", ["", "grounded", "grounded<", "grounded<fail", "grounded=a word", "0.5<grounded"])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(ConfigurationError, match="no condition"):
        condition_of(text)


def test_equal_questions_are_one_case_that_says_how_many_they_were():
    found = fold_cases([case(1, "Where is it?"), case(2, "When?"), case(3, " where  is it?")])

    assert [(one.key.trace_id, one.times) for one in found] == [(1, 2), (2, 1)]


def test_a_draw_is_the_same_with_the_same_seed_and_in_the_order_of_the_units():
    cases = [case(number) for number in range(1, 101)]
    first, again, other = (draw_cases(cases, 10, seed) for seed in (1, 1, 2))

    assert first == again != other
    assert [one.key.trace_id for one in first] == sorted(one.key.trace_id for one in first)


def test_a_draw_stands_for_all_traffic_where_some_is_scored_more_often():
    """A rule scores 100 % of one tenth of the traffic, the base rate 10 % of the rest: of 190 cases 100 are of that tenth."""
    ruled = [case(number, probability=1.0) for number in range(100)]
    rest = [case(number, probability=0.1) for number in range(100, 190)]

    times = Counter(one.key.trace_id < 100 for seed in range(300) for one in draw_cases([*ruled, *rest], 5, seed))

    assert times[True] / times.total() == pytest.approx(0.1, abs=0.03)


def scored_case(number, probability):
    of_unit = case(number, probability=probability)
    return replace(of_unit, scores={**of_unit.scores, "grounded": FoundScore(1.0, "pass", "1", probability / 2)})


def test_weights_by_the_probabilities_of_drawn_cases_add_up_to_all_traffic():
    """The units stand for 100 · 1 + 90 · 10 units of traffic, and a metric at half the rate for twice as many scores."""
    cases = [scored_case(number, 1.0 if number < 100 else 0.1) for number in range(190)]
    draws = [draw_cases(cases, 20, seed) for seed in range(400)]
    traffic = [sum(1.0 / drawn.probability for drawn in draw) for draw in draws]
    scored = [sum(1.0 / drawn.scores["grounded"].probability for drawn in draw) for draw in draws]

    assert fmean(traffic) == pytest.approx(1_000, rel=0.03)
    assert fmean(scored) == pytest.approx(2_000, rel=0.03)


def test_fewer_units_than_asked_for_are_all_drawn_with_their_own_probabilities():
    cases = [scored_case(1, 0.5), case(2)]

    assert draw_cases(cases, 10, 0) == draw_cases(cases, 2, 0) == cases


def test_an_unknown_probability_stays_unknown_after_a_draw():
    (drawn,) = draw_cases([case(number, probability=None) for number in (1, 2)], 1, 0)

    assert (drawn.probability, drawn.scores["any"].probability) == (None, None)
