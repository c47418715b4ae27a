"""AnswerCompleteness: is every part of the question answered?"""

from __future__ import annotations

from collections.abc import Mapping

from spanscore.core.sample import HumanMessage, MultiTurnSample, Sample
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.metrics.kit.parts import PartVerdicts, share_of_parts
from spanscore.metrics.kit.statements import key_of
from spanscore.metrics.kit.step import Step

_NOTHING = "the user asks for nothing"
JUDGE_PARTS: Step[PartVerdicts] = Step(
    name="judge_parts",
    instruction="""\
The evidence is a question of a user (user_input) and its answer (response), or a conversation of a user with an assistant. \
Split the user's requests into parts: each thing that could be answered or done alone; a condition belongs to its part. \
Greetings, thanks and background are no parts, and a request that the user took back or replaced is left out.
One row per part, in order: the part in a few words, a short reason, the verdict.
Verdict 1: the assistant gave or did the requested thing, in any words; a wrong answer is an answer. Verdict 0: the part was \
passed over, answered only in part, put off, or declined.""",
    output=PartVerdicts,
)


class AnswerCompleteness(JudgedMetric):
    """Which share of the parts of a question is answered?

    Formula: parts that are answered / parts of the question; in a conversation, of all the user's requests. Range [0, 1],
    higher is better. Undefined if the user asks for nothing. A question of one part is 1 or 0.

    Fields: ``user_input``, ``response``; of a conversation ``user_input`` (messages). Judge calls: 1 (``judge_parts``), 0 if
    the user wrote nothing.

    Blind spot: wrong answers count as answers; a part that is declined for a good reason counts as not answered. The judge
    chooses the parts: a finer division changes the share.

    Source: strands-agents-evals' partial completion, in our own words. Deviations: a share of named parts instead of a
    percentage that the judge estimates; also for conversations without a failure.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "answer_completeness"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("user_input", "response"), "multi_turn": ("user_input",)}
    questions = (JUDGE_PARTS,)

    async def measure(self, sample: Sample) -> Finding:
        """Ask for the parts of the question, and whether each is answered."""
        if isinstance(sample, MultiTurnSample):
            request = "".join(message.content for message in sample.user_input if isinstance(message, HumanMessage))
            evidence: dict[str, object] = {"user_input": sample.messages()}
        else:
            request = sample.user_input or ""
            evidence = {"user_input": request, "response": sample.response}
        if not key_of(request):
            return Finding(value=None, reason=_NOTHING)
        answer = await self.ask(JUDGE_PARTS, evidence)
        return share_of_parts(answer.parts, done="parts of the question are answered", nothing=_NOTHING)
