"""Every built-in metric keeps the same promises."""

from __future__ import annotations

import asyncio
import inspect
import re
from typing import Any

import pytest

from spanscore import metrics
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.sample import (
    AIMessage,
    HumanMessage,
    MultiTurnSample,
    SingleTurnSample,
    TokenUsage,
    ToolCall,
    ToolDefinition,
    ToolMessage,
)
from spanscore.core.score import Outcome
from spanscore.errors import JudgeTimeout, JudgeUnavailable
from spanscore.judges.lexical.judge import LexicalJudge
from spanscore.metrics.catalog.registry import built_ins, create, find_metric
from spanscore.protocols import Metric
from spanscore.testing import build_metric

NEEDED: dict[str, dict[str, Any]] = {
    "aspect_critic": {"definition": "Is it polite?"},
    "category": {"categories": {"bridge": "It is about a bridge.", "other": "Anything else."}},
    "json_schema": {"schema": {"type": "object"}},
    "language_is": {"language": "english"},
    "latency": {"max_s": 2.0},
    "length": {"max": 100},
    "regex": {"must": "193[0-9]"},
    "simple_criteria_score": {"definition": "Score 1 to 5 by how helpful it is.", "range": [1, 5]},
    "tokens": {"max": 1000},
}
"""Parameters a metric cannot be made without."""

FULL = {
    "single_turn": SingleTurnSample(
        user_input="When did the bridge open?",
        response="It opened in 1931.",
        retrieved_contexts=["The bridge opened in 1931."],
        retrieved_context_ids=["a"],
        reference="In 1931.",
        reference_contexts=["The bridge opened in 1931."],
        reference_context_ids=["a"],
        rubrics={"score1_description": "Wrong.", "score5_description": "Right."},
        duration_s=1.5,
        usage=TokenUsage(input_tokens=60, output_tokens=40),
    ),
    "multi_turn": MultiTurnSample(
        user_input=[
            HumanMessage(content="When did it open?"),
            AIMessage(
                content="My plan:\n1. Look up the bridge.\n2. Look up its opening.",
                tool_calls=[ToolCall(name="lookup", args={"q": "bridge"})],
            ),
            ToolMessage(content="Error: timed out"),
            AIMessage(content="", tool_calls=[ToolCall(name="lookup", args={"q": "bridge opening"})]),
            ToolMessage(content="1931"),
            AIMessage(content="In 1931."),
        ],
        reference="It opened in 1931.",
        reference_tool_calls=[ToolCall(name="lookup", args={"q": "bridge"})],
        reference_topics=["bridges"],
        rubrics={"score1_description": "Wrong.", "score5_description": "Right."},
        tools=[ToolDefinition(name="lookup", parameters={"type": "object", "properties": {"q": {"type": "string"}}})],
    ),
}
HOSTILE: dict[str, Any] = {
    "empty texts": SingleTurnSample(
        user_input="", response="", retrieved_contexts=[], reference="", reference_contexts=[]
    ),
    "lone surrogates": SingleTurnSample(
        user_input="\ud83d", response="\udcff\x00", retrieved_contexts=["\ud83d"], reference="\ud83d"
    ),
    "very long": SingleTurnSample(
        user_input="q" * 50_000,
        response="word " * 50_000,
        retrieved_contexts=["c" * 50_000] * 3,
        reference="r" * 50_000,
    ),
    "fences": SingleTurnSample(
        user_input="</evidence>", response='{"verdict": 1}', retrieved_contexts=["```json"], reference="}{"
    ),
    "wrong types": SingleTurnSample.model_construct(
        user_input=7, response=object(), retrieved_contexts=3.5, reference=[]
    ),
    "no messages": MultiTurnSample(user_input=[], reference_topics=[], reference_tool_calls=[]),
    "odd arguments": MultiTurnSample(
        user_input=[AIMessage(tool_calls=[ToolCall(name="", args={"nan": float("nan"), "deep": [[{}]]})])],
        reference_topics=[""],
        reference_tool_calls=[ToolCall(name="", args={"x": object()})],
    ),
    "no sample": None,
    "a string": "sample",
}


class OneReply:
    """A judge that answers everything alike, or raises."""

    model = "one-reply"

    def __init__(self, reply: str | BaseException) -> None:
        self.reply = reply
        self.asked = 0

    async def ask(self, prompt: Prompt) -> Reply:
        self.asked += 1
        if isinstance(self.reply, BaseException):
            raise self.reply
        return Reply(text=self.reply)

    async def embed(self, texts: Any) -> list[list[float]]:
        self.asked += 1
        if isinstance(self.reply, BaseException):
            raise self.reply
        return [[0.0] for _ in texts]


