"""The last fence: at a budget no further question is sent.

Long before it the sampling rates are lowered (``sampling/pacing.py``), by what the purse knows of the spending.
"""

from __future__ import annotations

from dataclasses import dataclass

from spanscore.core.prompt import Prompt, Reply
from spanscore.judges.asker import asker
from spanscore.judges.effects.cost import Priced, estimated
from spanscore.judges.effects.effect import Effect, layers
from spanscore.judges.effects.purse import BudgetState, Payment, Purse, paid_from
from spanscore.protocols import Judge

__all__ = ["BudgetState", "Budgeted", "Purse", "budgeted"]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Budgeted(Effect):
    """A judge that is asked only as long as the scorer whose question it is may pay for it. Around a ``Priced`` one."""

    judge: Judge

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask, where there is something left.

        Raises:
            JudgeBudgetSpent: there is not; nothing was sent.
        """
        one = asker()
        if one.purse is None:
            return await self.judge.ask(prompt)
        with paid_from(Payment(one.purse, one.metric, estimated(self.judge, prompt, one.purse))):
            return await self.judge.ask(prompt)


def budgeted(judge: Judge) -> Judge:
    """Return a judge that keeps to budgets: itself, where it does; else one around it, for a user's own."""
    kinds = {type(layer) for layer in layers(judge)}
    if Budgeted in kinds:
        return judge
    return Budgeted(judge if Priced in kinds else Priced(judge, {}))
