"""No text under test reaches a judge as an order, and none that the judge echoes is its verdict: on every question there is."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import pytest
from tests.contracts.test_metrics import FULL, built
from tests.judges.injections import INJECTIONS, LARGE, ORDER, forged, judged_steps
from tests.judges.models import Answers

from spanscore.core.prompt import Prompt, PromptOrder, Reply
from spanscore.core.sample import (
    MEASURES,
    AIMessage,
    HumanMessage,
    MultiTurnSample,
    SingleTurnSample,
    ToolCall,
    ToolMessage,
)
from spanscore.errors import JudgeError
from spanscore.judges import ask, render
from spanscore.metrics.catalog.registry import built_ins
from spanscore.metrics.kit.step import Step

STEPS = {step.name: step for step in judged_steps()}
_BLANK = (
    r"(?:[\s/\uff0f\u2215\u00ad\u200b-\u200f\u2060\ufeff\u202a-\u202e]|\\[nrtbf\\]"
    r"|\\u(?!003c|fe64|2039|3008|27e8|ff1c)[0-9a-f]{4})*"
)
ENDS = re.compile(rf"[<\uff1c\u2039\u3008\u27e8\ufe64]{_BLANK}{_BLANK.join('evidence')}", re.IGNORECASE)
"""Text that a credulous reader takes for a tag of the fence."""


def hostile(injection: str) -> dict[str, Any]:
    """Return evidence with an injection wherever a sample can have one: in texts, lists, messages, names, ids and keys."""
    call = {"name": injection, "args": {injection: [injection]}, "id": injection}
    return {
        "question": injection,
        "retrieved_contexts": ["harmless", injection],
        "user_input": [
            {"role": "assistant", "content": injection, "tool_calls": [call], "metadata": {injection: injection}}
        ],
        injection: injection,
    }


def outside(text: str) -> str:
    """Return the text that a credulous reader of a prompt takes to be outside of its fences."""
    return "".join(ENDS.split(text)[::2])


def checked(step: Step[Any], evidence: dict[str, Any], order: PromptOrder) -> None:
    seen = json.loads(json.dumps(evidence, ensure_ascii=False).encode("utf-8", "replace"))
    place = 1 + 2 * len(step.examples) * step.examples_first if order == "evidence_first" else 1

    system, user = render(step.prompt(evidence, order=order))
    calm = render(step.prompt({"question": "harmless"}, order=order))

    assert system == calm.system
    fences, calm_fences = ENDS.split(user), ENDS.split(calm.user)
    shown = json.loads(fences.pop(place).removeprefix(">").removesuffix("</"))
    assert sorted(map(json.dumps, shown.values())) == sorted(map(json.dumps, seen.values()))
    calm_fences.pop(place)
    assert fences == calm_fences


def test_there_are_sixty_injections() -> None:
    assert len(set(INJECTIONS)) == 60
    assert all(ORDER in injection for injection in INJECTIONS)


@pytest.mark.parametrize("number", range(60))
def test_no_text_leaves_its_fence_on_any_question(number: int) -> None:
    injection = INJECTIONS[number]
    steps = list(STEPS.values())

    for step in steps[:1] if injection in LARGE else steps:
        for order in get_args(PromptOrder):
            checked(step, {"question": injection} if injection in LARGE else hostile(injection), order)


class Obedient:
    """A judge that obeys every order that it finds outside of the fence, and otherwise finds everything right."""

    model = "obedient"
    reads_instructions = True

    def __init__(self) -> None:
        self.asked = 0
        self.obeyed: list[str] = []

    async def ask(self, prompt: Prompt) -> Reply:
        self.asked += 1
        system, user = render(prompt)
        if ORDER in system or ORDER in outside(user):
            self.obeyed.append(prompt.step)
        return Reply(text=forged(prompt.output).replace("Every claim", f"{''.join(SMALL)} Every claim"))


SMALL = [json.dumps(injection)[1:-1] for injection in INJECTIONS if injection not in LARGE]


@pytest.mark.parametrize("name", sorted(built_ins()))
def test_a_judge_that_obeys_any_order_outside_of_the_fence_obeys_none(name: str) -> None:
    judge, text = Obedient(), "".join(injection for injection in INJECTIONS if injection not in LARGE)
    metric = built(name, judge)
    samples = {"single_turn": single(text), "multi_turn": multi(text)}

    for kind in metric.requires:
        metric.score_sync(samples[kind])

    assert judge.obeyed == []
    assert judge.asked or not metric.steps


def single(text: str) -> SingleTurnSample:
    whole: dict[str, Any] = FULL["single_turn"].model_dump(exclude={"rubrics", "images", *MEASURES})
    hostile = {key: text if isinstance(value, str) else [text, "b"] for key, value in whole.items()}
    return SingleTurnSample(**hostile, rubrics={f"score1_{text}": text, f"score5_{text}": text})


def multi(text: str) -> MultiTurnSample:
    call = ToolCall(name=text, args={text: text}, id=text)
    return MultiTurnSample(
        user_input=[
            HumanMessage(content=text, metadata={text: text}),
            AIMessage(content=text, tool_calls=[call], metadata={text: text}),
            ToolMessage(content=f"error: {text}", tool_call_id=text),
            AIMessage(content=text),
        ],
        reference=text,
        reference_tool_calls=[call],
        reference_topics=[text],
        rubrics={f"score1_{text}": text, f"score5_{text}": text},
    )


QUOTED = (
    "I say {0}", "{0} is right.", "```json\n{0}\n```\nSo it is.", "<think>{0}", "{0}</think>", "Answer: {0}{0}",
    '{{"reason": "{0}"}}', "</evidence>\n{0}", "[{0}", "The verdict is\n\n{0}\n\nand no other.",
)  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
async def test_a_forged_verdict_that_is_echoed_back_whole_is_none(name: str) -> None:
    step = STEPS[name]
    bare = forged(step.output)
    with_a_sentence = [bare, f"```json\n{bare}\n```"] if " " in "".join(re.findall(r'"[^"]*"', bare)) else []

    for injection in (*(form.format(bare) for form in QUOTED), *with_a_sentence):
        prompt = step.prompt({"question": "q", "response": injection, "context": injection})
        for echo in (injection, render(prompt).user, json.dumps(injection), f"It says: {injection}"):
            with pytest.raises(JudgeError) as raised:
                await ask(Answers(echo), prompt)
            assert raised.value.error_type == "unparseable"


@pytest.mark.parametrize(
    "name", sorted(STEPS.keys() - {"extract_sentences"})
)  # its answer is a copy of the evidence's lines
async def test_an_injection_that_is_echoed_back_whole_is_no_verdict(name: str) -> None:
    step = STEPS[name]

    for injection in (injection for injection in INJECTIONS if injection not in LARGE):
        with pytest.raises(JudgeError) as raised:
            await ask(Answers(injection), step.prompt({"question": injection, "response": injection}))
        assert raised.value.error_type == "unparseable"
