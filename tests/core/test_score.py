"""Attributes of a unit's span for its scores, and for missing scores."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, replace

import pytest
from tests.outputs.builders import failed, score, undefined, unit

from spanscore import semconv
from spanscore.core.score import (
    JudgeCall,
    Outcome,
    Score,
    Usage,
    change_score,
    check_metric_name,
    id_of,
    unit_attributes,
)
from spanscore.errors import ConfigurationError

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
        with pytest.raises(ConfigurationError, match="is already an attribute of every score"):
            check_metric_name(name)


def test_score_id_and_revision_are_taken() -> None:
    for name in ("id", "revision"):
        with pytest.raises(ConfigurationError, match=f"cannot be called {name!r}: spanscore.score.{name}"):
            check_metric_name(name)
    check_metric_name("faithfulness")


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


def test_a_signed_score_has_the_id_of_what_it_says() -> None:
    before, of = score("style"), unit()
    after = change_score(before, of, metric="tone", revision=2)

    assert after == replace(before, metric="tone", revision=2, id=after.id)
    assert after.id == id_of(replace(before, metric="tone", revision=2), of)
    assert after.id != change_score(before, of).id


@dataclass(frozen=True)
class Marked(Score):
    """A score as a user may extend it: with a field, and a dictionary for it."""

    mark: str = "none"


def test_a_subclass_of_a_score_keeps_its_fields_when_it_is_signed() -> None:
    marked = Marked(metric="style", version="1", outcome=Outcome.SCORED, value=1.0, mark="red")
    after = change_score(marked, unit(), metric="tone")

    assert (type(after), after.mark, after.metric) == (Marked, "red", "tone")


def test_a_score_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        score("style").reason = "late"  # type: ignore[misc]
