"""Bundles: one judge call asks about the criteria of several metrics on the same sample, and answers each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, Self, TypeVar, cast
from weakref import WeakKeyDictionary

from pydantic import BaseModel, Field, ValidationError, create_model, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler

from spanscore.core.loop import after_turns
from spanscore.core.prompt import Prompt, PromptOrder
from spanscore.core.score import JudgeCall
from spanscore.judges.ask import ask
from spanscore.judges.effects.middleware import identity_of, prompt_order
from spanscore.judges.records import record, recorded_by
from spanscore.judges.score_context import ScoreContext, SharedRequest, asked_by, current_score
from spanscore.metrics.kit.step import Step
from spanscore.protocols import Judge

T = TypeVar("T", bound=BaseModel)

STEP: Final = "judge_criteria"
"""Name of the step that asks about several criteria."""
_TURNS: Final = 2
"""Iterations of the event loop after which a bundle is sent. A metric with several votes joins one iteration later."""
_INSTRUCTION: Final = (
    "Judge each criterion below on its own, as if it were the only one. The answer has one object for each."
)


class _CriteriaVerdicts(BaseModel):
    """An answer for each criterion; None for a missing or invalid answer. At least one answer is valid.

    A field's alias is the metric's name, because that name may collide with an attribute of pydantic (``copy``, ``json``).
    """

    @model_validator(mode="wrap")
    @classmethod
    def _read_valid_fields(cls, answer: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return read(answer)
        except ValidationError:
            if not isinstance(answer, Mapping):
                raise
            fields = cls.model_fields.items()
            valid: dict[str, Any] = {
                name: _read_verdict(field.annotation, answer.get(field.alias)) for name, field in fields
            }
            if not any(valid.values()):
                raise
            return cls.model_construct(**valid)

    def find_verdict(self, metric: str) -> Any:
        """Return the answer to a metric's criterion; None if it is missing or invalid."""
        return next(getattr(self, name) for name, field in type(self).model_fields.items() if field.alias == metric)


def _read_verdict(output: Any, value: Any) -> BaseModel | None:
    try:
        answer: BaseModel = output.model_validate(value)
    except ValidationError:
        return None
    return answer


@lru_cache(maxsize=64)
def _build_output_model(outputs: tuple[tuple[str, type[BaseModel]], ...]) -> type[BaseModel]:
    """Return an output model with one object for each name. Models are cached, so that a schema is built once."""
    fields: dict[str, Any] = {
        f"criterion_{position}": (output, Field(alias=name)) for position, (name, output) in enumerate(outputs)
    }
    return create_model("CriteriaVerdicts", __base__=_CriteriaVerdicts, **fields)


def bundle_prompt(
    steps: Mapping[str, Step[Any]], evidence: Mapping[str, Any], vote_index: int = 0, *, order: PromptOrder
) -> Prompt:
    """Return one question with several criteria.

    Args:
        steps: name of the metric → its step.
        evidence: variable → value, shared by all steps.
        vote_index: number of the vote, from 0.
    """
    criteria = {name: step.prompt(evidence, vote_index, order=order) for name, step in steps.items()}
    texts = [f"{name}:\n{prompt.instruction}" for name, prompt in criteria.items()]
    return replace(
        next(iter(criteria.values())),
        step=STEP,
        instruction="\n\n".join([_INSTRUCTION, *texts]),
        output=_build_output_model(tuple((name, prompt.output) for name, prompt in criteria.items())),
        examples=(),
        applies_when=None,
        criteria=criteria,
    )


async def ask_in_bundle(
    judge: Judge, metric: str, step: Step[T], evidence: Mapping[str, Any], *, vote_index: int = 0
) -> T:
    """Ask a metric's question in one judge call with other metrics' questions about the same evidence.

    A criterion without a verdict in the answer is asked again alone. Each score has an equal share of the tokens and the cost.
    Metrics share a call only if they have the same judge and budgets, and export the same content.

    Args:
        judge: the metric's judge. Judges with the same account and sampling parameters are the same.
        step: the metric's only step.
        evidence: variable → value; a call is shared by metrics with equal evidence.
        vote_index: number of the vote, from 0.

    Raises:
        JudgeError: there is no usable verdict, even after the criterion was asked alone.
    """
    bundle = _find_bundle(judge, metric, evidence, vote_index)
    answer = await bundle.answer(metric, step)
    if answer is None:
        alone = bundle_prompt({metric: step}, evidence, vote_index, order=prompt_order(judge))
        answer = cast("_CriteriaVerdicts", await ask(judge, alone)).find_verdict(metric)
    return cast("T", answer)  # an instance of the step's output


