"""Questions about one sample begin alike, and the old order of a question can be had back with its version."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from tests.contracts.test_metrics import built

from spanscore.core.prompt import Prompt
from spanscore.core.sample import AIMessage, HumanMessage, MultiTurnSample, Sample, SingleTurnSample
from spanscore.errors import ConfigurationError
from spanscore.judges import LexicalJudge, judge, render
from spanscore.metrics import AspectCritic, TopicAdherence
from spanscore.testing import ScriptedJudge

SAMPLE = SingleTurnSample(
    user_input="When was the bridge opened?",
    response="The bridge was opened in 1931. It is 412 metres long.",
    retrieved_contexts=["The bridge was opened in 1931.", "It is 412 metres long."],
    reference="In 1931.",
)
CONVERSATION = MultiTurnSample(
    user_input=[HumanMessage(content="When was it opened?"), AIMessage(content="In 1931.")],
    reference_topics=["bridges"],
)
CONTEXTS = '<evidence>{"retrieved_contexts":["The bridge was opened in 1931.","It is 412 metres long."]'
BEFORE = {
    "faithfulness": "2+cfdf9751",
    "context_relevance": "1+f8de215d",
    "aspect_critic": "3+2ab64a61",
    "answer_correctness": "2+b055c0c7",
}
"""Metric → its version in spanscore 0.3."""


class Listening(ScriptedJudge):
    """The offline judge, which keeps the questions; each of its own order."""

    reads_instructions = True

    def __init__(self, prompt_order: str = "evidence_first") -> None:
        super().__init__()
        self.prompt_order = prompt_order
        self.offline = LexicalJudge()

    async def ask(self, prompt: Prompt) -> Any:
        self.calls.append(prompt)
        return await self.offline.ask(prompt)


def questions(metric: str, sample: Sample = SAMPLE, **parameters: Any) -> dict[str, str]:
    """Return step → user text of the questions that a metric asks about a sample."""
    listening = Listening()
    built(metric, listening, **parameters).score_sync(sample)
    return {prompt.step: render(prompt).user for prompt in listening.calls}


def beginning(texts: Sequence[str]) -> str:
    """Return the longest text that all of them begin with."""
    columns = zip(*texts, strict=False)
    return "".join(letters[0] for letters in takewhile(lambda letters: len({*letters}) == 1, columns))


def test_questions_about_the_same_contexts_begin_with_them() -> None:
    texts = [
        questions("faithfulness")["verify_statements"],
        questions("context_relevance")["judge_relevance"],
        questions("response_groundedness")["judge_groundedness"],
        questions("llm_context_recall")["classify_reference_sentences"],
        questions("aspect_critic", definition="Cited?", fields=["response", "retrieved_contexts"])["critique"],
    ]

    assert beginning(texts).startswith(CONTEXTS)


def test_questions_are_alike_up_to_the_first_part_that_differs() -> None:
    relevance = questions("context_relevance")["judge_relevance"]
    critique = questions("aspect_critic", definition="Cited?", fields=["user_input", "response", "retrieved_contexts"])

    assert beginning([relevance, critique["critique"]]) == f'{CONTEXTS},"user_input":"When was the bridge opened?"'


def test_questions_about_a_conversation_begin_with_it() -> None:
    texts = [
        questions("agent_goal_accuracy_without_reference", CONVERSATION)["infer_goal_outcome"],
        questions("topic_adherence", CONVERSATION)["extract_topics"],
        questions("aspect_critic", CONVERSATION, definition="Polite?")["critique"],
    ]

    assert beginning(texts).startswith('<evidence>{"user_input":[{"role":"user","content":"When was it opened?"}')


def test_the_system_text_is_one_for_all_metrics() -> None:
    listening = Listening()
    for metric in ("faithfulness", "answer_correctness", "aspect_critic", "context_relevance"):
        built(metric, listening).score_sync(SAMPLE)

    assert len({render(prompt).system for prompt in listening.calls}) == 1


@pytest.mark.parametrize(
    ("fields", "first"),
    [(["response"], True), (["user_input", "response"], True), (["response", "retrieved_contexts:optional"], False)],
)
def test_examples_come_first_unless_the_metric_may_show_contexts(fields: list[str], first: bool) -> None:
    example = {"evidence": {"response": "Shut up."}, "output": {"reason": "It is rude.", "verdict": 0}}
    text = questions(
        "aspect_critic", definition="Polite?", fields=fields, prompts={"critique": {"examples": [example]}}
    )

    assert text["critique"].startswith('Example:\n<evidence>{"response":"Shut up."}') is first


def test_examples_stand_behind_a_conversation() -> None:
    example = {"evidence": {"user_input": "Hello"}, "output": {"topics": ["greetings"]}}
    listening = Listening()
    TopicAdherence(listening, prompts={"extract_topics": {"examples": [example]}}).score_sync(CONVERSATION)

    text = render(listening.calls[0]).user

    assert text.index("In 1931.") < text.index("Example:")


@pytest.mark.parametrize("metric", BEFORE)
def test_the_old_order_has_the_old_version(metric: str) -> None:
    assert built(metric, Listening("instruction_first")).version == BEFORE[metric]
    assert built(metric, Listening()).version != BEFORE[metric]


def test_the_old_order_has_its_instruction_in_the_system_text() -> None:
    listening = Listening("instruction_first")
    AspectCritic(listening, name="polite", definition="The response is polite.").score_sync(SAMPLE)

    (text,) = map(render, listening.calls)

    assert "The response is polite." in text.system
    assert text.user.startswith('<evidence>{"user_input":"When was the bridge opened?","response":')


def test_the_order_of_a_judge_is_that_of_its_questions() -> None:
    asked = (judge(FakeListChatModel(responses=[]), prompt_order="instruction_first"), Listening("instruction_first"))

    assert len({AspectCritic(one, name="polite", definition="Polite?").version for one in asked}) == 1


def test_another_order_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match="prompt_order is 'last'; it is one of evidence_first, instruction_first"
    ):
        judge(FakeListChatModel(responses=[]), prompt_order="last")  # type: ignore[arg-type]
