"""ResponseRelevancy: does the answer address the question that was asked?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel

from spanscore.core.printable import shorten
from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Votes
from spanscore.judges.embeddings import embedder_name
from spanscore.metrics.kit.averages import COSINE, NO_WORDS, cosine, make_embedder
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import JudgedMetric, refuse_unknown
from spanscore.metrics.kit.step import OwnPrompts, Step, ask_votes, check_votes

Noncommittal = Literal["all", "majority", "any"]
NONCOMMITTAL = "The answer is noncommittal."
"""Explanation of the value 0 for a noncommittal answer. Reports recognise such scores by it."""
MAX_QUOTED = 300
"""Maximum number of characters of a question in an explanation, because a prompt may have pages."""


class GeneratedQuestion(BaseModel):
    """A question the answer would fit, and whether the answer avoids to commit itself (1) or not (0)."""

    question: str
    noncommittal: int


GENERATE_QUESTION: Step[GeneratedQuestion] = Step(
    name="generate_question",
    instruction="""\
The evidence is an answer whose question is lost. Write the one question it answers best, in its language, from what it says \
alone. noncommittal: 1 when it avoids an answer ("I don't know", "it depends", a refusal), else 0.""",
    output=GeneratedQuestion,
)


class ResponseRelevancy(JudgedMetric):
    """Does the answer address the question that was asked?

    The judge guesses the question from the answer alone, ``strictness`` times. The closer the guesses are to the real question,
    the more the answer is about it.

    Formula: mean cosine of the embedded question and each guess; 0 if the answer is noncommittal. Range [-1, 1], higher is
    better; the quality is max(0, value).

    Fields: ``user_input``, ``response``. Judge calls: ``strictness`` (step ``generate_question``), concurrently, and one
    request for embeddings. Lost guesses do not count. At least one guess is required, and the score reports the number of
    guesses. The score is undefined if every guess is empty. If a model's vector is empty, all zeros or not finite, the
    outcome is ``judge_error``.

    Blind spot: the truth, completeness and politeness of the answer. Cosines of short questions lie close together: compare
    values of one embedding model only (it is part of the version), and choose ``pass_at`` from real scores.

    Source: Es et al., "RAGAS: Automated Evaluation of Retrieval Augmented Generation" (2023), section 3, as in ragas 0.4.3's
    ``ResponseRelevancy``. Deviations: empty guesses are left out of the mean (ragas embeds them); a vector with norm 0 is an
    error (ragas: nan); a noncommittal answer is not embedded.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        embeddings: LangChain embeddings, an Embedder, or ``"lexical"``; None only with the lexical judge.
        name: name of the metric in its scores.
        strictness: number of guesses.
        noncommittal: which of the guesses must find the answer noncommittal for a 0: ``"all"``, a ``"majority"`` or ``"any"``.
        pass_at: lowest quality that passes.
        prompts: ``{"generate_question": {"instruction": …, "examples": […]}}``, to replace ours.

    Raises:
        ConfigurationError: ``embeddings`` is missing or unknown, or ``strictness``, ``noncommittal`` or another is invalid.
    """

    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("user_input", "response")}
    scale = COSINE
    questions = (GENERATE_QUESTION,)

    def __init__(
        self,
        judge: Any,
        embeddings: Any = None,
        *,
        name: str = "response_relevancy",
        strictness: int = 3,
        noncommittal: Noncommittal = "all",
        pass_at: float | None = None,
        prompts: OwnPrompts | None = None,
    ) -> None:
        super().__init__(judge, name=name, pass_at=pass_at, prompts=prompts)
        refuse_unknown(name, "noncommittal", noncommittal, Noncommittal)
        self._embedder = make_embedder(name, embeddings, self._judge)
        self.embeddings = embedder_name(self._embedder)
        self.noncommittal = noncommittal
        self.votes = check_votes(strictness)

    def beginning(self, kind: str) -> tuple[str, int]:
        """Return the response, as the judge is not shown the question."""
        return "response", super().beginning(kind)[1]

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Let the judge guess the question, then compare the guesses with the real question."""
        evidence = {"response": sample.response}
        guesses = await ask_votes(lambda i: self.ask(GENERATE_QUESTION, evidence, vote_index=i), self.votes)
        votes = Votes(requested=self.votes, received=len(guesses))
        usable = [guess for guess in guesses if guess.question.strip()]
        if not usable:
            return Finding(value=None, reason="the judge found no question that the answer answers", votes=votes)
        noncommittal_count = sum(guess.noncommittal != 0 for guess in usable)
        if noncommittal_count >= {"all": len(usable), "majority": len(usable) // 2 + 1, "any": 1}[self.noncommittal]:
            return Finding(value=0.0, explanation=NONCOMMITTAL, votes=votes)
        questions = [guess.question for guess in usable]
        real_question = sample.user_input or ""
        real_vector, *vectors = await self._embedder.embed([real_question, *questions])
        cosines = [cosine(self._embedder, real_vector, vector) for vector in vectors]
        values = [value for value in cosines if value is not None]
        if len(values) < len(cosines):
            return Finding(value=None, reason=NO_WORDS, votes=votes)
        explanation = _explain(real_question, questions, values)
        return Finding(value=sum(values) / len(values), explanation=explanation, votes=votes)


def _explain(real_question: str, guesses: Sequence[str], cosines: Sequence[float]) -> str:
    """Return an explanation: the guessed questions, each once, and the question that was asked."""
    cosine_of = dict(zip(guesses, cosines, strict=True))
    answered = ", ".join(f"“{_one_line(guess)}” (cosine {value:.2f})" for guess, value in cosine_of.items())
    return f"The answer answers: {answered}; the question was: “{_one_line(real_question)}”"


def _one_line(text: str) -> str:
    return shorten(" ".join(text.split()), MAX_QUOTED)
