"""Sections of judges: models, prices, and budgets in a window of time."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, Self

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.json_schema import SkipJsonSchema

from spanscore.config.kinds import (
    NUMBER,
    AlsoWritten,
    Count,
    FrozenDict,
    Items,
    MetricObjects,
    PerMinute,
    PositiveSeconds,
    Rate,
    Seconds,
    SettingsPart,
    Share,
    Table,
)
from spanscore.core.printable import DURATION, parse_duration

__all__ = [
    "OF_SCORER",
    "UNITS",
    "Budget",
    "BudgetUnit",
    "ByName",
    "ChatModelSettings",
    "JudgeSettings",
    "MetricCost",
    "ShadowSettings",
    "Spent",
]

BudgetUnit = Literal["usd", "tokens", "calls"]
UNITS: Final[tuple[BudgetUnit, ...]] = ("usd", "tokens", "calls")
_SHORTEST_S: Final = 60.0
_LONGEST_S: Final = 30 * 86_400.0


class Spent(NamedTuple):
    """What questions cost, in each unit that a budget may have."""

    usd: float = 0.0
    tokens: float = 0.0
    calls: float = 0.0

    def plus(self, other: Spent, times: float = 1.0) -> Spent:
        """Return the sum with so many of another."""
        return Spent(*(mine + times * theirs for mine, theirs in zip(self, other, strict=True)))

    def of(self, unit: BudgetUnit) -> float:
        """Return the amount in one unit."""
        return float(getattr(self, unit))


class MetricCost(NamedTuple):
    """What the questions of one metric cost since the start, what is reserved for those that are out included.

    Attributes:
        spent: all of it.
        reserved: of it, for questions that are out.
    """

    spent: Spent = Spent()
    reserved: Spent = Spent()


def _check_window(per: Any) -> Any:
    try:
        fits = _SHORTEST_S <= _seconds(per) <= _LONGEST_S
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ValueError(f"{per!r}; allowed is 1m to 30d")
    return per


def _seconds(per: str | float) -> float:
    return parse_duration(per) if isinstance(per, str) else float(per)


_Amount = Annotated[
    float, Field(gt=0, allow_inf_nan=False), NUMBER, WithJsonSchema({"type": "number", "exclusiveMinimum": 0})
]
_PER: Final = {
    "anyOf": [
        {"type": "number", "minimum": _SHORTEST_S, "maximum": _LONGEST_S},
        {"type": "string", "pattern": f"^{DURATION}$"},
    ]
}


class Budget(SettingsPart):
    """What judges may be paid per window: one of ``usd``, ``tokens`` and ``calls``. Several budgets may hold at once.

    At one that is spent nothing more is sent; one in usd or tokens may be overrun by as much as an answer is longer than any
    before it. The first twentieth of the first window knows of no cost yet, and lowers no rate unless it ends early.

    The sampling rates are lowered so that a window's money lasts to its end; π and T on every score are the true ones.
    Spending is counted in memory: a restart begins anew.

    Attributes:
        usd: US dollars; needs the prices of the models that are asked.
        tokens: tokens that are read and written.
        calls: requests that may be billed, repeated ones included.
        per: the window, ``1m`` to ``30d``, or its seconds. Windows are aligned to UTC.
        metric: the one metric that it is for; None = all of the scorer together.
        lowers_rates: False for stored samples, whose rates stay as they are: the rest of a window ends ``budget_exhausted``.
            Python only.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": [unit], "properties": {unit: {"not": {"type": "null"}}}} for unit in UNITS]
        }
    )
    section: ClassVar[str] = "judge.budget"
    usd: _Amount | None = None
    tokens: _Amount | None = None
    calls: _Amount | None = None
    per: Annotated[str | float, BeforeValidator(_check_window), WithJsonSchema(_PER)]
    metric: str | None = None
    lowers_rates: SkipJsonSchema[bool] = True

    @model_validator(mode="after")
    def _check_unit(self) -> Self:
        given = [unit for unit in UNITS if getattr(self, unit) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise ValueError(f"a budget has exactly one of {', '.join(UNITS)}; this one has {found}")
        return self

    @property
    def unit(self) -> BudgetUnit:
        """The one that is given."""
        return next(unit for unit in UNITS if getattr(self, unit) is not None)

    @property
    def amount(self) -> float:
        """How much of it, per window."""
        return float(getattr(self, self.unit))

    @property
    def window_s(self) -> float:
        """How long a window is, in seconds."""
        return _seconds(self.per)

    @property
    def window(self) -> str:
        """The window as it is written."""
        return self.per if isinstance(self.per, str) else f"{self.per:g}s"

    def holds_for(self, metric: str) -> bool:
        """Whether what a metric asks is paid from it."""
        return self.metric is None or self.metric == metric

    def part(self, share: float) -> Budget:
        """Return the part of it that is one replica's; ``share`` is in (0, 1]."""
        return self.model_copy(update={self.unit: self.amount * share})

    def __str__(self) -> str:
        whose = "" if self.metric is None else f" of {self.metric}"
        return f"{self.amount:g} {self.unit} per {self.window}{whose}"


class PriceSettings(SettingsPart):
    """What a model costs: USD per million tokens.

    Attributes:
        input: of tokens that it reads.
        output: of tokens that it writes.
        cached_input: of those that the provider reads from its cache; None = as ``input``.
        cache_write: of tokens that the provider writes to its cache; None = as ``input``.
        batch: share of it all that is billed for answers at the price of batches (``service_tier: flex``).
    """

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cached_input: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    cache_write: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    batch: Rate = 0.5

    def numbers(self) -> tuple[float, ...]:
        """Return it as ``judge(…, prices=…)`` takes it."""
        cached_input, cache_write = (
            self.input if price is None else price for price in (self.cached_input, self.cache_write)
        )
        return (self.input, self.output, cached_input, self.batch, cache_write)


class ChatModelSettings(SettingsPart):
    """A chat model by ``provider:model``, and how it is asked: keywords of ``spanscore.judge()``, which explains each.

    A key to it is in the environment or in a file of its own, never in this one.
    """

    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_file: str | None = None
    model_kwargs: Table[str, Any] = Field(default_factory=FrozenDict)
    max_concurrency: Count | None = None
    timeout: PositiveSeconds | None = None
    queue_timeout: PositiveSeconds | None = None
    max_attempts: Count | None = None
    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    max_input_tokens: Count | None = None
    structured: Literal["auto", "schema", "tools", "json", "text"] = "auto"
    prompt_order: Literal["evidence_first", "instruction_first"] = "evidence_first"
    prompt_cache: bool = True
    prompt_cache_wait: Seconds = 2.0

    @property
    def has_own_key(self) -> bool:
        """Whether it is asked with another key than its provider's usual one, or with none."""
        return bool(self.api_key_env or self.api_key_file or self.base_url)


OF_SCORER = ("budget", "replica_share", "trace", "shadows", "shadow_budget")
"""Fields of ``judge`` that a scorer reads; the others make the judge of metrics that a file names."""
_PROVIDERS = {"gpt-": "openai", "chatgpt-": "openai", "claude-": "anthropic", "gemini-": "google_genai"}
"""How the models of a provider begin."""


def _by_name(value: Any) -> Any:
    """Return the section of a model's name, with its provider if the name implies one; other values unchanged."""
    if not isinstance(value, str):
        return value
    provider = next((provider for beginning, provider in _PROVIDERS.items() if value.startswith(beginning)), None)
    return {"model": value if ":" in value or provider is None else f"{provider}:{value}"}


ByName = (BeforeValidator(_by_name), AlsoWritten("string"))
"""A section that may be written as the name of its model; where that says it, without the provider."""


class JudgeSettings(ChatModelSettings):
    """Who judges: a chat model, or ``lexical`` for the offline judge; and who does while it is away.

    Attributes:
        model: a chat model by ``provider:model``, or ``lexical``. ``judge: gpt-4o-mini`` is short for ``judge: {model:
            openai:gpt-4o-mini}``: in the short form names with ``gpt-``, ``chatgpt-``, ``claude-`` or ``gemini-`` in front
            need no provider.
        fallback: who is asked in their order while the judge is away (its breaker is open): names, or sections as this one.
            What is not set of one is as of the judge, but for address, key and parameters. What it says is an evaluator version
            of its own.
        prices: model as its provider names it in the answer, or a pattern (``gpt-4o*``, the longest wins) → what it costs; a
            dated name has the price of the undated one. What is not in it has no cost.
        budget: what judges may be paid, several at once: ``[{usd: 2, per: 1h}]``. The rates are lowered so that it lasts.
        replica_share: this process's part of every budget, (0, 1]: 0.25 for one of four replicas.
        trace: whether each call of a judge is a span of the scope ``spanscore.judge``: in a trace of its score, whose id
            is ``spanscore.score.id``, linked to the evaluation span; with prompt and answer only by ``capture.content``.
        shadows: metrics of the same names with another judge or prompt. Each scores the units of its namesake, beside it, on
            evaluation spans of its own and in the source ``shadow``, which is in no mean, alert or unit's span; ``status()``
            compares them. Only ``flush`` and ``shutdown`` wait for it. Python only: a file has ``shadow`` beside a metric's
            parameters.
        shadow_budget: what their judges may be paid, counted apart; None = as much again as ``budget``. Python only: a file has
            ``budget`` in a metric's ``shadow``.
    """

    section: ClassVar[str] = "judge"
    model: str = "lexical"
    fallback: Items[Annotated[(ChatModelSettings, *ByName)]] = ()
    cache: str | None = None
    prices: Table[str, PriceSettings] = Field(default_factory=FrozenDict)
    budget: Items[Budget] = ()
    replica_share: Share = 1.0
    trace: bool = False
    shadows: MetricObjects = ()
    shadow_budget: SkipJsonSchema[Items[Budget] | None] = None


class ShadowSettings(ChatModelSettings):
    """A metric's second judge (``metrics: [{faithfulness: {shadow: {model: …}}}]``): asked beside the first, counted apart.

    What is left out is as of ``judge``, but for its fallback; address, key and parameters only where the provider is the same.

    Attributes:
        model: a chat model by ``provider:model``, or ``lexical``; beside it may stand what else ``judge`` has.
        budget: what it may be paid for this metric; None = as much again as the judge.
    """

    model: str = ""
    cache: str | None = None
    budget: Items[Budget] | None = None
