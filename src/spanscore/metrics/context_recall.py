"""Context recall by a judge: how much of the reference answer is in the retrieved contexts?"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from spanscore.core.prompt import Passages
from spanscore.core.sample import SingleTurnSample
from spanscore.errors import JudgeUnparseable
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.condition import BinaryAnswer
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.metrics.kit.statements import key_of
from spanscore.metrics.kit.step import Step


class Attribution(BaseModel):
    """One sentence of the answer, why, and whether the context holds it (1) or not (0)."""

    statement: str
    reason: str = ""
    attributed: BinaryAnswer


class Attributions(BaseModel):
    """One row per sentence of the answer."""

    classifications: list[Attribution]


CLASSIFY_REFERENCE_SENTENCES: Step[Attributions] = Step(
    name="classify_reference_sentences",
    instruction="""\
The evidence holds a question, its answer and a context. Go through the answer sentence by sentence. Attributed 1: the context \
says so, or it follows directly from it. Attributed 0: it does not, or only in part.
What you know from elsewhere does not count. Give one row per sentence, in order: the sentence, a short reason, the flag.""",
    output=Attributions,
    fields={"question": "user_input", "context": "retrieved_contexts"},
)


class LLMContextRecall(JudgedMetric):
    """Which share of the reference answer do the retrieved contexts hold?

    Formula: sentences of the reference that the contexts support / all its sentences. Range [0, 1], higher is better.

    Fields: ``user_input``, ``retrieved_contexts``, ``reference``. Judge calls: 1 (``classify_reference_sentences``), also for
    an empty context list. The score is undefined if the reference is blank and the judge finds no sentence in it.

    Blind spot: contexts that are not needed. A search that returns everything scores 1. The judge itself splits the reference
    into sentences; a long sentence counts as much as a short one.

    Source: ragas 0.4.3's ``LLMContextRecall`` (``ContextRecall``). Deviations: a flag other than 0 and 1 is repaired once,
    then an error (in ragas every non-zero number means yes); an answer without rows for a reference that has words is an
    error (ragas: nan); a row without a sentence does not count; missing fields are detected before the first judge call.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "llm_context_recall"
    base_version = "2"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("user_input", "retrieved_contexts", "reference")}
    questions = (CLASSIFY_REFERENCE_SENTENCES,)

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Let the judge find which sentences of the reference the contexts support."""
        context = Passages.of(sample.retrieved_contexts)
        evidence = {"question": sample.user_input, "context": context, "answer": sample.reference}
        answer = await self.ask(CLASSIFY_REFERENCE_SENTENCES, evidence)
        rows = [row for row in answer.classifications if key_of(row.statement)]
        if not rows:
            if key_of(sample.reference or ""):
                raise JudgeUnparseable("the judge gave no verdict on any sentence of the reference")
            return Finding(value=None, reason="the reference has no sentence")
        held = sum(row.attributed for row in rows)
        lines = [f"{held} of {len(rows)} sentences of the reference are in the contexts."]
        missing = (row for row in rows if not row.attributed)
        lines += [f"Not there: {row.statement}" + (f" ({row.reason})" if row.reason else "") for row in missing]
        return Finding(value=held / len(rows), explanation="\n".join(lines))


ContextRecall = LLMContextRecall
"""Short name of ``LLMContextRecall``."""