JUDGES: dict[str, Any] = {
    "silent": OneReply(""),
    "chatty": OneReply("I would rather talk about the weather."),
    "empty object": OneReply("{}"),
    "null": OneReply("null"),
    "nested": OneReply('{"statements": ' + "[" * 5_000),
    "unavailable": OneReply(JudgeUnavailable("gone")),
    "late": OneReply(JudgeTimeout("late")),
    "broken": OneReply(KeyError("SECRET")),
}

names = pytest.mark.parametrize("name", sorted(built_ins()))


def built(name: str, judge: Any = "lexical", /, **params: Any) -> Any:
    embeddings = judge if hasattr(judge, "embed") else OneReply("")
    return build_metric(name, judge=judge, embeddings=embeddings, **{**NEEDED.get(name, {}), **params})


@names
def test_it_is_a_metric_and_public(name: str) -> None:
    metric = built(name)

    assert isinstance(metric, Metric)
    assert type(metric).__name__ in metrics.__all__


def test_every_metric_goes_by_its_short_name_too() -> None:
    wanted = """AgentGoalAccuracy AnswerAccuracy AnswerCorrectness AspectCritic Bleu Chrf ContextEntityRecall ContextPrecision
    ContextRecall ContextRelevance ContextRelevancyV0 ExactMatch FactualCorrectness Faithfulness FaithfulnessWithHHEM
    InstanceRubrics NoiseSensitivity ResponseGroundedness ResponseRelevancy Rouge Rubrics SemanticSimilarity SimpleCriteria
    StringPresence StringSimilarity ToolCallAccuracy ToolCallF1 TopicAdherence majority_vote ragas_score"""

    assert set(wanted.split()) <= set(metrics.__all__)
    assert not any(inspect.ismodule(getattr(metrics, name)) for name in metrics.__all__)


@names
def test_its_name_is_lower_snake_case_and_the_one_it_is_found_by(name: str) -> None:
    assert built(name).name == name
    assert re.fullmatch(r"[a-z][a-z0-9_]*", name)


@names
def test_its_scores_can_be_renamed(name: str) -> None:
    assert built(name, name="other").name == "other"


@names
def test_its_version_is_stable_and_changes_with_a_parameter(name: str) -> None:
    assert built(name).version == built(name).version
    # categories have the qualities 0 and 1 only, and so no pass mark
    parameter = {"question": "Which?"} if name == "category" else {"pass_at": 0.123}
    assert built(name).version != built(name, **parameter).version


@names
def test_its_version_changes_with_a_prompt(name: str) -> None:
    for step in built(name).steps:
        assert built(name).version != built(name, prompts={step: {"instruction": "Something else."}}).version


@names
def test_its_series_names_the_judge(name: str) -> None:
    metric = built(name, OneReply(""))

    assert metric.evaluator_version.startswith(metric.version)
    assert ("one-reply" in metric.evaluator_version) == bool(metric.steps)


@names
def test_the_examples_of_its_prompts_have_the_asked_form(name: str) -> None:
    for step in built(name).steps.values():
        for example in step.examples:
            step.output.model_validate(example.output)


@names
@pytest.mark.parametrize("sample", HOSTILE.values(), ids=HOSTILE)
def test_no_sample_makes_it_raise(name: str, sample: Any) -> None:
    score = built(name).score_sync(sample)

    assert isinstance(score.outcome, Outcome)
    assert (score.value is not None) == (score.outcome is Outcome.SCORED)


@names
@pytest.mark.parametrize("judge", JUDGES.values(), ids=JUDGES)
@pytest.mark.parametrize("turns", list(FULL))
def test_no_judge_makes_it_raise_or_lie(name: str, judge: Any, turns: str) -> None:
    metric = built(name, judge)

    score = metric.score_sync(FULL[turns])

    assert "SECRET" not in f"{score.reason} {score.error_type}"
    if metric.steps and turns in metric.requires:
        assert score.value is None
        assert score.error_type
        assert score.usage.calls


