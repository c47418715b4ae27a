"""AnswerAccuracy: does the answer agree with the reference?"""

from __future__ import annotations

from collections.abc import Mapping

from spanscore.core.sample import SingleTurnSample
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.graded import Rating024, TwoRatings
from spanscore.metrics.kit.step import Step

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
        question, one, other = sample.user_input, sample.response, sample.reference
        return await self._rated(
            {"question": question, "answer": one, "reference": other},
            {"question": question, "answer": other, "reference": one},
        )
