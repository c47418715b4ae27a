"""The bases of built-in metrics: with a name and a pass mark, and with a judge and prompts that a user may change."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterable, Mapping
from copy import copy
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast, get_args

from pydantic import BaseModel

from spanscore.core import loop
from spanscore.core.sample import AnnotatedSample
from spanscore.core.score import Scale, refuse_taken_name
from spanscore.errors import ConfigurationError
from spanscore.judges.build import shared_judge
from spanscore.judges.effects.middleware import unwrapped
from spanscore.judges.jury import Jury
from spanscore.judges.lexical.judge import is_offline
from spanscore.judges.rendering import SAMPLE_PARTS
from spanscore.judges.score_context import asker
from spanscore.metrics.kit.base import MULTI_TURN, BaseMetric
from spanscore.metrics.kit.condition import contradictions_in
from spanscore.metrics.kit.step import OwnPrompts, Step, overridden
from spanscore.protocols import Judge

if TYPE_CHECKING:  # loaded when a metric is fitted, or was
    from spanscore.metrics.kit.tuned_prompts import Fitted
    from spanscore.metrics.kit.tuning import FitSettings

T = TypeVar("T", bound=BaseModel)
R = TypeVar("R")

_FILE = "file"
"""Key of ``prompts`` that names what ``fit`` wrote; no step is called so."""
_LONG_FIELDS = frozenset({"retrieved_contexts", "reference_contexts", MULTI_TURN})
"""Fields, and a kind of sample, with more text than the other parts of a question."""
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
            same chat model share its limits. A ``Jury`` scores with several judges.
        name: under which its scores appear; the class's own when None.
        pass_at: lowest quality (0…1) that passes; the scale's own when None.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours; or ``{"file": "fitted.json"}``, what
            ``fit`` came to. Part of the version.

    Raises:
        ConfigurationError: there is no such judge, the name is none or taken, ``pass_at`` is outside of 0…1, or
            ``prompts`` names no step of the metric, or a file that is not of it.
    """

    questions: tuple[Step[Any], ...]
    _judge: Judge

    def __init__(
        self,
        judge: Any,
        *,
        name: str | None = None,
        pass_at: float | None = None,
        prompts: OwnPrompts | None = None,
    ) -> None:
        if judge is None:
            raise ConfigurationError(
                f"{name or self.name} needs a judge: a LangChain chat model, its name, or 'lexical'"
            )
        super().__init__(name=name, pass_at=pass_at)
        self.steps = self._steps_with(prompts)
        self._judge = shared_judge(judge)

    async def ask(self, step: Step[T], evidence: Mapping[str, Any], *, vote_index: int = 0, repair: bool = True) -> T:
        """Ask one of ``questions``, in the user's words where there are any, and return the answer, an instance of its output.

        Args:
            step: the question.
            evidence: variable → what the judge is shown, as JSON; what is None is left out.
            vote_index: number of the vote: the same question with another one is really asked again.
            repair: False for a question that is cheaper asked again than repaired.

        Raises:
            JudgeError: there is no usable answer. Let it pass: it is the score's outcome.
            NotApplicableError: the step has a condition, which does not hold: likewise.
        """
        own = cast("Step[T]", self.steps[step.name])  # overridden() keeps name and output
        answer = await self._answer_step(own, evidence, vote_index=vote_index, repair=repair)
        asker().contradictions += contradictions_in(answer, lower=self.scale.direction == "lower")
        return answer

    async def _answer_step(self, step: Step[T], evidence: Mapping[str, Any], *, vote_index: int, repair: bool) -> T:
        return await step.ask(self._judge, evidence, vote_index=vote_index, repair=repair)

    async def fit(
        self,
        annotations: Iterable[AnnotatedSample | Mapping[str, Any]] | str | Path,
        **settings: Unpack[FitSettings],
    ) -> Fitted:
        """Teach the judge by human labels, and keep what it learned only where that is shown to help.

        Each candidate is the metric with other demonstrations in its prompt, drawn from 30 % of the labels. The one that is
        right most often on the next 35 % is tested once on the last 35 %, and kept if the exact one-sided McNemar test gives
        p ≤ .05 there: so a metric that cannot be taught is changed in at most one run of twenty. What is kept is a new
        version, and a new evaluator version. The metric itself is not changed: ``Fitted.metric`` is the one to use.

        Judge calls: about (candidates + 3) × 0.35 a label, each as many as one score; equal questions are asked once.

        Args:
            annotations: labelled samples, ``{"user_input": …, "response": …, "human": True}``, or the path of a file of them:
                JSON lines, or what ragas's app exports. Labels of one ``session`` or ``trace_id`` stay together. 100 or more:
                with fewer, a gain as large as one may hope for is seldom shown.
            demonstrations: worked cases in each candidate's prompt, 4 by default. They are content, in every later question.
            candidates: how many are tried, those of the rewriter among them; 16 by default.
            rewriter: a chat model, a judge or a name; it is shown what the judge got wrong, and proposes the instruction of
                every other candidate. None = the instruction stays.
            redactor: that of the scorer: run on all texts before a model is shown them. None = texts are shown as they are.
            seed: of split and candidates; 0 by default.
            progress: called after each judged sample; must not block. None = no call.

        Raises:
            ConfigurationError: the metric has no step that a label of a sample can teach, which the message names; or the
                labels cannot teach it, or the redactor fails on one.
            JudgeError: the judge gave no verdict on any label.
        """
        if is_offline(self._judge):
            raise ConfigurationError(
                f"{self.name} cannot be fitted: the offline judge reads no instruction and no example"
            )
        if isinstance(self._judge, Jury):
            raise ConfigurationError(
                f"{self.name} cannot be fitted: its judge is a jury, and prompts are fitted to one model; give it one judge"
            )
        if getattr(self, "bundle", False):
            raise ConfigurationError(
                f"{self.name} cannot be fitted: a bundle shows no examples; fit it without bundle: true"
            )
        from spanscore.metrics.kit.tuning import FittingRun

        return await FittingRun(metric=self, annotations=annotations, **settings).run()

    def fit_sync(
        self,
        annotations: Iterable[AnnotatedSample | Mapping[str, Any]] | str | Path,
        **settings: Unpack[FitSettings],
    ) -> Fitted:
        """``fit``, blocking; also inside a running loop (Jupyter). Interrupted, it asks no further."""
        return loop.run(self.fit(annotations, **settings))

    def with_changes(self, *, judge: Judge | None = None, prompts: OwnPrompts | None = None) -> Self:
        """Return the same metric with another judge, or in other words.

        Args:
            judge: None = the same one.
            prompts: as of a new metric, in the place of this one's; None = the same.

        Raises:
            ConfigurationError: ``prompts`` names no step of the metric, or a file that is not of it.
        """
        changed = copy(self) if judge is None else self._with_judge(judge)
        vars(changed).pop("version", None)  # cached, of other words
        if prompts is not None:
            changed.steps = changed._steps_with(prompts)
        return changed

    def _steps_with(self, prompts: OwnPrompts | None) -> dict[str, Step[Any]]:
        """Return the steps in the user's words; examples come first if no kind of sample has contexts or a conversation."""
        shown = {*self._shown, *chain.from_iterable(self._shown.values())}
        return overridden(self.questions, self._written(prompts), examples_first=not shown & _LONG_FIELDS)

    @property
    def _shown(self) -> Mapping[str, tuple[str, ...]]:
        """Kind of sample → fields that the judge may be shown."""
        return self.requires

    def beginning(self, kind: str) -> tuple[str, int]:
        """Return the field of a sample that the metric's questions begin with, and how many of them do, at least.

        Args:
            kind: of the sample, ``single_turn`` or ``multi_turn``.
        """
        shown = self._shown.get(kind, ())
        field = next((field for field in SAMPLE_PARTS if field in shown), "")
        at_once = getattr(unwrapped(self._judge), "answers_several", False)
        return field, 1 if at_once else self.votes

    def _written(self, prompts: OwnPrompts | None) -> Mapping[str, Any] | None:
        """Return prompts as they stand in the file that they name, or as they are."""
        if prompts is None or _FILE not in prompts:
            return prompts
        if len(prompts) > 1:
            others = ", ".join(sorted(prompts.keys() - {_FILE}))
            raise ConfigurationError(f"prompts: file stands alone, as it holds all of them; beside it stands {others}")
        from spanscore.metrics.kit.tuned_prompts import fitted_prompts

        return fitted_prompts(prompts[_FILE], self.name, self.questions)


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
