"""The ``judge`` section: judge models, prices, and budgets per window of time."""

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
    seconds_in,
)
from spanscore.core.printable import DURATION

BudgetUnit = Literal["usd", "tokens", "calls"]
UNITS: Final[tuple[BudgetUnit, ...]] = ("usd", "tokens", "calls")
_SHORTEST_S: Final = 60.0
_LONGEST_S: Final = 30 * 86_400.0


class Spent(NamedTuple):
    """The cost of questions to judges, in each unit that a budget may have."""

    usd: float = 0.0
    tokens: float = 0.0
    calls: float = 0.0

    def plus(self, other: Spent, times: float = 1.0) -> Spent:
        """Return the sum of this cost and ``times`` another cost."""
        return Spent(*(mine + times * theirs for mine, theirs in zip(self, other, strict=True)))

    def of(self, unit: BudgetUnit) -> float:
        """Return the cost in one unit."""
        return float(getattr(self, unit))


class MetricCost(NamedTuple):
    """The cost of one metric's questions since the start, including reservations for open questions.

    Attributes:
        spent: total cost, reservations included.
        reserved: part of ``spent`` that is reserved for open questions.
    """

    spent: Spent = Spent()
    reserved: Spent = Spent()


def _check_window(per: Any) -> Any:
    try:
        fits = _SHORTEST_S <= float(seconds_in(per)) <= _LONGEST_S
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ValueError(f"{per!r}; allowed is 1m to 30d")
    return per


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
    """A limit on the cost of judges per window, in one of ``usd``, ``tokens`` and ``calls``. A scorer may have several budgets.

    When a budget is spent, no more questions are sent. If an answer is longer than every earlier answer, a budget in usd or
    tokens is exceeded by the difference.

    The sampling rates are lowered so that a window's budget lasts to its end. Every score has its true probability and
    threshold. In the first twentieth of the first window no cost is measured yet: until then, rates are lowered only if a
    twentieth of the budget is spent already.

    Spending is counted in memory, so a restart begins at zero.

    Attributes:
        usd: US dollars; needs the prices of the judge models. A budget has exactly one of ``usd``, ``tokens`` and ``calls``.
        tokens: input and output tokens.
        calls: requests that may be billed, including repeated requests.
        per: length of the window, ``1m`` to ``30d``, or in seconds. Windows are aligned to UTC.
        metric: name of the one metric that the budget limits; None = all metrics of the scorer together.
        lowers_rates: whether sampling rates are lowered to make the budget last. False for stored samples, whose rates stay:
            samples after the end of the budget are ``budget_exhausted``. Python only.
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
        units = [unit for unit in UNITS if getattr(self, unit) is not None]
        if len(units) != 1:
            found = " and ".join(units) or "none"
            raise ValueError(f"a budget has exactly one of {', '.join(UNITS)}; this one has {found}")
        return self

    @property
    def unit(self) -> BudgetUnit:
        """The unit of the budget."""
        return next(unit for unit in UNITS if getattr(self, unit) is not None)

    @property
    def amount(self) -> float:
        """The amount per window, in ``unit``."""
        return float(getattr(self, self.unit))

    @property
    def kind(self) -> tuple[BudgetUnit, float, str | None]:
        """Unit, window in seconds and metric: everything but the amount."""
        return self.unit, self.window_s, self.metric

    @property
    def window_s(self) -> float:
        """Length of a window, in seconds."""
        return float(seconds_in(self.per))

    @property
    def window(self) -> str:
        """Length of a window as configured, such as ``1d``."""
        return self.per if isinstance(self.per, str) else f"{self.per:g}s"

    def holds_for(self, metric: str) -> bool:
        """Return whether the budget limits this metric."""
        return self.metric is None or self.metric == metric

    def part(self, share: float) -> Budget:
        """Return the budget of one replica; ``share`` is in (0, 1]."""
        return self.model_copy(update={self.unit: self.amount * share})

    def __str__(self) -> str:
        whose = "" if self.metric is None else f" of {self.metric}"
        return f"{self.amount:,.15g} {self.unit} per {self.window}{whose}"


class PriceSettings(SettingsPart):
    """The price of a model, in USD per million tokens.

    Attributes:
        input: price of input tokens, in USD per million tokens.
        output: price of output tokens, in USD per million tokens.
        cached_input: price of input tokens that the provider reads from its cache, in USD per million tokens; None = as
            ``input``.
        cache_write: price of input tokens that the provider writes to its cache, in USD per million tokens; None = as
            ``input``.
        batch: share of these prices that is billed for answers at the batch price (``service_tier: flex``, ``--batch``).
    """

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cached_input: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    cache_write: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    batch: Rate = 0.5

    def numbers(self) -> tuple[float, ...]:
        """Return the prices in the form of ``judge(…, prices=…)``."""
        cached_input, cache_write = (
            self.input if price is None else price for price in (self.cached_input, self.cache_write)
        )
        return (self.input, self.output, cached_input, self.batch, cache_write)


class ChatModelSettings(SettingsPart):
    """A chat model by ``provider:model`` and its settings: the keywords of ``spanscore.judge()``, which explains each.

    The API key is in the environment or in a separate file, never in the configuration.

    Attributes:
        model: as ``judge.model``.
        prompt_cache_wait: maximum time that questions with the same beginning wait until the first of them is answered; 0 = no
            wait.
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
    images: bool | None = None

    @property
    def has_own_key(self) -> bool:
        """Whether the model is called with a separate key, or without a key, instead of its provider's usual key."""
        return bool(self.api_key_env or self.api_key_file or self.base_url)


