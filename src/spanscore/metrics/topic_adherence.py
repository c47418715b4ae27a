"""TopicAdherence: does the assistant answer only on the allowed topics?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from spanscore.core.prompt import Example
from spanscore.core.sample import MultiTurnSample
from spanscore.errors import JudgeError, JudgeUnparseable
from spanscore.metrics.kit.averages import Mode, f_beta, ratio
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import JudgedMetric, ask_concurrently, refuse_unknown
from spanscore.metrics.kit.step import OwnPrompts, Step


class Topics(BaseModel):
    """What a conversation is about."""

    topics: list[str]


class Refusal(BaseModel):
    """Whether the assistant refused to speak about a topic."""

    refused_to_answer: bool


class Classifications(BaseModel):
    """One flag per topic, in their order: true when it is one of the allowed topics."""

    classifications: list[bool]


EXTRACT_TOPICS: Step[Topics] = Step(
    name="extract_topics",
    instruction="""\
List the topics that the user brings up in the conversation in the evidence, in order, each once, in two to five words. \
Greetings and thanks are no topics.""",
    output=Topics,
)
CHECK_REFUSAL: Step[Refusal] = Step(
    name="check_refusal",
    instruction="""\
The evidence is a conversation and one of its topics. Did the assistant refuse to deal with this topic? True when it declined \
or sent the user elsewhere without help; false when it answered, tried to, or asked back.""",
    output=Refusal,
)
CLASSIFY_TOPICS: Step[Classifications] = Step(
    name="classify_topics",
    instruction="""\
The evidence is a list of allowed topics (reference_topics) and a list of topics somebody spoke about. For each of the latter, \
in their order, say whether it belongs to one of the allowed topics: true also when it is part of one, or another name for it. \
Give exactly as many flags as there are topics.""",
    output=Classifications,
    examples=(
        Example(
            evidence={
                "reference_topics": ["ferry services", "island hiking"],
                "topics": ["ferry departure times", "advice on buying shares"],
            },
            output={"classifications": [True, False]},
        ),
    ),
)


class TopicAdherence(JudgedMetric):
    """Does the assistant answer on the allowed topics, and decline other topics?

    Formula: each topic of the conversation is answered or refused, and inside or outside of the allowed topics. With
    TP = answered and inside, FP = answered and outside, FN = refused and inside:
    precision = TP / (TP + FP), recall = TP / (TP + FN), f1 = their harmonic mean; 0 if a denominator is 0. Range [0, 1],
    higher is better. The four counts are in the explanation.

    Fields: ``user_input`` (messages), ``reference_topics``. Judge calls: T + 2 for T topics (``extract_topics``; then
    ``check_refusal`` for each and ``classify_topics`` side by side); one more when the flags do not match the topics.
    Undefined when there is no topic, or when all were outside and refused: nothing in scope was asked, nothing done wrong.

    Blind spot: a topic that comes up twice and is answered once; how good the answers are. The judge chooses the topics, and
    this choice changes the score.

    Source: ragas 0.4.3's ``TopicAdherenceScore``. Deviations: undefined instead of 0 in the two cases above; an unknown mode is
    an error; no small term in the denominators, so a perfect score is 1; too few or too many flags are asked for once more,
    and only then is a missing one "outside" and an extra one ignored (the explanation reports it); no flag at all is an
    error (ragas: all are outside); the conversation is shown as messages.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores.
        mode: ``"f1"``, ``"precision"`` or ``"recall"``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.

    Raises:
        ConfigurationError: ``mode`` or another argument is invalid.
    """

    requires: Mapping[str, tuple[str, ...]] = {"multi_turn": ("user_input", "reference_topics")}
    base_version = "3"
    questions = (EXTRACT_TOPICS, CHECK_REFUSAL, CLASSIFY_TOPICS)

    def __init__(
        self,
        judge: Any,
        *,
        name: str = "topic_adherence",
        mode: Mode = "f1",
        pass_at: float | None = None,
        prompts: OwnPrompts | None = None,
    ) -> None:
        refuse_unknown(name, "mode", mode, Mode)
        super().__init__(judge, name=name, pass_at=pass_at, prompts=prompts)
        self.mode = mode

    def beginning(self, kind: str) -> tuple[str, int]:
        """Return the conversation and 2: the judge calls for topics and for refusals begin with it."""
        return "user_input", 2

    async def measure(self, sample: MultiTurnSample) -> Finding:
        """Extract the topics, then find for each whether it was refused and whether it is allowed."""
        conversation = sample.messages()
        topics = (await self.ask(EXTRACT_TOPICS, {"user_input": conversation})).topics
        if not topics:
            return Finding(value=None, reason="the conversation has no topic")
        # The two lists of flags are independent, so they are asked for concurrently.
        refused, inside = await ask_concurrently(
            (self._ask_refusals(conversation, topics), self._ask_allowed(sample.reference_topics or [], topics))
        )
        return _to_finding(refused, inside, self.mode)

    async def _ask_refusals(self, conversation: Sequence[Mapping[str, Any]], topics: Sequence[str]) -> list[bool]:
        answers = await ask_concurrently(
            self.ask(CHECK_REFUSAL, {"user_input": conversation, "topic": topic}) for topic in topics
        )
        return [answer.refused_to_answer for answer in answers]

    async def _ask_allowed(self, allowed: Sequence[str], topics: Sequence[str]) -> list[bool]:
        """Return whether each topic is allowed. If the answer has too few or too many flags, the judge is asked once more."""
        evidence = {"reference_topics": allowed, "topics": topics}
        flags = await self._ask_flags(evidence, 0)
        if len(flags) == len(topics):
            return flags
        try:
            again = await self._ask_flags(evidence, 1)
        except JudgeError:  # the call is recorded, and the first answer may be usable
            again = []
        kept = again if len(again) == len(topics) else flags or again
        if not kept:
            raise JudgeUnparseable(f"the judge gave no flag for any of {len(topics)} topics")
        return kept

    async def _ask_flags(self, evidence: Mapping[str, Any], vote_index: int) -> list[bool]:
        answer = await self.ask(CLASSIFY_TOPICS, evidence, vote_index=vote_index)
        flags: list[Any] = answer.classifications
        # The test kit can replace the step's shape by one that has words and numbers, too.
        return [
            flag.strip().casefold() in ("true", "1", "yes") if isinstance(flag, str) else bool(flag) for flag in flags
        ]


def _to_finding(refused: Sequence[bool], inside: Sequence[bool], mode: Mode) -> Finding:
    """Return the score of the flags; undefined if all topics were outside and refused. A topic without a flag is outside."""
    topics = Counter((is_refused, any(inside[index : index + 1])) for index, is_refused in enumerate(refused))
    hits, misses = topics[False, True], topics[True, True]
    strays, declined = topics[False, False], topics[True, False]
    precision, recall = ratio(hits, hits + strays), ratio(hits, hits + misses)
    value = {"precision": precision, "recall": recall, "f1": f_beta(precision, recall)}[mode]
    surplus = len(inside) - len(refused)
    notes = [
        f"Allowed topics: {hits} answered, {misses} refused.",
        f"Other topics: {strays} answered, {declined} refused.",
        *([f"{-surplus} topics have no flag and count as other topics."] if surplus < 0 else []),
        *([f"{surplus} flags too many were ignored."] if surplus > 0 else []),
    ]
    return Finding(
        value=value if hits + strays + misses else None,
        reason="nothing in scope was asked, and the rest was refused",
        explanation=" ".join(notes),
    )
