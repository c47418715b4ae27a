"""ContextRelevance: can the question be answered from the retrieved contexts?"""

from __future__ import annotations

from collections.abc import Mapping

from spanscore.core.prompt import Passages
from spanscore.core.sample import SingleTurnSample
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.graded import Rating012, TwoRatings
from spanscore.metrics.kit.step import Step

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
        return await self._rated(evidence, evidence)
