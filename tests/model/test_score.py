"""What a unit's span says of its scores, and of those that it has not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.sinks.builders import failed, score, undefined

from spanscore import semconv
from spanscore.errors import ConfigurationError
from spanscore.model.score import JudgeCall, Outcome, Usage, refuse_taken_name, unit_attributes

FAMILIES = (semconv.SCORE, semconv.LABEL, semconv.PROBABILITY, semconv.METRIC_OUTCOME, semconv.LEFT_OUT)


def unscored(attributes: dict[str, object]) -> dict[str, object]:
    prefix = "spanscore.outcome."
    return {name.removeprefix(prefix): value for name, value in attributes.items() if name.startswith(prefix)}


def test_each_chosen_metric_without_a_score_says_why() -> None:
    scores = [
        score("style"),
        failed("judged"),
        undefined("nothing_to_verify"),
        failed("faithfulness", Outcome.MISSING_FIELD, error_type=None, missing=("retrieved_contexts",)),
        failed("correct", Outcome.MISSING_FIELD, error_type=None, missing=("reference", "rubrics")),
    ]

    assert unscored(unit_attributes(scores, {"lost": Outcome.METRIC_ERROR})) == {
        "judged": "judge_error",
        "nothing_to_verify": "no_value",
        "faithfulness": "missing_field retrieved_contexts",
        "correct": "missing_field reference,rubrics",
        "lost": "metric_error",
    }


def test_a_metric_that_was_not_chosen_has_nothing_to_say() -> None:
    attributes = unit_attributes([score("style")], {"dear": Outcome.NOT_SAMPLED})

    assert unscored(attributes) == {}
    assert attributes["spanscore.status"] == "scored"


@pytest.mark.parametrize("family", FAMILIES)
def test_no_metric_takes_the_place_of_another_attribute(family: str) -> None:
    constants = [value for value in vars(semconv).values() if isinstance(value, str)]
    taken = [name.removeprefix(family) for name in constants if name.startswith(family) and name != family]

    for name in taken:
        with pytest.raises(ConfigurationError, match="is an attribute that every score has already"):
            refuse_taken_name(name)


def test_score_id_and_revision_are_taken() -> None:
    for name in ("id", "revision"):
        with pytest.raises(ConfigurationError, match=f"cannot be called {name!r}: spanscore.score.{name}"):
            refuse_taken_name(name)
    refuse_taken_name("faithfulness")


def test_a_unit_that_another_process_scores_says_so_and_nothing_else():
    attributes = unit_attributes([], {"dear": Outcome.DELEGATED, "cheap": Outcome.NOT_SAMPLED})

    assert attributes[semconv.STATUS] == "delegated"
    assert unscored(attributes) == {}


@pytest.mark.parametrize(("shares", "said"), [((0.6, 0.2, 0.7), 0.7), ((0.5,), None), ((0.0,), None), ((), None)])
def test_a_question_of_which_less_than_half_was_shown_is_on_the_units_span(
    shares: tuple[float, ...], said: float
) -> None:
    usage = Usage(tuple(JudgeCall(step="s", input_truncated_ratio=share) for share in shares))

    attributes = unit_attributes([replace(score("style"), usage=usage)])

    assert attributes.get("spanscore.left_out.style") == said