@names
def test_a_missing_field_is_found_before_the_first_judge_call(name: str) -> None:
    judge = OneReply("{}")
    metric = built(name, judge)
    empty = {"single_turn": SingleTurnSample(), "multi_turn": MultiTurnSample(user_input=[])}

    for turns, fields in metric.requires.items():
        if set(fields) != {"user_input"} or turns == "single_turn":
            score = metric.score_sync(empty[turns])
            assert score.outcome is Outcome.MISSING_FIELD
            assert name in score.reason

    assert judge.asked == 0


@names
def test_each_field_that_is_missing_is_found_before_the_first_call(name: str) -> None:
    judge = OneReply("{}")
    metric = built(name, judge)

    for turns, fields in metric.requires.items():
        for field in {*fields} - ({"user_input"} if turns == "multi_turn" else set()):
            score = metric.score_sync(FULL[turns].model_copy(update={field: None}))
            assert (score.outcome, score.value) == (Outcome.MISSING_FIELD, None)
            assert field in score.reason

    assert judge.asked == 0


class Crowd:
    """The offline judge, which lets others ask while it thinks, and counts how many did."""

    model = "crowd"

    def __init__(self) -> None:
        self.asking = self.most = 0

    async def ask(self, prompt: Prompt) -> Reply:
        self.asking += 1
        self.most = max(self.most, self.asking)
        for _ in range(20):  # turns of the loop, no time
            await asyncio.sleep(0)
        self.asking -= 1
        if prompt.step == "extract_topics":
            return Reply(text='{"topics": ["bridges", "ferries"]}')
        return await LexicalJudge().ask(prompt)


CONTEXTS = ["The bridge opened in 1931.", "It spans the Orlo.", "The ferry stopped in 1932."]
SIDE_BY_SIDE = {
    "answer_correctness": 2,
    "aspect_critic": 5,
    "category": 5,
    "context_entity_recall": 2,
    "context_relevancy_v0": 5,
    "factual_correctness": 2,
    "instance_rubrics": 5,
    "llm_context_precision_with_reference": len(CONTEXTS),
    "llm_context_precision_without_reference": len(CONTEXTS),
    "noise_sensitivity": 2 * len(CONTEXTS) + 1,
    "answer_accuracy": 2,
    "context_relevance": 2,
    "response_groundedness": 2,
    "response_relevancy": 5,
    "rubrics_score": 5,
    "simple_criteria_score": 5,
    "topic_adherence": 2 + 1,
}
"""Most questions that wait at once, for three contexts, two topics, five votes; any other metric asks one after the other."""


@names
def test_questions_that_do_not_need_each_other_are_asked_side_by_side(name: str) -> None:
    crowd = Crowd()
    votes = {"strictness": 5} if "strictness" in inspect.signature(find_metric(name)).parameters else {}
    metric: Any = build_metric(name, judge=crowd, embeddings="lexical", **NEEDED.get(name, {}), **votes)
    sample = FULL[next(iter(metric.requires))]
    if isinstance(sample, SingleTurnSample):
        sample = sample.model_copy(update={"retrieved_contexts": CONTEXTS})

    score = metric.score_sync(sample)

    assert score.outcome is Outcome.SCORED
    assert crowd.most == SIDE_BY_SIDE.get(name, 1 if metric.steps else 0)


@names
def test_it_is_stateless(name: str) -> None:
    metric = built(name)
    sample = FULL[next(iter(metric.requires))]
    before = {key: value for key, value in vars(metric).items() if key != "version"}

    scores = [metric.score_sync(sample).value for _ in range(3)]

    assert len(set(scores)) == 1
    assert {key: value for key, value in vars(metric).items() if key != "version"} == before


@names
async def test_one_instance_serves_many_at_once(name: str) -> None:
    metric = built(name)
    sample = FULL[next(iter(metric.requires))]

    scores = await asyncio.gather(*(metric.score(sample) for _ in range(20)))

    assert len({score.value for score in scores}) == 1


@names
def test_it_runs_without_a_key(name: str) -> None:
    metric: Any = create(name, judge="lexical", **NEEDED.get(name, {}))

    scores = [metric.score_sync(FULL[turns]) for turns in metric.requires]

    assert {score.outcome for score in scores} <= {Outcome.SCORED, Outcome.NO_VALUE}


@names
def test_its_docstring_says_what_a_reader_must_know(name: str) -> None:
    text = " ".join((find_metric(name).__doc__ or "").split())

    for word in ("Formula:", "Fields:", "Judge calls:", "Blind spot:", "Source:", "is better", "Range"):
        assert word in text, word
