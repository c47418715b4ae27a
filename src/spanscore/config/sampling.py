"""The ``sampling`` section: the share of units that is scored, and rules that score some units more often."""

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

_KEY_BYTES = 64


class ScoreBelow(SettingsPart):
    """Units with a low quality by a metric that has no judge. A unit without a score of that metric does not match.

    Attributes:
        metric: name of the metric; all other metrics wait for its score.
        below: upper bound of the quality, exclusive, (0, 1].
    """

    section: ClassVar[str] = "sampling.rules.when.score"
    metric: str
    below: Share


class RuleCondition(SettingsPart):
    """The units that a rule matches. All conditions must match; a missing condition matches every unit.

    Attributes:
        status: ``error``, or ``ok`` for every other status; None = any status.
        workflow: name of the root run; None = any name.
        slower_than: smallest duration of the unit; None = any duration.
        metadata: key → value; the root run's metadata must have all of them; None = any metadata.
        any_error: True = a span or step of the unit ended in an error, even if it was handled and the run answered; False = any
            unit.
        min_tool_calls: smallest number of tools that the unit called; None = any number.
        model: ``gen_ai.request.model`` of a span of the unit; None = any model.
        score: low quality of the unit by a metric that has no judge; None = any quality.
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
    """A rate for matching units, used if it is larger than the metric's own rate.

    Attributes:
        when: conditions on a unit; ``RuleCondition()`` and ``{}`` match every unit.
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
    """Units that are kept for a while with their samples, and judged if ``feedback()`` reports a low quality.

    Attributes:
        rate: share of units that are kept, (0, 1]. One random number per unit decides on this rate and on all other rates.
        below: quality of a feedback, (0, 1], below which its unit is judged; a word counts by its position in its scale.
        max_age: time for which a sample is kept.
    """

    section: ClassVar[str] = "sampling.feedback"
    rate: Share
    below: Share = 0.5
    max_age: PositiveSeconds = 600.0


class HeadSampling(SettingsPart):
    """Shares of the traffic that head samplers keep, by service, for head samplers that do not write ``ot=th``.

    Attributes:
        by_service: ``service.name`` of the unit's resource → share of its traffic that arrives here, (0, 1]; 1 = no head
            sampler drops any.
        default: share of every other service, (0, 1].
    """

    section: ClassVar[str] = "sampling.head_sampling_rate"
    by_service: Table[str, Share] = Field(default_factory=FrozenDict)
    default: Share = 1.0


def head_shares(rate: HeadSampling | float) -> tuple[Mapping[str, float], float]:
    """Return the shares by service, and the share of every other service."""
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
        HeadSampling, BeforeValidator(_read_head_sampling), AlsoWritten("number"), AlsoWritten("string", PERCENT)
    ]


def _check_key(key: bytes | None) -> bytes | None:
    if key is not None and not 0 < len(key) <= _KEY_BYTES:
        raise ValueError(f"has {len(key)} bytes; allowed are 1 to {_KEY_BYTES}")
    return key


class Sampling(SettingsPart):
    """The share of units that is scored, and rules that score some units more often.

    Attributes:
        rate: share of units that each metric scores, [0, 1].
        rates: metric name → share of units that this metric scores, [0, 1]. Other metrics use ``rate``.
        rules: rates of matching units. The largest of the metric's rate and the rates of the matching rules is used.
        key: key of the sampling hash, at most 64 bytes; None = a published key, so that replicas agree.
        head_sampling_rate: share of the traffic that arrives here, (0, 1], for traces whose head sampler does not write its
            threshold (``ot=th``): a scored unit then also represents dropped units. Or shares by ``service.name`` of the
            unit's resource, with a default: ``{by_service: {search: 0.1}, default: 1}``.
        feedback: units that are kept, and judged if ``feedback()`` reports a low quality. Scores of these units have
            the source ``feedback`` and are in no mean. None = no unit is kept.
    """

    section: ClassVar[str] = "sampling"
    rate: Rate = 1.0
    rates: Table[str, Rate] = Field(default_factory=FrozenDict)
    rules: Annotated[Items[Rule], AfterValidator(_name_rules)] = ()
    key: Annotated[bytes | None, AfterValidator(_check_key)] = None
    head_sampling_rate: _HeadSampling = HeadSampling.model_construct()
    feedback: FeedbackSampling | None = None

    def rates_of(self, metric: str) -> tuple[float, float]:
        """Return the lowest and the highest sampling rate of a metric: rules can only raise it."""
        rate = self.rates.get(metric, self.rate)
        return rate, max([rate, *(rule.rate for rule in self.rules)])
