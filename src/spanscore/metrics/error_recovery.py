"""ErrorRecovery: after a failed tool call, did the agent go on sensibly?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from spanscore.core.sample import MultiTurnSample
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.condition import BinaryAnswer
from spanscore.metrics.kit.made_calls import CallMetric, CallRows, CallVerdict, MadeCall, faults
from spanscore.metrics.kit.step import Step


class RecoveryVerdict(CallVerdict):
    """Number of a call, why, whether it failed (1), and whether the agent went on sensibly (1)."""

    failed: BinaryAnswer


class RecoveryVerdicts(CallRows[RecoveryVerdict]):
    """One row per call."""


JUDGE_RECOVERY: Step[CallRows[RecoveryVerdict]] = Step(
    name="judge_recovery",
    instruction="""\
The evidence holds a conversation of a user with an agent, and tool calls of the agent that may have failed (calls). Decide \
for each of these calls whether it failed, and how the agent went on.
Failed 1: the result reports an error, or that the tool could not do its work. Failed 0: the result is an ordinary one, also \
if it speaks of errors or found nothing; the verdict is then 1.
Verdict 1: after the failure the agent tried again in another way, or once more if the fault could pass; or took another \
tool; or asked the user; or reported the failure openly. Verdict 0: it went on as if the call had succeeded, repeated the \
call unchanged although that could not help, or stopped without a word about it.
Give one row per call, in order: the number of the call, a short reason, failed, the verdict.""",
    output=RecoveryVerdicts,
)
_MAY_HAVE_FAILED: Final = re.compile(
    r"error|exception|traceback|\bfail|time[d ]{0,2}out|unavailable|unknown|invalid|denied|forbidden|unauthori[sz]ed|refused"
    r"|rejected|missing|unable|can(?:not|['’]t)|could(?: not|n['’]t)|no such|too many|out of|limit|\b[45]\d\d\b"
    r"|not (?:found|available|allowed|supported|permitted|valid|possible|authori[sz]ed|exist)|\"(?:success|ok)\"\s*:\s*false"
    r"|fehler|fehlgeschlagen|ung[uü]ltig|nicht (?:gefunden|verf[uü]gbar|m[oö]glich)|erreur|[ée]chou|introuvable"
    r"|indisponible|no (?:se pudo|encontrad|disponible)|fall[oó]|inv[aá]lid",
    re.IGNORECASE,
)
"""Forms of a result that may report a failure; the judge decides. Results without any are no failures."""
_BEGINNING: Final = 1_000
"""Number of leading characters of a result that are searched: an error stands in front."""


class ErrorRecovery(CallMetric):
    """After how many of the failed tool calls did the agent go on sensibly?

    Formula: failed calls after which the agent changed its attempt, took another tool, asked the user or reported the failure
    / all failed calls. Range [0, 1], higher is better. Undefined without a failed call. Results without a word for a failure
    (English, German, French, Spanish, or a status from 400 to 599) in their first 1,000 characters are no failures; among the
    others the judge decides which are.

    Fields: ``user_input`` (messages). Judge calls: 1 (``judge_recovery``) for all calls that may have failed, 0 without any,
    so most conversations cost nothing; one more if the answer lacks a call.

    Blind spot: failures whose result does not look like one, such as an empty list or a word of another language; failures
    without a recorded result. Whether the second attempt succeeded does not count.

    Source: strands-agents-evals' recovery strategy, in our own words. Deviations: a share of the failed calls instead of one
    of five grades for the whole trace; no question, and no score, without a failed call.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "error_recovery"
    questions = (JUDGE_RECOVERY,)

    async def measure_calls(self, calls: Sequence[MadeCall], sample: MultiTurnSample) -> Finding:
        """Find the calls that may have failed, then ask which did, and how the agent went on."""
        suspects = [made for made in calls if _may_have_failed(made)]
        rows = await self.ask_about(suspects, JUDGE_RECOVERY, sample, {})
        failed = [made for made in suspects if rows[made.number].failed]
        if not failed:
            return Finding(value=None, reason="no tool call failed")
        ignored = faults(failed, rows)
        line = f"The agent went on sensibly after {len(failed) - len(ignored)} of {len(failed)} failed calls."
        return Finding(value=1 - len(ignored) / len(failed), explanation="\n".join([line, *ignored]))


def _may_have_failed(made: MadeCall) -> bool:
    return made.result is not None and _MAY_HAVE_FAILED.search(made.result[:_BEGINNING]) is not None