OF_SCORER = ("budget", "replica_share", "trace", "shadows", "shadow_budget")
"""Fields of ``judge`` for the scorer. The other fields build the judge of the metrics in a file."""
_PROVIDERS = {"gpt-": "openai", "chatgpt-": "openai", "claude-": "anthropic", "gemini-": "google_genai"}
"""Beginning of a model's name → its provider."""


def _by_name(value: Any) -> Any:
    """Return the section of a model's name, with its provider if the name implies one; other values unchanged."""
    if not isinstance(value, str):
        return value
    provider = next((provider for beginning, provider in _PROVIDERS.items() if value.startswith(beginning)), None)
    return {"model": value if ":" in value or provider is None else f"{provider}:{value}"}


ByName = (BeforeValidator(_by_name), AlsoWritten("string"))
"""A section that may also be written as its model's name, without the provider if the name implies it."""


class JudgeSettings(ChatModelSettings):
    """The judge: a chat model, or ``lexical`` for the offline judge; and its replacements while it is unavailable.

    Attributes:
        model: chat model by ``provider:model``, or ``lexical``. ``judge: gpt-4o-mini`` is short for
            ``judge: {model: openai:gpt-4o-mini}``: in the short form, names that begin with ``gpt-``, ``chatgpt-``, ``claude-``
            or ``gemini-`` need no provider.
        fallback: models that are asked, in this order, while the judge is unavailable (its breaker is open): names, or sections
            such as ``judge``. Each inherits the settings of ``judge``, except ``base_url``, the API key and ``model_kwargs``.
            Its scores have a separate evaluator version.
        prices: model name as the provider returns it, or a pattern (``gpt-4o*``; the longest match is used) → its prices. A
            dated name has the price of the undated name. Models without a price have no cost.
        budget: limits on the cost of judges: ``[{usd: 2, per: 1h}]``. Sampling rates are lowered so that each limit lasts.
        replica_share: share of every budget that this process may spend, (0, 1]: 0.25 for one of four replicas.
        trace: whether each call of a judge becomes a span of the scope ``spanscore.judge``. The spans of a score are a separate
            trace, whose id is ``spanscore.score.id``, linked to the evaluation span. These spans have prompt and answer
            only with ``capture.content``.
        shadows: metrics with the name of a configured metric, but another judge or prompt. Each scores the units of its
            namesake, as separate evaluation spans with the source ``shadow``. No mean, alert or unit's span has these scores;
            ``status()`` compares them. Only ``flush`` and ``shutdown`` wait for them. Python only: in a file, write ``shadow``
            into a metric's parameters.
        shadow_budget: limits on the cost of the shadows' judges, counted separately; None = equal to ``budget``. Python only:
            in a file, write ``budget`` into a metric's ``shadow``.
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
    """A metric's second judge (``metrics: [{faithfulness: {shadow: {model: …}}}]``), which gets the same units; counts
    are separate.

    Omitted keys are taken from ``judge``, except ``fallback``. The address, the key and ``model_kwargs`` are taken only if the
    provider is the same and the section has no address or key.

    Attributes:
        model: chat model by ``provider:model``, or ``lexical``. The section may have the other keys of ``judge``, too.
        budget: limits on the cost of the shadow for this metric; None = equal to the judge's.
    """

    model: str = ""
    cache: str | None = None
    budget: Items[Budget] | None = None


class JurySettings(SettingsPart):
    """Several judges of one metric (``metrics: [{faithfulness: {judges: [gpt-4o-mini, claude-haiku-4-5]}}]``).

    The keys are among the metric's parameters. Each juror scores the whole metric. The score is the mean of their values,
    or the majority for a metric that is pass/fail or has categories; a tied vote gives no value.

    Attributes:
        judges: two or more judges of different models: names, or sections as ``judge``. Omitted keys are taken from
            ``judge``, except ``fallback``. The address, the key and ``model_kwargs`` are taken only if the provider is the same
            and the section has no address or key.
        then: another judge, asked only if the jurors disagree; its value counts as one more vote. None = no further judge.
        when: when ``then`` is asked. ``disagree`` means that some jurors gave a value and some answered without one, or that
            their highest and lowest quality differ by more than 0.25. On an open scale or with categories, any two different
            values disagree.
    """

    judges: Items[Annotated[(ChatModelSettings, *ByName)]] = ()
    then: Annotated[(ChatModelSettings, *ByName)] | None = None
    when: Literal["disagree"] = "disagree"

    @model_validator(mode="after")
    def _check_judges(self) -> Self:
        if len(self.judges) < 2:  # noqa: PLR2004  (a jury)
            raise ValueError(f"judges lists {len(self.judges)}; allowed are two or more, each of a different model")
        if self.then is None and "when" in self.model_fields_set:
            raise ValueError("when needs then; write then: provider:model, the judge that is asked in that case")
        return self
