"""Judge middleware: the base class of judges that wrap another judge, and functions that look through the wrappers."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import cast

from spanscore.core.prompt import PromptOrder
from spanscore.protocols import Embedder, Judge


class JudgeMiddleware:
    """Base class of judge middleware: a subclass is a dataclass with a method ``ask``; its first field is the wrapped judge."""

    __slots__ = ()

    judge: Judge

    @property
    def judges(self) -> tuple[Judge, ...]:
        """The judges that it may ask; several if it has fallbacks."""
        return (self.judge,)

    @property
    def model(self) -> str:
        """The wrapped judge's model."""
        return self.judge.model

    @property
    def reads_instructions(self) -> bool:
        """Whether all of its judges follow the prompt's instruction."""
        return all(map(reads_instructions, self.judges))

    @property
    def reads_images(self) -> bool:
        """Whether all of its judges read images."""
        return all(map(reads_images, self.judges))

    @property
    def max_input_tokens(self) -> int | None:
        """The lowest maximum of tokens per question among its judges; None if no judge has a maximum."""
        limits = (getattr(judge, "max_input_tokens", None) for judge in self.judges)
        return min((limit for limit in limits if limit is not None), default=None)


def reads_instructions(judge: Judge) -> bool:
    """Whether a judge follows a prompt's instruction, as a model does, or only its step's name (``protocols.Judge``)."""
    return getattr(judge, "reads_instructions", False) is True


def reads_images(judge: Judge) -> bool:
    """Whether a judge takes the images of a prompt (``protocols.Judge``)."""
    return getattr(judge, "reads_images", False) is True


def prompt_order(judge: Judge) -> PromptOrder:
    """Return the order of the parts of a judge's questions; ``evidence_first`` unless the judge has a ``prompt_order``."""
    order: PromptOrder = getattr(unwrapped(judge), "prompt_order", "evidence_first")
    return order


def account_of(judge: Judge | Embedder) -> Hashable:
    """Return the account of a judge or an embedder; for an object without an account, the object's id."""
    inner = unwrapped(cast("Judge", judge))  # an embedder has no middleware
    return getattr(inner, "account", None) or id(inner)


def identity_of(judge: Judge) -> tuple[Hashable, str]:
    """Return a judge's account and sampling parameters (``drawing``); if both are equal, two judges answer in the same way."""
    return account_of(judge), repr(getattr(unwrapped(judge), "drawing", None))


def unwrapped(judge: Judge) -> Judge:
    """Return the judge inside all middleware."""
    *_, innermost = layers(judge)
    return innermost


def is_batched(judge: Judge) -> bool:
    """Whether a judge's questions go to its provider's batch endpoint."""
    return getattr(unwrapped(judge), "batch", None) is not None


def layers(judge: Judge) -> Iterator[Judge]:
    """Yield a judge and the judges wrapped inside it; the outermost first."""
    yield judge
    while isinstance(judge, JudgeMiddleware):
        judge = judge.judge
        yield judge
