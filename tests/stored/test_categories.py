"""Categories in data sets, in files of rows and in collected cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from spanscore.config.collect import Collect, condition_of
from spanscore.core.score import Scale, categorical
from spanscore.errors import ConfigurationError
from spanscore.metrics import Category
from spanscore.outputs.collected_cases import FoundScore
from spanscore.stored.evaluation import evaluate_sync
from spanscore.stored.evaluation_result import read_rows
from spanscore.wiring.outputs import check_conditions

INTENT = {"refund": "The user wants money back.", "timetable": "The user asks when a ferry leaves.", "other": "Else."}
QUESTIONS = ["I want my money back.", "When does the ferry leave?", "When does it leave?", "Hello."]
SAMPLES = [{"user_input": question, "response": "Yes."} for question in QUESTIONS]


def intent(name: str = "intent", bad: tuple[str, ...] = ()) -> Category:
    return Category("lexical", name=name, categories=INTENT, fields=["user_input"], bad=bad)


def test_the_summary_has_the_share_of_each_category_and_no_mean() -> None:
    result = evaluate_sync(SAMPLES, [intent()])

    found = result.summary("intent")
    assert (found.mean, found.quality, found.passed, found.scored) == (None, None, None, 4)
    assert {word: share[0] for word, share in found.shares.items()} == {"refund": 0.25, "timetable": 0.5, "other": 0.25}
    assert "intent: timetable 50 %" in str(result)


def test_bad_categories_give_a_pass_rate() -> None:
    found = evaluate_sync(SAMPLES, [intent(bad=("refund",))]).summary("intent")

    assert (found.quality, found.passed) == (0.75, 0.75)


@pytest.mark.parametrize("ending", [".jsonl", ".csv"])
def test_a_file_of_rows_keeps_the_words_and_the_numbers(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"rows{ending}"
    result = evaluate_sync(SAMPLES, [intent(bad=("refund",))])

    result.to_csv(file) if ending == ".csv" else result.to_jsonl(file)

    assert [*read_rows(file)] == list(result.rows)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [("intent=refund", True), ("intent!=refund", False), ("intent=fail", True), ("intent<0.5", False)],
)
def test_a_condition_compares_the_word_or_the_label(condition: str, holds: bool) -> None:
    scores = {"intent": FoundScore("refund", "fail", None, 1.0)}

    assert condition_of(condition).holds(scores) is holds


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("intent=refnd", "write intent=refund, intent=timetable, intent=other"),
        ("intent<0.5", "which no score of it can meet"),
        ("intent=fail", "which no score of it can meet"),
    ],
)
def test_a_condition_that_no_score_can_meet_is_refused(condition: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        check_conditions(Collect(when=[condition], out="cases.jsonl").conditions, {"intent": intent()}, "collect.when")


def test_a_condition_on_a_category_or_on_the_label_of_a_bad_one_is_accepted() -> None:
    for condition in ("mood=refund", "mood=fail", "mood!=other"):
        check_conditions(
            Collect(when=[condition], out="cases.jsonl").conditions,
            {"mood": intent("mood", ("refund",))},
            "collect.when",
        )


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        ({"kind": "categorical"}, "categories has 0 words; give 2 to 50"),
        ({"kind": "nominal"}, "kind is 'nominal'; it is one of binary, ordinal, continuous, categorical"),
        ({"kind": "categorical", "categories": "ab"}, "categories is 'ab'; it is a list of words"),
        ({"categories": ("a", "b")}, "write kind='categorical'"),
    ],
)
def test_a_scale_without_words_or_of_an_unknown_kind_is_refused(scale: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Scale(**scale)  # type: ignore[arg-type]  # wrong on purpose


def test_a_categorical_scale_has_no_range() -> None:
    assert categorical("intent", ["a", "b"]).range is None
