"""The configuration tree: plain values with their defaults and bounds.

The keys of a scorer's options are not among them, but for those that others read, too: ``line/configuration.py`` adds them.
"""

from __future__ import annotations

import re
from math import nan
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from spanscore.settings.budget import Budget
from spanscore.settings.durations import seconds_of
from spanscore.settings.sizes import bytes_of

__all__ = [
    "AlertSettings",
    "AskedSettings",
    "AttachSettings",
    "BudgetSettings",
    "Count",
    "HourOfWeekBaseline",
    "JudgeSettings",
    "MonitoringSettings",
    "Named",
    "OffsetBaseline",
    "PlaceSettings",
    "PositiveSeconds",
    "PriceSettings",
    "Rate",
    "RuleSettings",
    "Seconds",
    "ServeSettings",
    "Settings",
    "SettingsPart",
    "ShadowSettings",
    "Share",
]


def _seconds(value: Any) -> Any:
    return seconds_of(value) if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0)]
PositiveSeconds = Annotated[Seconds, Field(gt=0)]
Rate = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]
PerMinute = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _bytes(value: Any) -> Any:
    return bytes_of(value) if isinstance(value, str) else value


def _web_address(text: str) -> str:
    if urlsplit(text).scheme not in {"http", "https"} or not urlsplit(text).netloc or not text.isprintable():
        raise ValueError(f"{text!r} is no address of the web; write one that begins with http:// or https://")
    return text


WebAddress = Annotated[str, AfterValidator(_web_address)]
"""What a person may click on in a notification."""


Size = Annotated[int, BeforeValidator(_bytes), Field(ge=1)]
"""In bytes."""


def _named(value: Any) -> Any:
    named = {value: None} if isinstance(value, str) else value
    if not isinstance(named, dict) or not all(isinstance(params, dict | None) for params in named.values()):
        raise ValueError("write a name, alone or with its parameters: my_pkg:Name, or {'my_pkg:Name': {key: value}}")
    return value


Named = Annotated[str | dict[str, dict[str, Any] | None], BeforeValidator(_named)]
"""A part that is found by its name."""


class SettingsPart(BaseModel):
    """A section: keys with values, and no other keys."""

    # An application that reads no file builds none of them: 2 ms of its start.
    # A key of the judge is called ``model_kwargs``, which older pydantics would keep for themselves.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, protected_namespaces=())


class PriceSettings(SettingsPart):
    """What a model costs: USD per million tokens, read (``input``) and written (``output``).

    ``cached_input`` is for those that the provider reads from its cache, None = as ``input``; ``batch`` is the share of it all
    that is billed for answers at the price of batches (``service_tier: flex``).
    """

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cached_input: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    batch: Rate = 0.5

    def numbers(self) -> tuple[float, ...]:
        """Return it as ``judge(…, prices=…)`` takes it."""
        return (self.input, self.output, self.input if self.cached_input is None else self.cached_input, self.batch)


class AskedSettings(SettingsPart):
    """A chat model by ``provider:model``, and how it is asked: keywords of ``spanscore.judge()``, which says what each means.

    A key to it is in the environment or in a file of its own, never in this one.
    """

    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_file: str | None = None
    model_kwargs: dict[str, Any] = Field(default_factory=dict)
    max_concurrency: Count | None = None
    timeout: PositiveSeconds | None = None
    max_wait: PositiveSeconds | None = None
    attempts: Count | None = None
    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    max_input_tokens: Count | None = None
    max_answer_bytes: Size | None = None
    structured: Literal["auto", "schema", "tools", "json", "text"] = "auto"

    @property
    def has_own_key(self) -> bool:
        """Whether it is asked with another key than its provider's usual one, or with none."""
        return bool(self.api_key_env or self.api_key_file or self.base_url)


def _by_name(value: Any) -> Any:
    return {"model": value} if isinstance(value, str) else value


class JudgeSettings(AskedSettings):
    """Who judges: a chat model, or ``lexical`` for the offline judge; and who does while it is away.

    Of what stands in for it all that is not set is as of the judge, but for address, key and parameters. ``prices`` are by
    model as its provider names it in the answer, or by patterns (``gpt-4o*``), of which the longest wins; a dated name has the
    price of the undated one.
    """

    model: str = "lexical"
    fallback: list[Annotated[AskedSettings, BeforeValidator(_by_name)]] = Field(default_factory=list)
    cache: str | None = None
    prices: dict[str, PriceSettings] = Field(default_factory=dict)


