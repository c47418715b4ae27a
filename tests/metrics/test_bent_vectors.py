"""The reference cases, bent: a fault of a judge or a sample leads to an outcome, and to a number only if that is right."""

from __future__ import annotations

import copy
import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from pydantic import ValidationError
from tests.metrics.vectors import cases_of, metrics_with_cases, run

from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Outcome, Score
from spanscore.errors import ConfigurationError
from spanscore.metrics import Faithfulness, NoiseSensitivity, SemanticSimilarity
from spanscore.testing import ScriptedEmbeddings, ScriptedJudge

Case = dict[str, Any]

WRAPPED = {
    "a fence": "```json\n{}\n```",
    "a shouting fence": "```JSON\r\n{}\r\n```",
    "prose with brackets": "Sure! Here is what I found [1] {{see below}}:\n{}\nHope that helps.",
    "prose and a fence": "Thinking {{a:1}} ...\n\n```json\n{}\n```\nDone [2].",
    "a byte order mark": "\ufeff\r\n{}\r\n",
    "thoughts": '<think>It may be {{"verdict": maybe}}</think>\n{}',
}
HOSTILE: list[Any] = [None, [], {}, "", -1, 2, 0.5, "yes", True, "1", [None], "\ud800"]
ROWS = ("verify_", "classify_statements", "classify_reference_sentences", "extract_entities_")
"""Steps with rows in any order."""
PLAIN_TEXT = {"context_relevancy_v0", "answer_accuracy", "context_relevance", "response_groundedness"}
"""Metrics that read an answer without JSON: prose is no wrapping there."""
NAMES = list(metrics_with_cases())

names = pytest.mark.parametrize("name", NAMES)


@cache
def made(name: str) -> list[tuple[Case, Score, ScriptedJudge]]:
    """Return the cases that can be made, with their results."""
    found = []
    for case in cases_of(name):
        judge = ScriptedJudge(case["judge"])
        try:
            found.append((case, run(name, case, judge), judge))
        except (ConfigurationError, ValidationError):
            continue
    return found


def readable(name: str) -> Iterator[tuple[Case, Score, set[str]]]:
    """Yield the cases with only objects of the requested form as answers, with the steps that were asked."""
    for case, score, judge in made(name):
        steps = [call["step"] for call in case["judge"]]
        if name not in PLAIN_TEXT and "fix_output_format" not in steps and all(c["output"] for c in case["judge"]):
            yield case, score, {prompt.step for prompt in judge.calls}


def text_of(call: Case) -> str:
    return call["raw"] if call.get("raw") is not None else json.dumps(call["output"])


def bent(name: str, case: Case, **changes: Any) -> Score:
    """Score a case with changes, and check the rules for every score."""
    score = run(name, {**case, **changes}, ScriptedJudge(changes.get("judge", case["judge"])))

    assert (score.value is not None) == (score.outcome is Outcome.SCORED)
    assert score.value is None or math.isfinite(score.value)
    assert score.value is not None or score.reason
    assert score.outcome is not Outcome.METRIC_ERROR, score.reason
    return score


def instead(case: Case, place: int, *calls: Case) -> list[Case]:
    return [*case["judge"][:place], *calls, *case["judge"][place + 1 :]]


@names
@pytest.mark.parametrize("around", WRAPPED.values(), ids=WRAPPED)
def test_what_stands_around_an_answer_changes_nothing(name: str, around: str) -> None:
    for case, score, _ in readable(name):
        judge = [{**call, "raw": around.format(text_of(call))} for call in case["judge"]]

        assert bent(name, case, judge=judge).value == score.value, case["id"]


@names
def test_an_answer_that_was_repaired_counts_as_if_it_had_come_so(name: str) -> None:
    for case, score, _ in readable(name):
        for place, call in enumerate(case["judge"]):
            unread = {"step": call["step"], "raw": "I am not sure, sorry."}
            repair = {"step": "fix_output_format", "output": {"text": f"```json\n{text_of(call)}\n```"}}

            assert bent(name, case, judge=instead(case, place, unread, repair)).value == score.value, case["id"]


@names
def test_a_repair_that_fails_leaves_no_number_but_that_of_the_other_votes(name: str) -> None:
    for case, _, asked in readable(name):
        for place, call in enumerate(case["judge"]):
            unread = {"step": call["step"], "raw": "I am not sure, sorry."}
            repair = {"step": "fix_output_format", "output": {"text": "still not"}}
            score = bent(name, case, judge=instead(case, place, unread, repair))

            assert score.value is None or score.votes or call["step"] not in asked, case["id"]


@names
def test_an_answer_that_does_not_come_leaves_no_number_but_that_of_the_other_votes(name: str) -> None:
    for case, _, judge in made(name):
        asked = Counter(prompt.step for prompt in judge.calls)
        given = Counter(call["step"] for call in case["judge"])
        for place, call in enumerate(case["judge"]):
            score = bent(name, case, judge=instead(case, place))

            needless = given[call["step"]] > asked[call["step"]]
            assert score.value is None or score.votes or needless, case["id"]


