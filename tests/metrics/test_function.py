"""A function becomes a metric."""

from __future__ import annotations

import threading
from typing import Any, Literal

import pytest

from spanscore.core.sample import MultiTurnSample, SingleTurnSample
from spanscore.core.score import BINARY, Outcome, Scale, Score
from spanscore.errors import ConfigurationError
from spanscore.metrics import metric
from spanscore.protocols import Metric

SAMPLE = SingleTurnSample(response="short")


def test_a_predicate_is_a_pass_or_fail_metric() -> None:
    @metric
    def brief(sample: SingleTurnSample) -> bool:
        return len(sample.response or "") < 10

    score = brief.score_sync(SAMPLE)

    assert isinstance(brief, Metric)
    assert (score.metric, score.value, score.label, score.scale) == ("brief", 1.0, "pass", BINARY)


async def test_an_async_function_runs_on_the_loop() -> None:
    @metric(name="where", requires=["response"])
    async def somewhere(sample: Any) -> float:
        return float(threading.current_thread().name == "spanscore-loop")

    score = await somewhere.score(SAMPLE)

    assert (score.metric, score.value) == ("where", 1.0)


def test_a_plain_function_is_kept_off_the_loop_and_an_async_one_is_not() -> None:
    async def waits(sample: Any) -> float:
        return 0.5

    def computes(sample: Any) -> float:
        return 0.5

    assert (metric(computes).cpu_bound, metric(waits).cpu_bound) == (True, False)
    assert metric(cpu_bound=False)(computes).cpu_bound is False


def test_the_fields_it_requires_are_checked_first() -> None:
    @metric(requires=["reference"])
    def never(sample: Any) -> float:
        raise AssertionError

    assert never.score_sync(SAMPLE).outcome is Outcome.MISSING_FIELD
    assert never.score_sync(MultiTurnSample(user_input=[])).outcome is Outcome.MISSING_FIELD


def test_a_conversation_is_scored_where_it_is_declared() -> None:
    @metric(requires={"multi_turn": ["user_input"]}, scale=Scale(range=None))
    def turns(sample: MultiTurnSample) -> int:
        return len(sample.user_input)

    assert turns.score_sync(MultiTurnSample(user_input=[])).value == 0.0


def test_what_it_raises_is_an_outcome() -> None:
    @metric
    def broken(sample: Any) -> float:
        return 1 / 0

    score = broken.score_sync(SAMPLE)

    assert (score.outcome, score.error_type) == (Outcome.METRIC_ERROR, "ZeroDivisionError")


def test_it_may_return_a_whole_score() -> None:
    @metric
    def whole(sample: Any) -> Score:
        return Score(metric="", version="", outcome=Outcome.SCORED, value=0.5, explanation="because")

    assert whole.score_sync(SAMPLE).explanation == "because"


def test_the_function_itself_can_still_be_called() -> None:
    @metric
    def half(sample: Any) -> float:
        """Always half."""
        return 0.5

    assert half(None) == 0.5
    assert half.__doc__ == "Always half."


def test_its_author_raises_the_version() -> None:
    def half(sample: Any) -> float:
        return 0.5

    assert metric(half).version.startswith("1+")
    assert metric(version="2")(half).version.startswith("2+")


def test_a_function_returns_one_of_its_categories() -> None:
    @metric(categories=["greeting", "other"], bad=["other"])
    def opening(sample: SingleTurnSample) -> str:
        return "greeting"

    score = opening.score_sync(SAMPLE)

    assert (score.value, score.quality, score.label, score.kind) == ("greeting", 1.0, "pass", "categorical")


def test_a_text_that_is_no_category_is_an_error_that_does_not_quote_it() -> None:
    score = metric(name="words", categories=["a", "b"])(lambda sample: "secret").score_sync(SAMPLE)

    assert (score.outcome, score.error_type) == (Outcome.METRIC_ERROR, "no_category")
    assert (score.reason or "").endswith("gave none of its categories: a, b")


def returns_text(sample: Any) -> str:
    return "a"


def returns_text_or_none(sample: Any) -> str | None:
    return None


@pytest.mark.parametrize("function", [returns_text, returns_text_or_none])
def test_a_function_that_returns_a_text_needs_categories(function: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"returns a text: write @metric\(categories="):
        metric(function)


@pytest.mark.parametrize("returned", [Literal[0, 1], "Literal[0, 1]", Literal[0, 1] | None, "Literal[0, 1] | None"])
def test_a_function_that_returns_one_of_several_numbers_needs_no_categories(returned: Any) -> None:
    def grade(sample: Any) -> Any:
        return 1

    grade.__annotations__["return"] = returned

    assert metric(grade).score_sync(SAMPLE).value == 1.0


@pytest.mark.parametrize("returned", [Literal["a"], "Literal['a']", Literal["a"] | None, "Literal['a'] | None"])
def test_a_function_that_returns_one_of_several_words_needs_categories(returned: Any) -> None:
    def word(sample: Any) -> Any:
        return "a"

    word.__annotations__["return"] = returned

    with pytest.raises(ConfigurationError, match="returns a text"):
        metric(word)


def test_a_text_of_an_unannotated_function_says_what_is_possible() -> None:
    score = metric(lambda sample: "a", name="words").score_sync(SAMPLE)

    assert (score.outcome, score.error_type) == (Outcome.METRIC_ERROR, "no_number")
    assert "a metric that gives a text needs categories=" in (score.reason or "")


def test_a_scale_and_categories_are_not_given_together() -> None:
    with pytest.raises(ConfigurationError, match="give one of them"):
        metric(categories=["a", "b"], scale=BINARY)(returns_text)


def takes_nothing() -> bool:
    return True


def takes_two(sample: Any, judge: Any) -> bool:
    return True


@pytest.mark.parametrize("function", [takes_nothing, takes_two])
def test_a_function_that_cannot_be_called_with_a_sample_is_refused(function: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"write def {function.__name__}\(sample\)"):
        metric(function)