class BudgetSettings(SettingsPart):
    """What judges may be paid per window: one of ``usd``, ``tokens`` and ``calls``, of one metric or of all together."""

    usd: float | None = None
    tokens: float | None = None
    calls: float | None = None
    per: str | float
    metric: str | None = None

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        self.budget()
        return self

    def budget(self) -> Budget:
        """Return it as a scorer takes it.

        Raises:
            ConfigurationError: it cannot be.
        """
        return Budget(**self.model_dump())


class ScoreBelow(SettingsPart):
    """Units to which a metric that asks no judge gave a lower quality."""

    metric: str
    below: Annotated[float, Field(gt=0, le=1)]


class ShadowSettings(AskedSettings):
    """A metric's second judge (``metrics: [{faithfulness: {shadow: {model: …}}}]``): asked beside the first, counted apart.

    What is left out is as of ``judge``, but for its fallback; address, key and parameters only where the provider is the same.
    ``budget`` is of this metric; left out, it is as much again as the judge's.
    """

    model: str = ""
    cache: str | None = None
    budget: list[BudgetSettings] | None = None


class RuleWhen(SettingsPart):
    """Which units a rule is for; what is left out matches all, and of ``metadata`` all must match."""

    status: Literal["error", "ok"] | None = None
    workflow: str | None = None
    slower_than: Seconds | None = None
    metadata: dict[str, Any] | None = None
    any_error: bool = False
    min_tool_calls: Count | None = None
    model: str | None = None
    score: ScoreBelow | None = None


class RuleSettings(SettingsPart):
    """Score units that match ``when`` at ``rate``, where that is larger than the metric's own rate."""

    when: RuleWhen
    rate: Rate
    name: str | None = None


class AttachSettings(SettingsPart):
    """Where scores land."""

    span: bool = True
    evaluation_span: bool = True
    event: bool = True
    instruments: bool = True


class PlaceSettings(SettingsPart):
    """Where question, answer and contexts are found, as key paths; None = where they usually are."""

    user_input: str | None = None
    response: str | None = None
    retrieved_contexts: str | None = None


class HourOfWeekBaseline(SettingsPart):
    """What is normal in each hour of the week: a file of ``spanscore baseline``; a path is seen from the working directory."""

    hour_of_week: str


class OffsetBaseline(SettingsPart):
    """What is normal is what was this long before, in whole days. It follows a slow decline, which then alarms nobody."""

    offset: float


_DAY_S = 86_400
_BASELINES = "write a quality, [0, 1], {hour_of_week: FILE} of `spanscore baseline`, or {offset: 7d}"


def _baseline(value: Any) -> float | HourOfWeekBaseline | OffsetBaseline | None:
    match value:
        case None | HourOfWeekBaseline() | OffsetBaseline():
            return value
        case {"hour_of_week": str(path), **rest} if not rest:
            return HourOfWeekBaseline(hour_of_week=path)
        case {"offset": long_before, **rest} if not rest:
            return OffsetBaseline(offset=_whole_days(long_before))
    try:
        found = nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        found = nan
    if not 0 <= found <= 1:  # nor where it is no number
        raise ValueError(_BASELINES)
    return found


def _whole_days(value: Any) -> float:
    seconds = float(_seconds(value)) if isinstance(value, str | int | float) else 0.0
    if seconds <= 0 or seconds % _DAY_S:
        raise ValueError("an offset is a number of whole days, as the mean swings with the day; write offset: 7d")
    return seconds


LOOK_BACK_S = 300.0
"""For so long Prometheus sees a value of a series that gets no more of them."""
OURS = ("alertname", "severity", "metric", "window", "segment", "reason")
"""Labels that alerts have already."""


