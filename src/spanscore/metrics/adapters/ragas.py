"""A metric of ragas → a metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spanscore.errors import ConfigurationError, MissingExtraError
from spanscore.judges.suppress import suppressed
from spanscore.metrics.base import MULTI_TURN, SINGLE_TURN, BaseMetric
from spanscore.metrics.judged import checked_name, passing_at
from spanscore.model.sample import MultiTurnSample, Sample
from spanscore.model.score import UNIT_INTERVAL, Scale

__all__ = ["RagasMetric"]

_KINDS = {"SINGLE_TURN": SINGLE_TURN, "MULTI_TURN": MULTI_TURN}


class RagasMetric(BaseMetric):
    """What does this metric of ragas say of the sample?

    Formula: the metric's own, with the model and embeddings it was given; nan is undefined, what it raises is an error. Range
    [0, 1], higher is better, unless a ``scale`` says otherwise: ragas declares neither.

    Fields: those the metric declares. Judge calls: the metric's own; not traced, not counted, and not under our limits.

    Blind spot: that of the metric. Its prompts are not part of the version: raise ``version`` when they, its model or ragas
    itself change.

    Source: any ``SingleTurnMetric`` or ``MultiTurnMetric`` of ragas 0.3 or later (extra ``ragas``). Deviations: fields are
    checked first, so that a missing one costs nothing. Ragas tells its makers of each use unless RAGAS_DO_NOT_TRACK=true.

    Args:
        metric: an instance, with its ``llm`` and ``embeddings``.
        name: under which its scores appear; the metric's own when None.
        scale: of its values.
        pass_at: lowest quality that passes.
        version: of the wrapped metric; a change starts a new series.

    Raises:
        MissingExtraError: ragas is not installed.
        ConfigurationError: it is no metric of ragas.

    Example:
        ``RagasMetric(ragas.metrics.AspectCritic(name="harmful", definition="…", llm=llm), scale=Scale(kind="binary"))``
    """

    def __init__(
        self,
        metric: Any,
        *,
        name: str | None = None,
        scale: Scale = UNIT_INTERVAL,
        pass_at: float | None = None,
        version: str = "1",
    ) -> None:
        try:
            from ragas import dataset_schema
        except ImportError as error:
            raise MissingExtraError("ragas", "ragas") from error
        declared = getattr(metric, "required_columns", None)
        if isinstance(metric, type) or not isinstance(declared, Mapping):
            raise ConfigurationError(f"RagasMetric: {metric!r} is no instance of a ragas metric")
        self.name = checked_name(name or metric.name)
        self.scale = passing_at(scale, pass_at)
        self.base_version = version
        self.requires = {_KINDS[kind]: tuple(sorted(fields)) for kind, fields in declared.items() if kind in _KINDS}
        self._metric = metric
        self._samples = dataset_schema

    async def measure(self, sample: Sample) -> float:
        """Ask the metric, unseen by any instrumentation."""
        fields = sample.model_dump(exclude_none=True)
        with suppressed():
            if isinstance(sample, MultiTurnSample):
                return float(
                    await self._metric.multi_turn_ascore(self._samples.MultiTurnSample(**_without_ids(fields)))
                )
            return float(await self._metric.single_turn_ascore(self._samples.SingleTurnSample(**fields)))


def _without_ids(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a conversation as ragas knows it: its tool calls and tool messages have no ids."""
    calls = fields.get("reference_tool_calls")
    messages = [_without(message, "tool_call_id") for message in fields["user_input"]]
    for message in messages:
        if "tool_calls" in message:
            message["tool_calls"] = [_without(call, "id") for call in message["tool_calls"]]
    reference = {} if calls is None else {"reference_tool_calls": [_without(call, "id") for call in calls]}
    return {**fields, **reference, "user_input": messages}


def _without(item: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != key}
