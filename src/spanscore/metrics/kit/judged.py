"""Base classes of built-in metrics: NamedMetric (name, pass mark) and JudgedMetric (judge, replaceable prompts)."""

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
from spanscore.core.score import check_metric_name
from spanscore.errors import ConfigurationError
from spanscore.judges.build import shared_judge
from spanscore.judges.effects.middleware import unwrapped
from spanscore.judges.jury import Jury
from spanscore.judges.lexical.judge import is_offline
from spanscore.judges.rendering import SAMPLE_PARTS
from spanscore.judges.score_context import current_score
from spanscore.metrics.kit.base import MULTI_TURN, BaseMetric, parse_language
from spanscore.metrics.kit.condition import contradictions_in
from spanscore.metrics.kit.step import OwnPrompts, Step, override_prompts
from spanscore.protocols import Judge

if TYPE_CHECKING:  # loaded when a metric is fitted or adapted, or was
    from spanscore.metrics.kit.adapting import Adapted
    from spanscore.metrics.kit.tuned_prompts import Fitted
    from spanscore.metrics.kit.tuning import FitSettings, OnProgress

T = TypeVar("T", bound=BaseModel)
R = TypeVar("R")

_FILE = "file"
"""Key of ``prompts`` for the path of a file that ``fit`` or ``adapt`` wrote; no step has this name."""
_LONG_FIELDS = frozenset({"retrieved_contexts", "reference_contexts", MULTI_TURN})
"""Fields, and a kind of sample, that are usually the longest part of a prompt."""
_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
"""Names of metrics; names of attributes contain them."""


class NamedMetric(BaseMetric):
    """Base class of metrics with a configurable name and pass mark.

    Subclasses set the defaults ``name`` and ``scale`` as class attributes, or on ``self`` before ``super().__init__()``.

    Args:
        name: name of the metric and its scores; None = the class's name.
        pass_at: lowest quality (0…1) that passes; None = the scale's own pass mark.

    Raises:
        ConfigurationError: the name is invalid or reserved, or ``pass_at`` is outside 0…1.
    """

    def __init__(self, *, name: str | None = None, pass_at: float | None = None) -> None:
        self.name = self.name if name is None else name
        if not isinstance(self.name, str) or not _NAME.match(self.name):
            raise ConfigurationError(
                f"metric name {self.name!r}: use lower snake case, such as 'harmless' or 'on_topic'"
            )
        check_metric_name(self.name)
        if pass_at is not None:
            if not isinstance(pass_at, int | float) or not 0.0 <= pass_at <= 1.0:
                raise ConfigurationError(f"pass_at is {pass_at!r}; it is on the quality scale, between 0 and 1")
            self.scale = replace(self.scale, pass_at=float(pass_at))


