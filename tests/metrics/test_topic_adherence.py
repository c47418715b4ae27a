"""TopicAdherence: questions, answers and allowed topics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from spanscore.core.prompt import Prompt, Reply
from spanscore.core.sample import AIMessage, HumanMessage, MultiTurnSample
from spanscore.core.score import Outcome
from spanscore.metrics import TopicAdherence
from spanscore.testing import ScriptedJudge

SAMPLE = MultiTurnSample(
    user_input=[HumanMessage(content="When does the ferry leave?"), AIMessage(content="At nine.")],
    reference_topics=["ferries"],
)


def script(
    topics: list[str], refused: list[bool], *flags: list[bool], kind: type[ScriptedJudge] = ScriptedJudge
) -> Any:
    return kind(
        [
            {"step": "extract_topics", "output": {"topics": topics}},
            *({"step": "check_refusal", "output": {"refused_to_answer": answer}} for answer in refused),
            *({"step": "classify_topics", "output": {"classifications": list(row)}} for row in flags),
        ]
    )


@pytest.mark.parametrize(("mode", "value"), [("precision", 2 / 3), ("recall", 1 / 2), ("f1", 4 / 7)])
def test_the_modes_count_what_they_say(mode: Any, value: float) -> None:
    judge = script(list("abcdef"), [False, False, True, True, False, True], [True, True, True, True, False, False])

    score = TopicAdherence(judge, mode=mode).score_sync(SAMPLE)

    assert score.value == pytest.approx(value)
    assert score.explanation == "Allowed topics: 2 answered, 2 refused. Other topics: 1 answered, 1 refused."


def test_a_conversation_without_topics_is_undefined_after_one_call() -> None:
    judge = script([], [])

    score = TopicAdherence(judge).score_sync(SAMPLE)

    assert score.outcome is Outcome.NO_VALUE
    assert len(judge.calls) == 1


def test_refusing_only_what_is_outside_is_undefined_and_not_bad() -> None:
    score = TopicAdherence(script(["a"], [True], [False])).score_sync(SAMPLE)

    assert (score.outcome, score.value) == (Outcome.NO_VALUE, None)
    assert score.explanation == "Allowed topics: 0 answered, 0 refused. Other topics: 0 answered, 1 refused."


def test_flags_that_do_not_match_are_asked_for_once_more() -> None:
    score = TopicAdherence(script(["a", "b"], [False, False], [True], [True, True])).score_sync(SAMPLE)

    assert score.value == 1.0


@pytest.mark.parametrize(
    ("flags", "note"),
    [
        ([True], "1 topics have no flag and count as other topics."),
        ([True, False, True], "1 flags too many were ignored."),
    ],
)
def test_flags_that_never_match_are_used_with_a_note(flags: list[bool], note: str) -> None:
    score = TopicAdherence(script(["a", "b"], [False, False], flags, flags), mode="precision").score_sync(SAMPLE)

    assert score.value == 0.5
    assert score.explanation is not None
    assert score.explanation.endswith(note)


def test_questions_that_do_not_need_each_other_are_open_together() -> None:
    class Watching(ScriptedJudge):
        open = most = 0

        async def ask(self, prompt: Prompt) -> Reply:
            self.open += 1
            self.most = max(self.most, self.open)
            await asyncio.sleep(0.01)
            self.open -= 1
            return await super().ask(prompt)

    judge = script(["a", "b", "c"], [False] * 3, [True] * 3, kind=Watching)

    TopicAdherence(judge).score_sync(SAMPLE)

    assert judge.most == 4


def test_after_a_failure_no_further_question_stays_open() -> None:
    cancelled = []

    class Failing(ScriptedJudge):
        async def ask(self, prompt: Prompt) -> Reply:
            if prompt.step == "check_refusal":
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    cancelled.append(prompt.evidence["topic"])
                    raise
            return await super().ask(prompt)

    judge = Failing([{"step": "extract_topics", "output": {"topics": ["a", "b"]}}])

    score = TopicAdherence(judge).score_sync(SAMPLE)

    assert score.outcome is Outcome.JUDGE_ERROR
    assert sorted(cancelled) == ["a", "b"]


def test_offline_it_sees_a_refusal_and_a_stray() -> None:
    def talk(*turns: str) -> MultiTurnSample:
        kinds = (HumanMessage, AIMessage)
        messages = [kinds[i % 2](content=text) for i, text in enumerate(turns)]
        return MultiTurnSample(user_input=messages, reference_topics=["ferry timetable", "museum tickets"])

    metric = TopicAdherence("lexical")
    good = ("What does the ferry timetable say for Monday?", "It leaves at nine.")

    assert metric.score_sync(talk(*good)).value == 1.0
    assert metric.score_sync(talk(*good, "Which stocks should I buy?", "Sorry, I cannot advise on that.")).value == 1.0
    assert metric.score_sync(talk(*good, "Which stocks should I buy?", "Buy railways.")).value < 1.0
    assert metric.score_sync(talk("How much are museum tickets?", "I can't help with that.")).value == 0.0
