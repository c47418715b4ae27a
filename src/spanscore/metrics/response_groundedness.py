"""ResponseGroundedness: is the answer, as a whole, backed by the retrieved contexts?"""

from __future__ import annotations

from collections.abc import Mapping

from spanscore.core.prompt import Passages
from spanscore.core.sample import SingleTurnSample
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.graded import Rating012, TwoRatings
from spanscore.metrics.kit.step import Step

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
        return await self._rated(evidence, evidence)
