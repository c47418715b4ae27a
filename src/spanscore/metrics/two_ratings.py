"""AnswerAccuracy, ContextRelevance and ResponseGroundedness: the mean of two ratings, asked for by two questions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar, Self

from pydantic import BaseModel, field_validator

from spanscore.core.prompt import Passages
from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Votes
from spanscore.errors import JudgeUnparseable
from spanscore.judges.effects.middleware import reads_instructions
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.metrics.kit.step import Step, ask_votes

_ATTEMPTS = 5
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_AROUND = " \t\r\n.*_`'\""
"""Characters that may surround the number if the answer is only a number."""


class _Rated(BaseModel):
    """An answer with ratings from a fixed set of whole numbers."""

    allowed: ClassVar[tuple[int, ...]]

    @field_validator("*")
    @classmethod
    def _is_allowed(cls, value: int) -> int:
        if value not in cls.allowed:
            raise ValueError(f"a rating is one of {cls.allowed}")
        return value


class _Rating(_Rated):
    """An answer with one rating from a fixed set of whole numbers."""

    rating: int

    @classmethod
    def from_plain_text(cls, text: str, _: Mapping[str, Any]) -> Self | None:
        """Read a text that is only an allowed rating: "2", "2.0" and "**2**", not "It is a 2."; None for other texts."""
        number = _NUMBER.fullmatch(text.strip(_AROUND))
        rating = float(number.group()) if number else None
        return cls(rating=int(rating)) if rating is not None and rating in cls.allowed else None


class Rating024(_Rating):
    """How far two answers agree."""

    allowed = (0, 2, 4)


class Rating012(_Rating):
    """Ratings: not at all, in part, fully."""

    allowed = (0, 1, 2)


class Both012(_Rated):
    """Two ratings of the same texts."""

    allowed = (0, 1, 2)

    first: int
    second: int


class TwoRatings(JudgedMetric):
    """Base class of metrics with two differently worded questions.

    The value is the mean of the two ratings, divided by the highest rating. An unreadable rating is requested again, up to five
    times in all, which is cheaper than a repair. If the questions are about the same texts, a chat model gets both questions in
    one call, because the texts are most of the tokens.

    Attributes:
        questions: the two steps. The outputs of both have one class.
        both: name of the step that asks both questions in one call; None if the questions have different texts.
    """

    votes = 2
    both: ClassVar[str | None] = None

    def beginning(self, kind: str) -> tuple[str, int]:
        """Return the first field of a sample in the prompts, and the number of questions: 1 if one call asks both."""
        field, _ = super().beginning(kind)
        return field, 1 if self.joint_step() and reads_instructions(self._judge) else self.votes

    async def _rate(self, *evidence: Mapping[str, Any]) -> Finding:
        """Ask both questions concurrently, each with its evidence, and return the mean of the readable ratings."""
        both = self.joint_step() if reads_instructions(self._judge) else None
        ratings: list[int] = []
        if both:
            with suppress(JudgeUnparseable):
                answer = await both.ask(self._judge, evidence[0], repair=False)
                ratings = [answer.first, answer.second]
        if not ratings:
            questions = list(zip(self.steps.values(), evidence, strict=True))
            tried = 1 if both else 0
            ratings = await ask_votes(lambda place: self._rating(*questions[place], tried), len(questions))
        top = self.questions[0].output.allowed[-1]
        lost = "" if len(ratings) == self.votes else "; the other rating could not be had"
        return Finding(
            value=sum(ratings) / top / len(ratings),
            explanation=f"Rated {' and '.join(map(str, ratings))} on a scale of 0 to {top}{lost}.",
            votes=Votes(requested=self.votes, received=len(ratings)),
        )

    async def _rating(self, step: Step[Any], evidence: Mapping[str, Any], tried: int) -> int:
        """Ask until a rating can be read, at most five times; ``tried`` is the number of attempts already made."""
        unread = JudgeUnparseable(f"{step.name}: no attempt was made")
        for attempt in range(tried, _ATTEMPTS):
            try:
                answer: _Rating = await step.ask(self._judge, evidence, vote_index=attempt, repair=False)
            except JudgeUnparseable as error:
                unread = error
            else:
                return answer.rating
        raise unread

    def _identity(self) -> dict[str, Any]:
        both, identity = self.joint_step(), super()._identity()
        joined = {} if both is None else {both.name: self._texts_of(both)}
        return {**identity, "prompts": {**identity["prompts"], **joined}}

    def joint_step(self) -> Step[Both012] | None:
        """Return one step with both questions. None without ``both``, or if a question has examples, whose form differs."""
        if self.both is None or any(question.examples for question in self.steps.values()):
            return None
        first, second = (question.instruction for question in self.steps.values())
        instruction = f"Give two ratings, each on its own.\nFirst: {first}\nSecond: {second}"
        return Step(name=self.both, instruction=instruction, output=Both012, fields=self.questions[0].fields)


JUDGE_ACCURACY_1: Step[Rating024] = Step(
    name="judge_accuracy_1",
    instruction="Does the answer agree with the reference? 4 fully, 2 partly, 0 not, or in conflict.",
    output=Rating024,
    fields={"question": "user_input"},
)
JUDGE_ACCURACY_2: Step[Rating024] = Step(
    name="judge_accuracy_2",
    instruction="Are answer and reference equivalent? 4 yes, 2 partly, 0 no, or in conflict.",
    output=Rating024,
    fields={"question": "user_input"},
)


class AnswerAccuracy(TwoRatings):
    """Does the answer agree with the reference answer?

    Formula: mean of two ratings r / 4, r in {0, 2, 4}. The second call swaps the two answers, so that neither answer profits
    from its position. Range [0, 1] in steps of 1/4, higher is better.

    Fields: ``user_input``, ``response``, ``reference``. Judge calls: 2 (``judge_accuracy_1``, ``judge_accuracy_2``),
    concurrently. Each call is made up to 5 times until a rating can be read, so there are at most 10 calls. If one rating is
    lost, the other rating is the value.

    Blind spot: the value is coarse: a small omission and a missing half can have the same value. The reference is taken as
    the truth.

    Source: NVIDIA's answer accuracy, as in ragas 0.4.3's ``AnswerAccuracy``. Deviations: a rating is JSON, or the only number
    in a text, and must be 0, 2 or 4 (ragas takes the first digit of a fixed list that the text contains: "10" is 0, "3" is
    0.75); the mean is over the readable ratings; missing fields are detected before the first judge call.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "answer_accuracy"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("user_input", "response", "reference")}
    questions = (JUDGE_ACCURACY_1, JUDGE_ACCURACY_2)

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Rate the answer by the reference, and the reference by the answer."""
        question, response, reference = sample.user_input, sample.response, sample.reference
        return await self._rate(
            {"question": question, "answer": response, "reference": reference},
            {"question": question, "answer": reference, "reference": response},
        )


JUDGE_RELEVANCE_1: Step[Rating012] = Step(
    name="judge_relevance_1",
    instruction="How much of what the question asks does the context alone answer? 2 all, 1 part, 0 nothing.",
    output=Rating012,
    fields={"question": "user_input", "context": "retrieved_contexts"},
)
JUDGE_RELEVANCE_2: Step[Rating012] = Step(
    name="judge_relevance_2",
    instruction="Rate how useful the context is to answer the question: 2 it suffices, 1 it helps, 0 it does not.",
    output=Rating012,
    fields={"question": "user_input", "context": "retrieved_contexts"},
)


class ContextRelevance(TwoRatings):
    """Can the question be answered from the retrieved contexts?

    Formula: mean of two ratings r / 2, r in {0, 1, 2}, of the contexts as one text. The value is 0, without a judge call, if
    the question or the contexts are blank, or if the contexts only repeat words of the question. Range [0, 1] in steps of
    1/4, higher is better.

    Fields: ``user_input``, ``retrieved_contexts``. Judge calls: 1 to a chat model, which is asked both questions about the
    contexts at once (``judge_relevance``), otherwise 2 concurrent calls (``judge_relevance_1``, ``judge_relevance_2``). Each
    call is made up to 5 times until a rating can be read, so there are at most 10 calls. If one rating is lost, the other
    rating is the value.

    Blind spot: rank and useless contexts: one good context among twenty useless contexts scores 1. The truth of the contexts
    is not checked.

    Source: NVIDIA's context relevance, as in ragas 0.4.3's ``ContextRelevance``. Deviations: a rating is JSON, or the only
    number in a text, and must be 0, 1 or 2 (ragas takes the first digit of a fixed list that the text contains: "1 out of 2"
    is 2); the mean is over the readable ratings; missing fields are detected before the first judge call. A chat model gives
    both ratings in one answer, which saves two fifths of the tokens, but makes the second rating depend on the first (ragas:
    two requests).

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "context_relevance"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("user_input", "retrieved_contexts")}
    questions = (JUDGE_RELEVANCE_1, JUDGE_RELEVANCE_2)
    both = "judge_relevance"

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Let the judge rate all contexts as one text."""
        question, context = sample.user_input or "", Passages.of(sample.retrieved_contexts)
        if not question.strip() or not context.strip():
            return Finding(
                value=0.0, explanation="There is no question." if context.strip() else "There is no context."
            )
        if context.strip() in question:
            return Finding(value=0.0, explanation="The contexts only repeat the question.")
        evidence = {"question": question, "context": context}
        return await self._rate(evidence, evidence)


JUDGE_GROUNDEDNESS_1: Step[Rating012] = Step(
    name="judge_groundedness_1",
    instruction="How much of the response does the context alone support? 2 all, 1 part, 0 nothing, or it contradicts.",
    output=Rating012,
    fields={"context": "retrieved_contexts"},
)
JUDGE_GROUNDEDNESS_2: Step[Rating012] = Step(
    name="judge_groundedness_2",
    instruction="Are the response's claims in the context, numbers and names included? 2 all, 1 some, 0 none.",
    output=Rating012,
    fields={"context": "retrieved_contexts"},
)


class ResponseGroundedness(TwoRatings):
    """Is the answer, as a whole, backed by the retrieved contexts?

    Formula: mean of two ratings r / 2, r in {0, 1, 2}, of the response against the contexts as one text. Without a judge
    call, the value is 0 if either text is blank, and 1 if the response equals the contexts' text (white space at the ends is
    ignored). Range [0, 1] in steps of 1/4, higher is better.

    Fields: ``response``, ``retrieved_contexts``. Judge calls: 1 to a chat model, which is asked both questions about the
    response at once (``judge_groundedness``), otherwise 2 concurrent calls (``judge_groundedness_1``,
    ``judge_groundedness_2``). Each call is made up to 5 times until a rating can be read, so there are at most 10 calls. If
    one rating is lost, the other rating is the value.

    Blind spot: the value is coarse, and the unsupported claims are not listed (Faithfulness lists them, for more tokens). The
    question is not shown: a grounded answer may be off the question.

    Source: NVIDIA's response groundedness, as in ragas 0.4.3's ``ResponseGroundedness``. Deviations: only the whole text of
    the contexts is grounded without a judge call (ragas: any part of it, even a single letter); a rating is JSON, or the only
    number in a text, and must be 0, 1 or 2 (ragas takes the first digit of a fixed list that the text contains); the mean is
    over the readable ratings; missing fields are detected before the first judge call. A chat model gives both ratings in one
    answer, which saves two fifths of the tokens, but makes the second depend on the first (ragas: two requests).

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "response_groundedness"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("response", "retrieved_contexts")}
    questions = (JUDGE_GROUNDEDNESS_1, JUDGE_GROUNDEDNESS_2)
    both = "judge_groundedness"

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Let the judge rate the response against all contexts as one text."""
        response, context = sample.response or "", Passages.of(sample.retrieved_contexts)
        if not response.strip() or not context.strip():
            return Finding(value=0.0, explanation="There is no answer." if context.strip() else "There is no context.")
        if response.strip() == context.strip():
            return Finding(value=1.0, explanation="The answer is the contexts' own text.")
        evidence = {"response": response, "context": context}
        return await self._rate(evidence, evidence)