class JudgedMetric(NamedMetric):
    """Base class of metrics that ask a judge.

    Subclasses set ``questions`` and ``scale`` as class attributes, or on ``self`` before ``super().__init__()``.

    Attributes:
        questions: the steps with the built-in prompts.

    Args:
        judge: a LangChain chat model, a Judge, or a name (``"openai:gpt-4o-mini"``, ``"lexical"``). Metrics with the same chat
            model share its limits. A ``Jury`` scores with several judges.
        name: name of the metric and its scores; None = the class's name.
        pass_at: lowest quality (0…1) that passes; None = the scale's own pass mark.
        prompts: step name → ``{"instruction": …, "examples": […]}``, which replace the built-in prompt; or
            ``{"file": "fitted.json"}``, a file that ``fit`` or ``adapt`` wrote. Part of the version. None = the built-in
            prompts.

    Raises:
        ConfigurationError: the judge is unknown, the name is invalid or reserved, ``pass_at`` is outside 0…1, or ``prompts``
            names an unknown step or the file of another metric.
    """

    questions: tuple[Step[Any], ...]
    _judge: Judge
    _language: str | None = None
    """Two-letter code of the language that ``adapt`` uses by default; None = ``adapt`` needs its argument."""

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
        """Ask the judge one of ``questions``, with the user's prompt if there is one, and return an instance of its output.

        Args:
            evidence: variable → JSON value in the judge's prompt; variables with None are left out.
            vote_index: number of the vote, from 0. To the cache, equal questions with different numbers are different.
            repair: whether an unusable answer is repaired by a second call; False if asking again is cheaper.

        Raises:
            JudgeError: there is no usable answer. Do not catch it: ``score`` turns it into an outcome.
            NotApplicableError: the step's condition does not hold. Do not catch it: ``score`` turns it into an outcome.
        """
        own = cast("Step[T]", self.steps[step.name])  # override_prompts() keeps name and output
        answer = await self._answer_step(own, evidence, vote_index=vote_index, repair=repair)
        current_score().contradictions += contradictions_in(answer, lower=self.scale.direction == "lower")
        return answer

    async def _answer_step(self, step: Step[T], evidence: Mapping[str, Any], *, vote_index: int, repair: bool) -> T:
        return await step.ask(self._judge, evidence, vote_index=vote_index, repair=repair)

    async def fit(
        self,
        annotations: Iterable[AnnotatedSample | Mapping[str, Any]] | str | Path,
        **settings: Unpack[FitSettings],
    ) -> Fitted:
        """Fit the judge's prompt to human labels, and keep the change only if a test shows that it helps.

        Each candidate is the metric with other demonstrations in its prompt, drawn from 30 % of the labels. The candidate with
        the most correct verdicts on the next 35 % is tested once on the last 35 %. It is kept if the exact one-sided McNemar
        test gives p ≤ .05 there. A metric that cannot be taught is therefore changed in at most one run of twenty. A kept
        candidate has a new version and a new evaluator version. This metric is not changed: use ``Fitted.metric``.

        Cost: about (candidates + 3) × 0.35 scores per label. Equal questions are asked once.

        Args:
            annotations: labelled samples, ``{"user_input": …, "response": …, "human": True}``, or the path of a file of them:
                JSON lines, or an export of ragas's app. Labels of one ``session`` or ``trace_id`` stay together. Give 100 or
                more: fewer labels seldom show even a large gain.
            demonstrations: worked cases in each candidate's prompt; default 4. Every later question has them as content.
            candidates: number of candidates, with those of the rewriter; default 16.
            rewriter: a chat model, a judge or a name. The model reads the judge's mistakes and proposes the instruction of
                every other candidate. None = the instruction stays.
            redactor: the scorer's redactor, run on all texts before a model reads them. None = texts are sent unredacted.
            seed: seed of the split and of the candidates; default 0.
            progress: called after each judged sample; must not block. None = no call.

        Raises:
            ConfigurationError: no step of the metric can be taught by a label of a sample (the message names the step), the
                labels cannot teach the step, or the redactor fails on a sample.
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

        return await loop.await_on_loop(FittingRun(metric=self, annotations=annotations, **settings).run())

    def fit_sync(
        self,
        annotations: Iterable[AnnotatedSample | Mapping[str, Any]] | str | Path,
        **settings: Unpack[FitSettings],
    ) -> Fitted:
        """Run ``fit`` and block until it ends, even inside a running loop (Jupyter). An interrupt stops further judge calls."""
        return loop.run(self.fit(annotations, **settings))

    async def adapt(
        self, judge: Any = None, language: str | None = None, *, progress: OnProgress | None = None
    ) -> Adapted:
        """Translate the prompts in force with a judge, and check that the translation has all words that a program reads.

        The instruction and the texts of the examples are translated. Keys, numbers, names in backticks, placeholders, verdict
        words and the form of the examples stay, and so does a condition (``applies_when``), which is part of the metric's
        definition. The translation has a new evaluator version. This metric is not changed: use ``Adapted.metric``.

        Judge calls: one per step, and one more for each translation that fails a check. Equal questions are asked once.

        Source: ragas's ``PromptMixin.adapt_prompts``. Deviations: the translation is checked, and a person reviews its file.

        Args:
            judge: a chat model, a judge or a name, which translates. None = the metric's judge.
            language: language of the prompts, ``"de"`` or ``"german"``. None = the metric's parameter ``language``.
            progress: called after each step; must not block. None = no call.

        Raises:
            ConfigurationError: the language is unknown, or the judge is the offline judge or a jury.
            JudgeUnparseable: a translation fails a check, also after one repair; the message names the step and the lost word.
            JudgeError: the judge gave no answer.
        """
        translator = self._judge if judge is None else shared_judge(judge)
        if is_offline(translator):
            raise ConfigurationError(f"{self.name} cannot be adapted: the offline judge cannot translate; give a model")
        if isinstance(translator, Jury):
            raise ConfigurationError(f"{self.name} cannot be adapted: a jury cannot translate; give one judge")
        code = self._language if language is None else parse_language(self.name, language)
        if code is None:
            raise ConfigurationError(f"{self.name} cannot be adapted without a language; give one, such as 'german'")
        from spanscore.metrics.kit.adapting import adapt_prompts

        return await loop.await_on_loop(adapt_prompts(self, translator, code, progress=progress))

    def adapt_sync(
        self, judge: Any = None, language: str | None = None, *, progress: OnProgress | None = None
    ) -> Adapted:
        """Run ``adapt`` and block until it ends, even inside a running loop (Jupyter)."""
        return loop.run(self.adapt(judge, language, progress=progress))

    def with_changes(self, *, judge: Judge | None = None, prompts: OwnPrompts | None = None) -> Self:
        """Return a copy of the metric with another judge or other prompts.

        Args:
            judge: the copy's judge; None = the same judge.
            prompts: the copy's parameter ``prompts``, which replaces this metric's; None = the same prompts.

        Raises:
            ConfigurationError: ``prompts`` names an unknown step or the file of another metric.
        """
        changed = copy(self) if judge is None else self._with_judge(judge)
        vars(changed).pop("version", None)  # the cached version belongs to the old prompts
        if prompts is not None:
            changed.steps = changed._steps_with(prompts)
        return changed

    def _steps_with(self, prompts: OwnPrompts | None) -> dict[str, Step[Any]]:
        """Return the steps with the user's prompts. Examples come first if the judge reads no contexts and no conversation."""
        if prompts is not None and _FILE in prompts:
            if len(prompts) > 1:
                others = ", ".join(sorted(prompts.keys() - {_FILE}))
                raise ConfigurationError(
                    f"prompts: file contains all prompts, so no other key is allowed; remove {others}"
                )
            from spanscore.metrics.kit.tuned_prompts import prompts_in

            prompts = prompts_in(prompts[_FILE], self.name, self.questions)
        kinds_and_fields = {*self._shown_fields, *chain.from_iterable(self._shown_fields.values())}
        examples_first = not kinds_and_fields & _LONG_FIELDS
        return override_prompts(self.questions, prompts, examples_first=examples_first)

    @property
    def _shown_fields(self) -> Mapping[str, tuple[str, ...]]:
        """Kind of sample → fields that the judge may be shown."""
        return self.requires

    def beginning(self, kind: str) -> tuple[str, int]:
        """Return the first field of a sample in the metric's prompts, and the least number of questions that begin with it.

        Args:
            kind: kind of sample, ``single_turn`` or ``multi_turn``.
        """
        shown = self._shown_fields.get(kind, ())
        field = next((field for field in SAMPLE_PARTS if field in shown), "")
        one_call_for_all_votes = getattr(unwrapped(self._judge), "answers_several", False)
        return field, 1 if one_call_for_all_votes else self.votes


def refuse_unknown(name: str, parameter: str, value: Any, choices: Any) -> None:
    """Check the value of a metric's parameter."""
    if value not in get_args(choices):
        raise ConfigurationError(f"{name}: {parameter} is {value!r}; it is one of {', '.join(get_args(choices))}")


async def ask_concurrently(questions: Iterable[Coroutine[Any, Any, R]]) -> list[R]:
    """Ask independent questions concurrently, and return their answers in order.

    The first failure is raised, and cancels the open questions, because their answers would only cost money.
    """
    tasks = [asyncio.ensure_future(question) for question in questions]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