_open: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, list[_Bundle]]] = WeakKeyDictionary()
"""Loop → bundles that still accept criteria. Used on the loop thread."""


def _find_bundle(judge: Judge, metric: str, evidence: Mapping[str, Any], vote_index: int) -> _Bundle:
    """Return an open bundle that this metric can join, or a new bundle, which is sent after two iterations of the loop."""
    loop, score = asyncio.get_running_loop(), current_score()
    ledger = score.budget_ledger
    budgets = () if ledger is None else tuple(budget for budget in ledger.budgets if budget.holds_for(metric))
    key = (*identity_of(judge), vote_index, id(ledger), budgets, score.transcribes, score.quotes, *score.images)
    bundles = _open.setdefault(loop, {}).setdefault(key, [])
    for bundle in bundles:
        if metric not in bundle.waits and bundle.evidence == evidence:
            return bundle
    bundles.append(bundle := _Bundle(judge, evidence, vote_index))

    def close_and_send() -> None:
        bundles.remove(bundle)
        if not bundles:
            del _open[loop][key]
        bundle.send()

    after_turns(_TURNS, close_and_send)
    return bundle


class _Bundle(SharedRequest[str, BaseModel | None]):
    """One judge call for the criteria of several metrics. Call on the loop thread.

    ``SharedRequest`` has the waiting metrics by name (``waits``), and cancels the request with the last of them.
    """

    def __init__(self, judge: Judge, evidence: Mapping[str, Any], vote_index: int) -> None:
        super().__init__()
        self.evidence = evidence
        self._judge = judge
        self._vote_index = vote_index
        self._steps: dict[str, Step[Any]] = {}
        self._calls: list[JudgeCall] = []
        self._recorded = 0  # number of shares that scores have recorded

    async def answer(self, metric: str, step: Step[Any]) -> BaseModel | None:
        """Wait for the answer to one criterion; None if the judge's answer lacks it. The score records its share of the calls.

        A cancelled metric records nothing unless it is the last: then its score records all remaining shares.
        """
        self._steps[metric] = step
        wait = self.join(metric)
        try:
            with wait.score.asks():
                return await wait.answer
        finally:
            await self.leave(metric)
            if not wait.answer.cancelled() or not self.waits:
                self._record_share(wait.score)

    def send(self) -> None:
        """Send one request for all waiting metrics."""
        if self.waits:
            self._steps = {metric: self._steps[metric] for metric in self.waits}
            self.begin(next(iter(self.waits.values())), self._ask())

    async def _ask(self) -> None:
        prompt = bundle_prompt(self._steps, self.evidence, self._vote_index, order=prompt_order(self._judge))
        try:
            with recorded_by(self._calls.append), asked_by(self.score):
                # ``ask`` validates the answer against ``prompt.output``.
                verdicts = cast("_CriteriaVerdicts", await ask(self._judge, prompt))
        except BaseException as error:  # noqa: BLE001  (a SystemExit would end the loop; the waiting metrics get it)
            self.fail(error)
        else:
            for metric, wait in self.waits.items():
                if not wait.answer.done():
                    wait.answer.set_result(verdicts.find_verdict(metric))

    def _record_share(self, score: ScoreContext) -> None:
        """Record one share of each call; the last metric also records the shares of cancelled metrics."""
        first, count = self._recorded, len(self._steps)
        self._recorded = count if not self.waits else first + 1
        for call in self._calls:
            record(_compute_share(call, first, self._recorded, count))
        score.chosen.update(self.score.chosen)
        score.source = score.source or self.score.source


def _compute_share(call: JudgeCall, first: int, end: int, count: int) -> JudgeCall:
    """Return the shares ``first`` to ``end - 1`` of ``count`` equal shares of a call; all shares add up to the call."""

    def part(tokens: int) -> int:
        return tokens * end // count - tokens * first // count

    transcript = call.transcript
    return replace(
        call,
        input_tokens=part(call.input_tokens),
        output_tokens=part(call.output_tokens),
        cached_input_tokens=part(call.cached_input_tokens),
        cache_write_tokens=part(call.cache_write_tokens),
        cost_usd=None if call.cost_usd is None else call.cost_usd * (end - first) / count,
        transcript=transcript if not first or transcript is None else transcript.without_question(),
    )
