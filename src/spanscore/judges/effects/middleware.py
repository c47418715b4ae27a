"""Effect: a judge around another judge. What the one inside is, shows outside, however many stand around it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import cast

from spanscore.core.prompt import PromptOrder
from spanscore.protocols import Embedder, Judge


class JudgeMiddleware:
    """The base of an effect: a dataclass of the judge inside and, behind it, one setting; with ``ask``."""

    __slots__ = ()

    judge: Judge

    @property
    def judges(self) -> tuple[Judge, ...]:
        """The judges that it may ask; several if one stands in for another."""
        return (self.judge,)

    @property
    def model(self) -> str:
        """The wrapped judge's model."""
        return self.judge.model

    @property
    def reads_instructions(self) -> bool:
        """Whether the wrapped judge goes by what a question says."""
        return reads_instructions(self.judge)

    @property
    def max_input_tokens(self) -> int | None:
        """How many tokens a question may have that any of them may be asked; None when none tells."""
        told = (getattr(judge, "max_input_tokens", None) for judge in self.judges)
        return min((most for most in told if most is not None), default=None)


def reads_instructions(judge: Judge) -> bool:
    """Whether a judge goes by what a question says, as a model does, and not by the name of its step (``protocols.Judge``)."""
    return getattr(judge, "reads_instructions", False) is True


def prompt_order(judge: Judge) -> PromptOrder:
    """Return the order of the questions to a judge; ``evidence_first`` unless it has a ``prompt_order``."""
    order: PromptOrder = getattr(unwrapped(judge), "prompt_order", "evidence_first")
    return order


def account_of(judge: Judge | Embedder) -> Hashable:
    """Return whose limits a judge or an embedder meets: its account; itself, if it tells none."""
    inner = unwrapped(cast("Judge", judge))  # an embedder has nothing around it
    return getattr(inner, "account", None) or id(inner)


def identity_of(judge: Judge) -> tuple[Hashable, str]:
    """Return the account of a judge and its way of drawing answers: equal judges answer a question alike."""
    return account_of(judge), repr(getattr(unwrapped(judge), "drawing", None))


def unwrapped(judge: Judge) -> Judge:
    """Return the judge inside all effects."""
    *_, innermost = layers(judge)
    return innermost


def is_batched(judge: Judge) -> bool:
    """Whether a judge's questions go to its provider's batch endpoint."""
    return getattr(unwrapped(judge), "batch", None) is not None


def layers(judge: Judge) -> Iterator[Judge]:
    """Yield a judge, and what is inside each of its effects; the outermost first."""
    yield judge
    while isinstance(judge, JudgeMiddleware):
        judge = judge.judge
        yield judge
