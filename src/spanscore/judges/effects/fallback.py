"""Another judge, while the first one is away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spanscore import semconv
from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import ConfigurationError
from spanscore.judges.asker import asker
from spanscore.judges.effects.effect import Effect, account_of, layers, reads_instructions
from spanscore.judges.effects.gated import gates_of
from spanscore.protocols import Judge

__all__ = ["FallingBack", "stand_in_for"]


def _is_away(judge: Judge) -> bool:
    """Whether a judge's breaker lets nobody through: it is open, or its probe is out."""
    now_s = asyncio.get_running_loop().time()
    return any(gate.here().breaker.wait_s(now_s) > 0 for gate in gates_of(judge))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class FallingBack(Effect):
    """A judge that another one stands in for while its breaker is open.

    All questions of a score are asked of one judge, chosen at its first question. What a fallback says is of *its* evaluator
    version, and of the source ``fallback``: a change of judge is no drop of quality, and in no mean of the first one.

    Args:
        fallbacks: in their order; the first that is not away is asked. Where all are, the questions wait for the first judge.
        is_away: whether a judge cannot be asked; by its breaker.

    Raises:
        ConfigurationError: two of the judges are the same.
    """

    judge: Judge
    fallbacks: Sequence[Judge]
    is_away: Callable[[Judge], bool] = _is_away

    def __post_init__(self) -> None:
        if len({account_of(one) for one in self.judges}) < len(self.judges):
            raise ConfigurationError(f"fallback asks {self.model} again: name a judge of another model, address or key")

    @property
    def judges(self) -> tuple[Judge, ...]:
        """The judge, and those that stand in for it."""
        return (self.judge, *self.fallbacks)

    @property
    def reads_instructions(self) -> bool:
        """Whether all of them go by what a question says."""
        return all(map(reads_instructions, self.judges))

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask the judge of this score."""
        score = asker()
        chosen: Judge | None = score.chosen.get(id(self))
        if chosen is None:
            chosen = score.chosen[id(self)] = next((one for one in self.judges if not self.is_away(one)), self.judge)
            if chosen is not self.judge:
                score.source = semconv.SOURCE_FALLBACK
        return await chosen.ask(prompt)


def stand_in_for(judge: Judge | None) -> Judge | None:
    """Return the judge that is asked instead of this one for the score at hand; None where it is asked itself."""
    found = () if judge is None else layers(judge)
    one = next((layer for layer in found if isinstance(layer, FallingBack)), None)
    if one is None:
        return None
    chosen: Judge | None = asker().chosen.get(id(one))
    return None if chosen is one.judge else chosen
