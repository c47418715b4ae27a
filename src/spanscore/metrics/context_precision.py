"""Context precision by a judge: are the useful contexts ranked before the useless contexts?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel

from spanscore.core.prompt import Passages
from spanscore.core.sample import SingleTurnSample
from spanscore.metrics.kit.averages import average_precision
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.condition import BinaryAnswer
from spanscore.metrics.kit.judged import JudgedMetric, together
from spanscore.metrics.kit.step import Step


class ContextVerdict(BaseModel):
    """Why, and whether the context was of use for the answer."""

    reason: str = ""
    verdict: BinaryAnswer


JUDGE_CONTEXT: Step[ContextVerdict] = Step(
    name="judge_context",
    instruction="""\
The evidence holds a question, its answer and one context that a search found. Was this context useful to arrive at the answer?
Verdict 1: it holds at least one fact that the answer states or rests on.
Verdict 0: it does not, even if it is about the same subject.
Give a short reason first.""",
    output=ContextVerdict,
    fields={"question": "user_input", "context": "retrieved_contexts"},
)


class _LLMContextPrecision(JudgedMetric):
    """Base class of both metrics. ``_answer`` is the field that the judge is shown as the answer."""

    questions = (JUDGE_CONTEXT,)
    _answer: ClassVar[str]

    def beginning(self, kind: str) -> tuple[str, int]:
        """Return no common first field, because each question of a sample begins with a different context."""
        return "", 0

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Judge each context separately, all concurrently."""
        shown = {"question": sample.user_input, "answer": getattr(sample, self._answer)}
        verdicts = await together(
            self.ask(JUDGE_CONTEXT, {**shown, "context": Passages.of([context])})
            for context in sample.retrieved_contexts or ()
        )
        return precision_finding([bool(verdict.verdict) for verdict in verdicts])


class LLMContextPrecisionWithReference(_LLMContextPrecision):
    """Are the retrieved contexts that help to reach the reference answer ranked before the other contexts?

    Formula: average precision: the mean, over the ranks i of useful contexts, of (useful contexts up to i) / i; 0 if no
    context is useful. Range [0, 1], higher is better.

    Fields: ``user_input``, ``retrieved_contexts`` (best rank first), ``reference``. Judge calls: N for N contexts
    (``judge_context``), concurrently. The score is undefined if no context was retrieved.

    Blind spot: contexts that were not found. One useful context alone scores 1, whichever contexts are missing (ContextRecall
    measures missing contexts). Useless contexts behind the last useful context do not lower the value. Each context is judged
    alone, so two contexts that help only together count as useless.

    Source: ragas 0.4.3's ``LLMContextPrecisionWithReference`` (``ContextPrecision``). Deviations: the score is undefined
    instead of 0 if no context was retrieved; a verdict other than 0 and 1 is repaired once, then an error; no small term in
    the denominator, so a perfect order is 1; missing fields are detected before the first judge call.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "llm_context_precision_with_reference"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("user_input", "retrieved_contexts", "reference")}
    _answer = "reference"


class LLMContextPrecisionWithoutReference(_LLMContextPrecision):
    """Are the retrieved contexts that the answer used ranked before the others? Runs online, because it needs no reference.

    Formula: average precision: the mean, over the ranks i of useful contexts, of (useful contexts up to i) / i; 0 if no
    context is useful. Range [0, 1], higher is better.

    Fields: ``user_input``, ``retrieved_contexts`` (best rank first), ``response``. Judge calls: N for N contexts
    (``judge_context``), concurrently. The score is undefined if no context was retrieved.

    Blind spot: each context that the given answer used is useful: a wrong answer makes its wrong context useful. Contexts
    that were not found, and useless contexts behind the last useful context, do not lower the value.

    Source: ragas 0.4.3's ``LLMContextPrecisionWithoutReference`` (``ContextUtilization``). Deviations: the score is undefined
    instead of 0 if no context was retrieved; a verdict other than 0 and 1 is repaired once, then an error; no small term in
    the denominator, so a perfect order is 1; missing fields are detected before the first judge call.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "llm_context_precision_without_reference"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("user_input", "retrieved_contexts", "response")}
    _answer = "response"


ContextPrecision = LLMContextPrecisionWithReference
"""Short name of ``LLMContextPrecisionWithReference``."""
ContextUtilization = LLMContextPrecisionWithoutReference
"""Short name of ``LLMContextPrecisionWithoutReference``."""


def precision_finding(relevant: list[bool]) -> Finding:
    """Return the average precision of contexts, with the useful ranks as its explanation; undefined without contexts."""
    ranks = ", ".join(str(rank) for rank, flag in enumerate(relevant, 1) if flag)
    return Finding(
        value=average_precision(relevant),
        reason="nothing was retrieved, so there is no order",
        explanation=f"Useful ranks: {ranks or 'none'} of {len(relevant)}." if relevant else None,
    )
