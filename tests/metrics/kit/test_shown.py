"""Fields of a critic: the judge sees the named fields, and contexts only if they are named."""

from __future__ import annotations

import warnings
from enum import Enum
from typing import Any

import pytest

from spanscore.core.sample import AIMessage, HumanMessage, MultiTurnSample, SingleTurnSample
from spanscore.core.score import Outcome
from spanscore.errors import ConfigurationError
from spanscore.metrics import AspectCritic, Rubrics, SimpleCriteria
from spanscore.metrics.catalog.cost import cost_of, samples_with
from spanscore.metrics.kit.graded import ContextsHiddenWarning
from spanscore.testing import ScriptedJudge

WHOLE = SingleTurnSample(
    user_input="When?",
    response="In 1931.",
    retrieved_contexts=["It opened in 1931."],
    reference="1931",
    reference_contexts=["1931"],
)
TALK = MultiTurnSample(user_input=[HumanMessage(content="When?"), AIMessage(content="1931.")], reference="1931")
KINDS = {
    "critique": (AspectCritic, {"definition": "Polite."}),
    "score_criteria": (SimpleCriteria, {"definition": "Score 0 to 9."}),
    "score_rubric": (Rubrics, {}),
}


class MetricType(Enum):
    """Kinds of samples as ragas names them."""

    SINGLE_TURN = "single_turn"
    MULTI_TURN = "multi_turn"


def shown(step: str, sample: Any, **params: Any) -> Any:
    """Return the evidence that the judge was shown; without a question, the outcome."""
    kind, own = KINDS[step]
    judge = ScriptedJudge([{"step": step, "output": {"verdict": 1, "score": 1}}])
    score = kind(judge, **{**own, **params}).score_sync(sample)
    return dict(judge.calls[0].evidence) if judge.calls else score.outcome


@pytest.mark.parametrize("step", KINDS)
def test_no_contexts_are_shown_unless_they_are_named(step: str) -> None:
    assert shown(step, WHOLE) == {"user_input": "When?", "response": "In 1931.", "reference": "1931"}
    assert shown(step, WHOLE, fields=["retrieved_contexts"]) == {"retrieved_contexts": ["It opened in 1931."]}
    assert shown(step, SingleTurnSample(retrieved_contexts=["c"])) is Outcome.MISSING_FIELD


@pytest.mark.parametrize("step", KINDS)
def test_a_conversation_is_shown_with_its_reference(step: str) -> None:
    assert shown(step, TALK) == {"user_input": TALK.messages(), "reference": "1931"}
    assert shown(step, TALK, fields=["user_input"]) == {"user_input": TALK.messages()}


@pytest.mark.parametrize("step", KINDS)
def test_a_missing_field_is_missing_unless_it_is_optional(step: str) -> None:
    bare = SingleTurnSample(user_input="When?", response="In 1931.")

    assert shown(step, bare, fields=["response"]) == {"response": "In 1931."}
    assert shown(step, bare, fields=["response", "reference"]) is Outcome.MISSING_FIELD
    assert shown(step, bare, fields=["response", "reference:optional"]) == {"response": "In 1931."}
    assert shown(step, bare, fields=["reference:optional"]) is Outcome.MISSING_FIELD


def test_a_conversation_is_judged_only_if_it_can_have_the_needed_fields() -> None:
    assert AspectCritic("lexical", definition="x", fields=["response"]).requires == {"single_turn": ("response",)}
    both = AspectCritic("lexical", definition="x", fields=["user_input", "response:optional"])
    assert both.requires == {"single_turn": ("user_input",), "multi_turn": ("user_input",)}
    assert shown("critique", TALK, fields=["response"]) is Outcome.MISSING_FIELD


def test_ragas_name_and_form_are_read() -> None:
    columns = {MetricType.SINGLE_TURN: {"response", "reference:optional"}}

    assert shown("critique", WHOLE, required_columns=columns) == {"response": "In 1931.", "reference": "1931"}
    assert shown("critique", WHOLE, required_columns={}) == shown("critique", WHOLE)


def test_fields_are_part_of_the_version_and_their_order_is_not() -> None:
    versions = [
        AspectCritic("lexical", definition="x", fields=fields).version
        for fields in (None, ["response"], ["response", "user_input"], ["user_input", "response"])
    ]
    assert versions[2] == versions[3]
    assert len(set(versions)) == 3


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"fields": "response"}, "in a list"),
        ({"fields": []}, "in a list"),
        ({"fields": [3]}, "fields has 3"),
        ({"fields": ["reponse"]}, "did you mean 'response'"),
        ({"fields": ["response:needed"]}, "A field is one of"),
        ({"fields": {}}, "no kind of sample has them all"),
        ({"fields": {"multi_turn": ["response"]}}, "a multi_turn sample has no response"),
        ({"fields": {"single_turn": ["response"], "multi_turn": ["response"]}}, "a multi_turn sample has no response"),
        ({"fields": {"turns": ["response"]}}, "a turns sample has no response"),
        ({"fields": ["response"], "required_columns": {"single_turn": ["response"]}}, "two names"),
    ],
)
def test_fields_that_cannot_be_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        AspectCritic("lexical", definition="x", **params)


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        (AspectCritic, {"definition": "Every claim is backed by the retrieved context."}),
        (AspectCritic, {"definition": "Does it contradict the DOCUMENTS?"}),
        (AspectCritic, {"definition": "Polite.", "applies_when": "the sources are dated"}),
        (AspectCritic, {"definition": "Polite.", "prompts": {"critique": {"instruction": "Use the passages."}}}),
        (SimpleCriteria, {"definition": "Score 1 to 5 by how well it cites."}),
        (Rubrics, {"rubrics": {"score1_description": "Beside the sources.", "score2_description": "Fine."}}),
    ],
)
def test_a_definition_that_speaks_of_contexts_is_warned_about(kind: Any, params: dict[str, Any]) -> None:
    with pytest.warns(ContextsHiddenWarning, match="fields:"):
        kind("lexical", **params)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kind("lexical", **params, fields=["response", "retrieved_contexts"])


@pytest.mark.parametrize(
    "definition", ["Polite.", "It has no source code.", "Nothing is open-source or out of context."]
)
def test_other_definitions_are_not(definition: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AspectCritic("lexical", definition=definition)


def test_the_cost_is_that_of_the_fields_that_are_sent() -> None:
    long = samples_with(4_000)
    plain = cost_of("aspect_critic", long, definition="Polite.")
    with_contexts = cost_of("aspect_critic", long, definition="Polite.", fields=["response", "retrieved_contexts"])

    assert plain.input_tokens < 300
    assert with_contexts.input_tokens > 4_000
