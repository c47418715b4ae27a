"""Step, one question of a metric to its judge; the user's own prompts for steps; and repeated votes on a question."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar, cast

from pydantic import BaseModel, ValidationError

from spanscore.core.prompt import Example, Prompt, PromptOrder
from spanscore.errors import ConfigurationError, JudgeError
from spanscore.judges.ask import ask
from spanscore.judges.effects.middleware import prompt_order
from spanscore.metrics.kit.condition import NotApplicableError, conditional, with_condition
from spanscore.protocols import Judge

OwnPrompts: TypeAlias = Mapping[str, Mapping[str, Any] | str | Path]
"""A metric's parameter ``prompts``: step name → ``{"instruction": …, "examples": […]}`` or one of these two keys.

Or only ``{"file": path}``: the path of a file that ``fit`` or ``adapt`` wrote.
"""

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Step(Generic[T]):
    """One question of a metric.

    Attributes:
        name: name of the step in ``Prompt.step``; part of the contract (``extract_statements``, ``critique`` …).
        instruction: task of the judge, without any text of a sample.
        output: shape of the answer.
        examples: worked cases in the prompt.
        applies_when: condition, as a sentence, under which the metric applies. The judge decides on it in the same call; if it
            does not hold, the metric is undefined on the sample. None = no condition.
        fields: variable → name of its sample field (``{"question": "user_input"}``). The prompt uses the field's name, so that
            questions about one sample have the same beginning. A variable without a field keeps its own name.
        examples_first: whether the examples precede the evidence, so that all questions of the metric have the same beginning.
            False if the evidence is longer, and other metrics' questions contain it, too.
    """

    name: str
    instruction: str
    output: type[T]
    examples: tuple[Example, ...] = ()
    applies_when: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    examples_first: bool = False

    @property
    def answer(self) -> type[BaseModel]:
        """The shape of the judge's answer: ``output``, with the field ``applies`` if the step has a condition."""
        return self.output if self.applies_when is None else conditional(self.output)

    def prompt(
        self, evidence: Mapping[str, Any], vote_index: int = 0, *, order: PromptOrder = "evidence_first"
    ) -> Prompt:
        """Return the prompt for one piece of evidence; variables with None are left out."""
        condition = self.applies_when
        return Prompt(
            step=self.name,
            instruction=self.instruction if condition is None else with_condition(self.instruction, condition),
            evidence={name: value for name, value in evidence.items() if value is not None},
            output=self.answer,
            examples=tuple(map(self._complete_example, self.examples)),
            vote_index=vote_index,
            applies_when=condition,
            order=order,
            fields=self.fields,
            examples_first=self.examples_first,
        )

    def _complete_example(self, example: Example) -> Example:
        """Return an example with the field ``applies`` in its output if the step has a condition; without a value it is 1."""
        return example if self.applies_when is None else replace(example, output={"applies": 1, **example.output})

    async def ask(self, judge: Judge, evidence: Mapping[str, Any], *, vote_index: int = 0, repair: bool = True) -> T:
        """Ask the judge this question. Set ``repair=False`` if asking again is cheaper than repairing an answer.

        Raises:
            JudgeError: there is no usable answer. Do not catch it: ``score`` turns it into an outcome.
            NotApplicableError: the condition does not hold. Do not catch it: the score becomes ``not_applicable``.
        """
        question = self.prompt(evidence, vote_index, order=prompt_order(judge))
        return self.read_condition(await ask(judge, question, repair=repair))

    def read_condition(self, answer: BaseModel) -> T:
        """Return a valid answer unchanged if the step's condition holds.

        Raises:
            NotApplicableError: the condition does not hold.
        """
        if self.applies_when is not None and not getattr(answer, "applies", 1):
            raise NotApplicableError
        return cast("T", answer)  # ask() validates against the prompt's output


def override_prompts(
    steps: Iterable[Step[Any]], changes: Mapping[str, Any] | None, *, examples_first: bool
) -> dict[str, Step[Any]]:
    """Return step name → step, with the user's instructions and examples.

    Args:
        steps: the steps with the built-in prompts.
        changes: step name → ``{"instruction": str, "examples": [Example or {"evidence": …, "output": …}]}``, of which one key
            may be missing. None = no change.

    Raises:
        ConfigurationError: a step or key is unknown, or an example's output does not fit the step's output.
    """
    by_name = {step.name: replace(step, examples_first=examples_first) for step in steps}
    for name, change in (changes or {}).items():
        if name not in by_name:
            raise ConfigurationError(f"prompts: there is no step {name!r}; the steps are {sorted(by_name)}")
        by_name[name] = _change_prompt(by_name[name], change)
    return by_name


def _change_prompt(step: Step[Any], change: Any) -> Step[Any]:
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
        step = replace(step, examples=tuple(_read_example(step, example) for example in change["examples"]))
    return step


def _read_example(step: Step[Any], example: Any) -> Example:
    try:
        typed = example if isinstance(example, Example) else Example(**example)
        step.answer.model_validate(step._complete_example(typed).output)
    except (TypeError, ValidationError) as error:
        raise ConfigurationError(f"prompts.{step.name}: an example does not fit the step: {error}") from error
    return typed


A = TypeVar("A")


def check_votes(strictness: int) -> int:
    """Return the user's parameter ``strictness``, a number of votes, checked."""
    if isinstance(strictness, bool) or not isinstance(strictness, int) or strictness < 1:
        raise ConfigurationError(f"strictness is {strictness!r}; it is a number of votes, 1 or more")
    return strictness


def odd_votes(strictness: int) -> int:
    """Return the number of votes for a strictness: the next odd number if it is even, because an even number can tie."""
    return check_votes(strictness) | 1


async def ask_votes(ask: Callable[[int], Coroutine[Any, Any, A]], number: int) -> list[A]:
    """Ask for votes 0 … number−1 concurrently, and return the answers in order; failed votes are left out.

    Raises:
        JudgeError: all votes failed; the first vote's error is raised.
        NotApplicableError: the step's condition does not hold in most of the votes that did not fail.
    """
    if number == 1:  # the usual case of a critic: avoids a task and a turn of the loop
        return [await ask(0)]
    return _valid_answers(await asyncio.gather(*map(ask, range(number)), return_exceptions=True))


def _valid_answers(results: Sequence[A | BaseException]) -> list[A]:
    answers = [result for result in results if not isinstance(result, BaseException)]
    errors = [result for result in results if isinstance(result, BaseException)]
    for error in errors:
        if not isinstance(error, JudgeError | NotApplicableError):  # a bug or a cancellation is not a failed vote
            raise error
    not_applicable = [error for error in errors if isinstance(error, NotApplicableError)]
    if len(not_applicable) > len(answers) or not answers:
        raise (not_applicable or errors)[0]
    return answers
