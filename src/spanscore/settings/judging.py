"""The sections of those who judge: models, prices and budgets."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field
from pydantic.json_schema import SkipJsonSchema

from spanscore.settings.budget import Budget
from spanscore.settings.kinds import (
    AlsoWritten,
    Count,
    FrozenDict,
    Items,
    MetricObjects,
    PerMinute,
    PositiveSeconds,
    Rate,
    SettingsPart,
    Share,
    Size,
    Table,
)

__all__ = ["OF_SCORER", "AskedSettings", "ByName", "JudgeSettings", "PriceSettings", "ShadowSettings"]


class PriceSettings(SettingsPart):
    """What a model costs: USD per million tokens.

    Attributes:
        input: of tokens that it reads.
        output: of tokens that it writes.
        cached_input: of those that the provider reads from its cache; None = as ``input``.
        batch: share of it all that is billed for answers at the price of batches (``service_tier: flex``).
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
    model_kwargs: Table[str, Any] = Field(default_factory=FrozenDict)
    max_concurrency: Count | None = None
    timeout: PositiveSeconds | None = None
    queue_timeout: PositiveSeconds | None = None
    max_attempts: Count | None = None
    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    max_input_tokens: Count | None = None
    max_answer_bytes: Size | None = None
    structured: Literal["auto", "schema", "tools", "json", "text"] = "auto"

    @property
    def has_own_key(self) -> bool:
        """Whether it is asked with another key than its provider's usual one, or with none."""
        return bool(self.api_key_env or self.api_key_file or self.base_url)


OF_SCORER = ("budget", "replica_share", "trace", "shadows", "shadow_budget")
"""Fields of ``judge`` that a scorer reads; the others make the judge of metrics that a file names."""
_PROVIDERS = {"gpt-": "openai", "chatgpt-": "openai", "claude-": "anthropic", "gemini-": "google_genai"}
"""How the models of a provider begin."""


def _by_name(value: Any) -> Any:
    return {"model": _with_provider(value)} if isinstance(value, str) else value


def _with_provider(model: str) -> str:
    provider = next((provider for beginning, provider in _PROVIDERS.items() if model.startswith(beginning)), None)
    return model if ":" in model or provider is None else f"{provider}:{model}"


ByName = (BeforeValidator(_by_name), AlsoWritten("string"))
"""A section that may be written as the name of its model; where that says it, without the provider."""


class JudgeSettings(AskedSettings):
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
    fallback: Items[Annotated[(AskedSettings, *ByName)]] = ()
    cache: str | None = None
    prices: Table[str, PriceSettings] = Field(default_factory=FrozenDict)
    budget: Items[Budget] = ()
    replica_share: Share = 1.0
    trace: bool = False
    shadows: MetricObjects = ()
    shadow_budget: SkipJsonSchema[Items[Budget] | None] = None


class ShadowSettings(AskedSettings):
    """A metric's second judge (``metrics: [{faithfulness: {shadow: {model: …}}}]``): asked beside the first, counted apart.

    What is left out is as of ``judge``, but for its fallback; address, key and parameters only where the provider is the same.

    Attributes:
        model: a chat model by ``provider:model``, or ``lexical``; beside it may stand what else ``judge`` has.
        budget: what it may be paid for this metric; None = as much again as the judge.
    """

    model: str = ""
    cache: str | None = None
    budget: Items[Budget] | None = None
