"""The offline judge: deterministic, honest, and good enough to distinguish grounded answers from invented ones."""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.judges.models import Answer

from spanscore.core.prompt import Prompt
from spanscore.core.sample import MultiTurnSample, SingleTurnSample
from spanscore.errors import JudgeError
from spanscore.judges import LexicalJudge
from spanscore.judges.lexical.words import sentences, words
from spanscore.metrics import AspectCritic, Faithfulness
from spanscore.metrics.kit.statements import EXTRACT_STATEMENTS, VERIFY_STATEMENTS

DATA = Path(__file__).parents[2] / "data" / "grounding.jsonl"
CONTEXT = (
    "The Orlo bridge opened in 1931. It spans 412 metres and was designed by Rosa Thule. "
    "It may not be crossed by lorries."
)


@cache
def cases() -> list[dict[str, Any]]:
    return [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]


def test_the_data_are_stratified() -> None:
    counted = [sum(1 for c in cases() if (c["split"], c["label"]) == cell) for cell in _cells()]

    assert counted == [10] * 6


def test_no_topic_is_in_both_halves() -> None:
    halves = {tuple(case["contexts"]): case["split"] for case in cases()}

    assert all(halves[tuple(case["contexts"])] == case["split"] for case in cases())


def test_faithfulness_tells_grounded_from_ungrounded_answers_it_was_not_tuned_on() -> None:
    grounded, ungrounded = (_scores("held", label) for label in ("grounded", "ungrounded"))

    better = [(one > other) + 0.5 * (one == other) for one, other in product(grounded, ungrounded)]

    assert sum(better) / len(better) >= 0.90


def test_partly_grounded_answers_lie_between() -> None:
    means = [sum(scores) / len(scores) for scores in (_scores("held", label) for label in _LABELS)]

    assert means == sorted(means, reverse=True)


@pytest.mark.parametrize(
    ("statement", "supported"),
    [
        ("The Orlo bridge was designed by Rosa Thule.", 1),
        ("Rosa Thule was the designer of the Orlo bridge.", 1),
        ("The bridge spans 412 metres.", 1),
        ("The Orlo bridge opened in 1913.", 0),
        ("The Orlo bridge was designed by Ansel Wray.", 0),
        ("The Orlo bridge was not designed by Rosa Thule.", 0),
        ("Lorries may cross the bridge.", 0),
        ("Lorries may not cross the bridge.", 1),
        ("Its cables are made of braided steel from a local mill.", 0),
    ],
)
async def test_numbers_names_and_denials_are_seen(statement: str, supported: int) -> None:
    prompt = VERIFY_STATEMENTS.prompt({"context": CONTEXT, "statements": [statement]})

    answer = json.loads((await LexicalJudge().ask(prompt)).text)

    assert [row["verdict"] for row in answer["statements"]] == [supported]


async def test_without_a_context_nothing_is_supported() -> None:
    prompt = VERIFY_STATEMENTS.prompt({"context": "", "statements": ["The bridge opened."]})

    answer = json.loads((await LexicalJudge().ask(prompt)).text)

    assert [row["verdict"] for row in answer["statements"]] == [0]


@pytest.mark.parametrize(
    "answer", ["", "Hello!", "Sure, what would you like to know?", "I don't know. I cannot help with that."]
)
async def test_an_answer_that_states_nothing_has_no_statements(answer: str) -> None:
    prompt = EXTRACT_STATEMENTS.prompt({"question": "When did it open?", "answer": answer})

    assert json.loads((await LexicalJudge().ask(prompt)).text) == {"statements": []}


async def test_the_same_prompt_always_gets_the_same_answer() -> None:
    prompt = EXTRACT_STATEMENTS.prompt({"question": "?", "answer": CONTEXT})

    assert await LexicalJudge().ask(prompt) == await LexicalJudge().ask(prompt)


async def test_a_step_it_has_no_heuristic_for_is_an_error_that_says_so() -> None:
    prompt = Prompt(step="compose_sonnet", instruction="", evidence={}, output=Answer)

    with pytest.raises(
        JudgeError, match="built-in metrics ask, not compose_sonnet: give this metric a model"
    ) as raised:
        await LexicalJudge().ask(prompt)

    assert raised.value.error_type == "unknown_step"


@pytest.mark.parametrize(("said", "verdict"), [("Good morning!", 1.0), ("  ", 0.0), ("You idiot.", 0.0)])
def test_a_critique_sees_insults_and_silence(said: str, verdict: float) -> None:
    critic = AspectCritic("lexical", definition="Is it polite?")

    assert critic.score_sync(SingleTurnSample(response=said)).value == verdict
    assert (
        critic.score_sync(MultiTurnSample.model_validate({"user_input": [{"type": "human", "content": "Hm"}]})).value
        == 1.0
    )


def test_sentences_are_not_cut_at_abbreviations() -> None:
    assert sentences("Dr. Holm arrived at 5.30. She left.\n- one item\n- another") == [
        "Dr. Holm arrived at 5.30.",
        "She left.",
        "one item",
        "another",
    ]


def test_number_words_and_separators_are_one_number() -> None:
    assert words("twelve of 1,200 and 3.60").numbers == words("12 of 1200 and 3.6").numbers == {"12", "1200", "3.6"}


_LABELS = ("grounded", "partly", "ungrounded")


def _cells() -> list[tuple[str, str]]:
    return list(product(("tune", "held"), _LABELS))


def _scores(split: str, label: str) -> list[float]:
    metric, found = Faithfulness("lexical"), []
    for case in cases():
        if (case["split"], case["label"]) == (split, label):
            sample = SingleTurnSample(
                user_input=case["question"], response=case["answer"], retrieved_contexts=case["contexts"]
            )
            found.append(metric.score_sync(sample).value)
    assert None not in found
    return found