class AlertSettings(SettingsPart):
    """When one metric is worth a page. All numbers are quality: [0, 1], 1 good, whatever the metric's own scale.

    Attributes:
        baseline: the quality that is normal, measured and then frozen: a number, or ``{hour_of_week: FILE}``, or
            ``{offset: 7d}``; None = drops are not watched.
        min_drop: smallest drop below the baseline that matters; a quarter of it is tolerated.
        false_alarm_every: at most one false drop alarm in this time, over all windows, metrics and segments together.
        threshold: lowest acceptable mean, whatever is normal; None = none.
        slack: how far the true mean strays from its baseline by itself, as a standard deviation; added to the standard error
            of every window. None = what the file of the baseline has learned, else 0.
        min_scores: effective scores a window needs before anything is said; None = 100, for a pass/fail metric with a
            baseline of 0.95 and more 400.
        z: standard errors that a drop must have; None = computed from ``false_alarm_every``.
        series: only this series (metric version, judge and votes), which the metric must have, is watched; None = whatever
            is scored.
        severity: label of the alerts on drops and on the threshold.
        labels: more labels of every alert on the metric: who is told.
        runbook: address that every alert on the metric links to; None = none.
    """

    baseline: Annotated[float | HourOfWeekBaseline | OffsetBaseline | None, BeforeValidator(_baseline)] = None
    min_drop: Annotated[float, Field(gt=0, lt=1)] = 0.05
    slack: Rate | None = None
    false_alarm_every: PositiveSeconds = 30 * 86_400.0
    threshold: Rate | None = None
    min_scores: int | None = Field(default=None, ge=1)
    z: Annotated[float, Field(gt=0)] | None = None
    series: str | None = None
    severity: Annotated[str, Field(min_length=1)] = "warning"
    labels: dict[str, str] = Field(default_factory=dict)
    runbook: WebAddress | None = None

    @field_validator("labels")
    @classmethod
    def _are_free(cls, labels: dict[str, str]) -> dict[str, str]:
        wrong = [name for name in labels if name in OURS or not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name)]
        if wrong:
            raise ValueError(
                f"{wrong[0]!r} cannot be a label: write a word of letters, digits and _, but {', '.join(OURS)}"
            )
        return labels

    @model_validator(mode="after")
    def _can_drop(self) -> Self:
        if isinstance(self.baseline, float) and self.baseline <= self.min_drop:
            raise ValueError(f"a baseline of {self.baseline} cannot drop by {self.min_drop}: lower min_drop")
        return self


class MonitoringSettings(SettingsPart):
    """What sums are told apart by, and what all alerts share.

    Attributes:
        segments: metadata or attribute key → values that are told apart in sums and watched by alerts of their own.
        interval: between two evaluations of the rules; at most Prometheus' look-back, 5 min.
        windows: over which the mean is watched; a short one finds a large drop soon, a long one a small drop at all.
        no_scores_after: without a single score for this long, something is broken; None = for the time of 15 scores, by those
            of the last day, at least 30 min and at most 24 h.
        services: which are to score; one that ever did and is not among them is not missed. Empty = each that ever did.
        max_failed: highest acceptable share of failed evaluations.
        dashboard_url: what an alert links to; ``{metric}``, ``{service}``, ``{from}`` and ``{to}`` (Unix ms) are replaced.
        trace_url: where the traces of failed units are listed, with the same places. None = no link.
    """

    segments: dict[str, list[str]] = Field(default_factory=dict)
    interval: PositiveSeconds = 60.0
    windows: list[PositiveSeconds] = Field(default=[300.0, 900.0, 3_600.0, 21_600.0, 86_400.0], min_length=1)
    no_scores_after: PositiveSeconds | None = None
    services: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    max_failed: Annotated[float, Field(gt=0, lt=1)] = 0.1
    dashboard_url: WebAddress = (
        "http://localhost:3000/d/spanscore-metric?var-metric={metric}&var-service={service}&from={from}&to=now"
    )
    trace_url: WebAddress | None = None

    @field_validator("interval")
    @classmethod
    def _is_seen(cls, interval: float) -> float:
        if interval > LOOK_BACK_S:
            raise ValueError(f"{interval:g} s: Prometheus looks back {LOOK_BACK_S:g} s, then what rules write is gone")
        return interval

    @model_validator(mode="after")
    def _is_long_enough(self) -> Self:
        short = [window for window in self.windows if window < 4 * self.interval]
        if short:
            raise ValueError(f"a window of {short[0]:g} s needs at least 4 evaluations, one in {self.interval:g} s")
        return self

    @field_validator("segments")
    @classmethod
    def _has_values(cls, segments: dict[str, list[str]]) -> dict[str, list[str]]:
        empty = [key for key, values in segments.items() if not values]
        if empty:
            raise ValueError(f"{empty[0]} lists no values; write for example {{user_tier: [gold, free]}}")
        return segments


class ServeSettings(SettingsPart):
    """Where the metrics can be scraped; port 0 = any free one."""

    port: int = Field(default=9464, ge=0, le=65_535)
    host: str = "127.0.0.1"


def _port(value: Any) -> Any:
    return {"port": value} if isinstance(value, int) and not isinstance(value, bool) else value


class Settings(SettingsPart):
    """What is not an option of a scorer: the metrics, what they ask, and what is made of their scores."""

    metrics: list[str | dict[str, dict[str, Any] | None]] = Field(min_length=1)
    judge: JudgeSettings = JudgeSettings()
    embeddings: str | None = None
    serve_metrics: Annotated[ServeSettings | None, BeforeValidator(_port)] = None
    monitoring: MonitoringSettings = MonitoringSettings()
    alerts: dict[str, AlertSettings] = Field(default_factory=dict)
