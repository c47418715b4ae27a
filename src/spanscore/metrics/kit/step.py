"""Step: a question a metric asks, as data: instruction, answer's shape and worked cases, to be filled with evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Generic, TypeAlias, TypeVar, cast

from pydantic import AfterValidator, BaseModel, ValidationError, WithJsonSchema

from spanscore.errors import ConfigurationError
from spanscore.judges.ask import ask
from spanscore.model.prompt import Example, Prompt
from spanscore.protocols import Judge

__all__ = ["OwnPrompts", "Step", "Verdict", "overridden"]

OwnPrompts: TypeAlias = Mapping[str, Mapping[str, Any] | str | Path]
"""Step → ``{"instruction": …, "examples": […]}``, either or both; or ``file`` → the path of what ``fit`` came to, alone."""

T = TypeVar("T", bound=BaseModel)


def _is_zero_or_one(value: int) -> int:
    if value not in (0, 1):
        raise ValueError("a verdict is 0 or 1")
    return value


# The schema says it in words: half of the providers' structured modes refuse bounds or enumerations of numbers.
Verdict = Annotated[int, AfterValidator(_is_zero_or_one), WithJsonSchema({"type": "integer", "description": "0 or 1"})]
"""0 or 1. ``true``, ``"1"`` and ``1.0`` are 1; anything else is no verdict."""


@dataclass(frozen=True, slots=True)
class Step(Generic[T]):
    """One question of a metric.

    Attributes:
        name: as the judge sees it in ``Prompt.step``; part of the contract (``extract_statements``, ``critique`` …).
        instruction: what to do. May not come from a sample.
        output: the shape of the answer.
        examples: worked cases.
    """

    name: str
    instruction: str
    output: type[T]
    examples: tuple[Example, ...] = ()

    def prompt(self, evidence: Mapping[str, Any], ballot: int = 0) -> Prompt:
        """Return the question about one piece of evidence; fields that are None are left out."""
        return Prompt(
            step=self.name,
            instruction=self.instruction,
            evidence={name: value for name, value in evidence.items() if value is not None},
            output=self.output,
            examples=self.examples,
            ballot=ballot,
        )

    async def ask(self, judge: Judge, evidence: Mapping[str, Any], *, ballot: int = 0, repair: bool = True) -> T:
        """Ask it; ``repair=False`` for a question that is cheaper asked again than repaired.

        Raises:
            JudgeError: there is no usable answer.
        """
        return cast(
            "T", await ask(judge, self.prompt(evidence, ballot), repair=repair)
        )  # ask() validates against the prompt's output


def overridden(steps: Iterable[Step[Any]], changes: Mapping[str, Mapping[str, Any]] | None) -> dict[str, Step[Any]]:
    """Return steps by name, with a user's own instruction or examples.

    Args:
        changes: step name → ``{"instruction": str, "examples": [Example or {"evidence": …, "output": …}]}``, either or both.

    Raises:
        ConfigurationError: an unknown step or key, or an example whose output has not the step's shape.
    """
    known = {step.name: step for step in steps}
    for name, change in (changes or {}).items():
        if name not in known:
            raise ConfigurationError(f"prompts: there is no step {name!r}; the steps are {sorted(known)}")
        known[name] = _changed(known[name], change)
    return known


def _changed(step: Step[Any], change: Mapping[str, Any]) -> Step[Any]:
    if not isinstance(change, Mapping):
        raise ConfigurationError(
            f"prompts.{step.name} is {change!r}; it is {{instruction: …, examples: […]}}, or either"
        )
    if unknown := set(change) - {"instruction", "examples"}:
        raise ConfigurationError(
            f"prompts.{step.name}: {sorted(unknown)} cannot be set; only instruction and examples can"
        )
    if "instruction" in change:
        step = replace(step, instruction=str(change["instruction"]))
    if "examples" in change:
        step = replace(step, examples=tuple(_example(step, example) for example in change["examples"]))
    return step


def _example(step: Step[Any], example: Any) -> Example:
    try:
        typed = example if isinstance(example, Example) else Example(**example)
        step.output.model_validate(typed.output)
    except (TypeError, ValidationError) as error:
        raise ConfigurationError(f"prompts.{step.name}: an example does not fit the step: {error}") from error
    return typed