@names
def test_the_order_of_rows_does_not_count(name: str) -> None:
    for case, score, _ in readable(name):
        for place, call in enumerate(case["judge"]):
            if call["step"].startswith(ROWS):
                turned = {key: rows[::-1] for key, rows in call["output"].items()}
                answer = {"step": call["step"], "output": turned}

                assert bent(name, case, judge=instead(case, place, answer)).value == score.value, case["id"]


@names
def test_a_verdict_that_comes_twice_counts_once(name: str) -> None:
    for case, score, _ in readable(name):
        for place, call in enumerate(case["judge"]):
            if call["step"].startswith(("verify_", "extract_entities_")):
                twice = {key: [*rows, *rows] for key, rows in call["output"].items()}
                answer = {"step": call["step"], "output": twice}

                assert bent(name, case, judge=instead(case, place, answer)).value == score.value, case["id"]


@names
def test_no_value_in_an_answer_makes_it_raise(name: str) -> None:
    for case, _, _ in made(name):
        rng = random.Random(case["id"])
        for place, call in enumerate(case["judge"]):
            if call["output"]:
                spot = rng.choice([path for path in _paths(call["output"]) if path])
                output = _with(call["output"], spot, rng.choice(HOSTILE))

                bent(name, case, judge=instead(case, place, {"step": call["step"], "output": output}))


@names
def test_no_field_that_is_none_blank_or_empty_makes_it_raise(name: str) -> None:
    for case, _, _ in made(name):
        for field, given in case["sample"].items():
            for value in (None, [] if isinstance(given, list) else {} if isinstance(given, dict) else " \n"):
                if value is not None or field != "user_input" or isinstance(given, str):
                    bent(name, case, sample={**case["sample"], field: value})


@names
@pytest.mark.parametrize("number", [0.0, math.nan, math.inf, 1e300])
def test_vectors_without_a_length_are_no_similarity(name: str, number: float) -> None:
    for case, score, _ in made(name):
        if case.get("embeddings") and score.explanation != "The answer is noncommittal.":
            vectors = {text: [number] * len(vector) for text, vector in case["embeddings"].items()}

            assert bent(name, case, embeddings=vectors).value is None, case["id"]


def test_a_vector_of_no_numbers_is_not_below_the_threshold() -> None:
    vectors = ScriptedEmbeddings({"one": [math.nan], "other": [1.0]})

    score = SemanticSimilarity(vectors, threshold=0.5).score_sync(SingleTurnSample(response="one", reference="other"))

    assert (score.value, score.outcome) == (None, Outcome.JUDGE_ERROR)


@pytest.mark.parametrize("vector", [[math.nan, 1.0], [math.inf, 1.0], [0.0, 0.0], [1e300, 1.0], [1.0], []])
def test_a_vector_of_a_model_that_compares_with_nothing_is_the_embedders_failure(vector: list[float]) -> None:
    sample = SingleTurnSample(response="one", reference="other")

    for vectors in ({"one": vector, "other": [1.0, 0.5]}, {"one": [1.0, 0.5], "other": vector}):
        score = SemanticSimilarity(ScriptedEmbeddings(vectors)).score_sync(sample)

        assert (score.value, score.outcome, score.error_type) == (None, Outcome.JUDGE_ERROR, "unparseable")
        assert "cannot be compared" in str(score.reason)


def test_a_text_without_a_word_of_the_lexical_embeddings_is_undefined() -> None:
    score = SemanticSimilarity("lexical").score_sync(SingleTurnSample(response="it is", reference="The bridge."))

    assert (score.value, score.outcome) == (None, Outcome.NO_VALUE)


def test_a_judge_without_any_verdict_is_no_judge_that_found_nothing_supported() -> None:
    nothing: dict[str, Any] = {"statements": []}
    steps = ("verify_reference_statements", "verify_response_statements", "verify_response_against_reference")
    said = [
        {"step": f"extract_statements_{side}", "output": {"statements": ["x"]}} for side in ("reference", "response")
    ]
    judge = ScriptedJudge([*said, *({"step": step, "output": nothing} for step in steps)])
    sample = SingleTurnSample(user_input="q", response="r", reference="t", retrieved_contexts=["c"])

    assert NoiseSensitivity(judge).score_sync(sample).outcome is Outcome.JUDGE_ERROR


def test_a_verdict_on_something_else_is_an_error() -> None:
    rows = [{"statement": "other", "verdict": 1}, {"statement": "third", "verdict": 1}]
    judge = ScriptedJudge(
        [
            {"step": "extract_statements", "output": {"statements": ["one"]}},
            {"step": "verify_statements", "output": {"statements": rows}},
        ]
    )
    sample = SingleTurnSample(user_input="q", response="r", retrieved_contexts=["c"])

    assert Faithfulness(judge).score_sync(sample).outcome is Outcome.JUDGE_ERROR


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _paths(item, (*path, key))


def _with(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    changed = copy.deepcopy(value)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = other
    return changed
