"""Which share of the units is scored, and which units are scored more often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from spanscore.config.kinds import (
    PERCENT,
    AlsoWritten,
    Count,
    FrozenDict,
    Items,
    PositiveSeconds,
    Rate,
    Seconds,
    SettingsPart,
    Share,
    Table,
)

__all__ = ["FeedbackSampling", "HeadSampling", "Rule", "RuleCondition", "Sampling", "ScoreBelow", "head_shares"]

_KEY_BYTES = 64


class ScoreBelow(SettingsPart):
    """Units to which a metric that asks no judge gave a lower quality; a unit without its score is none of them.

    Attributes:
        metric: name of the metric; the other metrics wait for its score.
        below: quality, (0, 1].
    """

    section: ClassVar[str] = "sampling.rules.when.score"
    metric: str
    below: Share


class RuleCondition(SettingsPart):
    """Which units a rule is for. All conditions must match; a condition that is left out matches every unit.

    Attributes:
        status: ``error`` or ``ok`` (every status that is not an error); None = any.
        workflow: name of the root run; None = any.
        slower_than: duration; units that took at least as long; None = any.
        metadata: key → value that the root run's metadata must have, all of them; None = any.
        any_error: True: a span or step of the unit ended in error, also one that was handled; the run may have answered.
        min_tool_calls: smallest number of tools that the unit called; None = any number.
        model: ``gen_ai.request.model`` of a span of the unit; None = any.
        score: units to which a metric that asks no judge gave a low quality; None = any.
    """

    section: ClassVar[str] = "sampling.rules.when"
    status: Literal["error", "ok"] | None = None
    workflow: str | None = None
    slower_than: Seconds | None = None
    metadata: Table[str, Any] | None = None
    any_error: bool = False
    min_tool_calls: Count | None = None
    model: str | None = None
    score: ScoreBelow | None = None


class Rule(SettingsPart):
    """A rate for matching units, which holds if it is larger than the metric's own rate.

    Attributes:
        when: which units; ``RuleCondition()`` and ``{}`` match every unit.
        rate: probability in [0, 1].
        name: value of ``spanscore.sampling.rule`` on the scores; empty = ``rule_`` and its position, from 1.
    """

    section: ClassVar[str] = "sampling.rules"
    when: RuleCondition
    rate: Rate
    name: str = ""


def _name_rules(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(
        rule if rule.name else rule.model_copy(update={"name": f"rule_{position}"})
        for position, rule in enumerate(rules, start=1)
    )


class FeedbackSampling(SettingsPart):
    """Units whose samples are kept for a while, and judged if ``feedback()`` reports a low quality of them.

    Attributes:
        rate: share of the units that are kept, (0, 1]. The draw is that of the other rates.
        below: quality of a feedback, (0, 1], below which its unit is judged; a word counts by its place in its scale.
        max_age: how long a sample is kept.
    """

    section: ClassVar[str] = "sampling.feedback"
    rate: Share
    below: Share = 0.5
    max_age: PositiveSeconds = 600.0


class HeadSampling(SettingsPart):
    """Shares of the traffic that head samplers keep, where they write no ``ot=th``: one for each service.

    Attributes:
        by_service: ``service.name`` of the unit's resource → share of its traffic that comes here, (0, 1]; 1 states that
            no head sampler drops any.
        default: share of every other service, (0, 1].
    """

    section: ClassVar[str] = "sampling.head_sampling_rate"
    by_service: Table[str, Share] = Field(default_factory=FrozenDict)
    default: Share = 1.0


def head_shares(rate: HeadSampling | float) -> tuple[Mapping[str, float], float]:
    """Return the shares by service, and that of every other service."""
    return (
        (rate.by_service, rate.default) if isinstance(rate, HeadSampling) else ({}, HeadSampling(default=rate).default)
    )


def _read_head_sampling(value: Any) -> Any:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        return {"default": value}
    if isinstance(value, dict) and (unknown := sorted(map(str, value.keys() - HeadSampling.model_fields.keys()))):
        raise ValueError(f"has {unknown[0]!r}; write {{by_service: {{{unknown[0]}: 0.1}}, default: 1}}")
    return value


if TYPE_CHECKING:
    _HeadSampling = HeadSampling | float
else:
    _HeadSampling = Annotated[
        HeadSampling,
        BeforeValidator(_read_head_sampling),
        AlsoWritten("number"),
        AlsoWritten("string", PERCENT),
    ]


def _check_key(key: bytes | None) -> bytes | None:
    if key is not None and not 0 < len(key) <= _KEY_BYTES:
        raise ValueError(f"has {len(key)} bytes; allowed are 1 to {_KEY_BYTES}")
    return key


class Sampling(SettingsPart):
    """Which share of the units is scored, and which are scored more often.

    Attributes:
        rate: share of units that each metric scores, [0, 1].
        rates: metric name → a share of its own.
        rules: rates of matching units; the largest rate of a rule that matches, or of the metric, is in force.
        key: of the sampling hash, at most 64 bytes; None = a published one, so that replicas agree.
        head_sampling_rate: share of the traffic that comes here at all, (0, 1], for traces whose head sampler does not write
            it on them (``ot=th``): a scored unit stands for the dropped ones, too. Or shares by ``service.name`` of the
            unit's resource, and of every other service: ``{by_service: {search: 0.1}, default: 1}``.
        feedback: which units are kept in case that ``feedback()`` reports a low quality, and then judged. Their scores have the
            source ``feedback``, and are in no mean. None = no unit is kept.
    """

    section: ClassVar[str] = "sampling"
    rate: Rate = 1.0
    rates: Table[str, Rate] = Field(default_factory=FrozenDict)
    rules: Annotated[Items[Rule], AfterValidator(_name_rules)] = ()
    key: Annotated[bytes | None, AfterValidator(_check_key)] = None
    head_sampling_rate: _HeadSampling = HeadSampling.model_construct()
    feedback: FeedbackSampling | None = None

    def rates_of(self, metric: str) -> tuple[float, float]:
        """Return the least and the most of a metric's sampling rate: rules only raise it."""
        rate = self.rates.get(metric, self.rate)
        return rate, max([rate, *(rule.rate for rule in self.rules)])
