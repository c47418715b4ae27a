"""What metrics share that a user makes: a name and a pass mark; and those with a judge: it, and prompts a user may change."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast, get_args

from pydantic import BaseModel

from spanscore.errors import ConfigurationError
from spanscore.judges.build import shared_judge
from spanscore.metrics.kit.base import BaseMetric
from spanscore.metrics.kit.step import Step, overridden
from spanscore.model.score import Scale, refuse_taken_name
from spanscore.protocols import Judge

__all__ = ["JudgedMetric", "NamedMetric", "checked_name", "passing_at", "refuse_unknown", "together"]

T = TypeVar("T", bound=BaseModel)
R = TypeVar("R")

_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


class NamedMetric(BaseMetric):
    """A metric whose name and pass mark a user may choose; its class, or itself before this, says what they are else.

    Args:
        name: under which its scores appear; the class's own when None.
        pass_at: lowest quality (0…1) that passes; the scale's own when None.

    Raises:
        ConfigurationError: the name is none or taken, or ``pass_at`` is outside of 0…1.
    """

    def __init__(self, *, name: str | None = None, pass_at: float | None = None) -> None:
        self.name = checked_name(self.name if name is None else name)
        self.scale = passing_at(self.scale, pass_at)


class JudgedMetric(NamedMetric):
    """A metric that asks a judge. What it asks, and of what kind its values are, stands on its class, or on itself before this.

    Attributes:
        questions: its steps.

    Args:
        judge: a LangChain chat model, a Judge, or a name (``"openai:gpt-4o-mini"``, ``"lexical"``). Metrics that are given the
            same chat model share its limits.
        name: under which its scores appear; the class's own when None.
        pass_at: lowest quality (0…1) that passes; the scale's own when None.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours; part of the version.

    Raises:
        ConfigurationError: there is no such judge, the name is none or taken, ``pass_at`` is outside of 0…1, or
            ``prompts`` names no step of the metric.
    """

    questions: tuple[Step[Any], ...]
    _judge: Judge

    def __init__(
        self,
        judge: Any,
        *,
        name: str | None = None,
        pass_at: float | None = None,
        prompts: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        if judge is None:
            raise ConfigurationError(
                f"{name or self.name} needs a judge: a LangChain chat model, its name, or 'lexical'"
            )
        super().__init__(name=name, pass_at=pass_at)
        self.steps = overridden(self.questions, prompts)
        self._judge = shared_judge(judge)

    async def ask(self, step: Step[T], evidence: Mapping[str, Any], *, ballot: int = 0, repair: bool = True) -> T:
        """Ask one of ``questions``, in the user's words where there are any, and return the answer, an instance of its output.

        Args:
            step: the question.
            evidence: variable → what the judge is shown, as JSON; what is None is left out.
            ballot: number of the vote: the same question with another one is really asked again.
            repair: False for a question that is cheaper asked again than repaired.

        Raises:
            JudgeError: there is no usable answer. Let it pass: it is the score's outcome.
        """
        own = cast("Step[T]", self.steps[step.name])  # overridden() keeps name and output
        return await own.ask(self._judge, evidence, ballot=ballot, repair=repair)


def checked_name(name: str) -> str:
    """Return a metric's name if it is one: it becomes part of attribute names.

    Raises:
        ConfigurationError: it is not lower snake case, or taken.
    """
    if not isinstance(name, str) or not _NAME.match(name):
        raise ConfigurationError(f"metric name {name!r}: use lower snake case, such as 'harmless' or 'on_topic'")
    refuse_taken_name(name)
    return name


def refuse_unknown(name: str, parameter: str, given: Any, choices: Any) -> None:
    """Refuse a metric's parameter that is none of the values of a ``Literal``.

    Raises:
        ConfigurationError: it is none.
    """
    if given not in get_args(choices):
        raise ConfigurationError(f"{name}: {parameter} is {given!r}; it is one of {', '.join(get_args(choices))}")


def passing_at(scale: Scale, pass_at: float | None) -> Scale:
    """Return the scale with another pass mark on the quality scale, 0…1.

    Raises:
        ConfigurationError: it is not between 0 and 1.
    """
    if pass_at is None:
        return scale
    if not isinstance(pass_at, int | float) or not 0.0 <= pass_at <= 1.0:
        raise ConfigurationError(f"pass_at is {pass_at!r}; it is on the quality scale, between 0 and 1")
    return replace(scale, pass_at=float(pass_at))


async def together(questions: Iterable[Coroutine[Any, Any, R]]) -> list[R]:
    """Ask questions that do not need each other side by side, and return the answers in order.

    The first failure is raised and the questions still open are cancelled: their answers would be paid for nothing.
    """
    tasks = [asyncio.ensure_future(question) for question in questions]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
