"""The sections of those who judge: models, prices and budgets."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from spanscore.settings.budget import UNITS, Budget
from spanscore.settings.durations import DURATION
from spanscore.settings.kinds import AlsoWritten, Count, PerMinute, PositiveSeconds, Rate, SettingsPart, Size

__all__ = ["AskedSettings", "BudgetSettings", "ByName", "JudgeSettings", "PriceSettings", "ShadowSettings"]


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
    model_kwargs: dict[str, Any] = Field(default_factory=dict)
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
    """

    model: str = "lexical"
    fallback: list[Annotated[(AskedSettings, *ByName)]] = Field(default_factory=list)
    cache: str | None = None
    prices: dict[str, PriceSettings] = Field(default_factory=dict)


_Amount = Annotated[float, WithJsonSchema({"type": "number", "exclusiveMinimum": 0})]
_PER = {
    "anyOf": [{"type": "number", "minimum": 60, "maximum": 30 * 86_400}, {"type": "string", "pattern": f"^{DURATION}$"}]
}


class BudgetSettings(SettingsPart):
    """What judges may be paid per window: one of ``usd``, ``tokens`` and ``calls``, of one metric or of all together.

    Which values they may have, ``Budget`` itself says, in Python too.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": [unit], "properties": {unit: {"not": {"type": "null"}}}} for unit in UNITS]
        }
    )

    usd: _Amount | None = None
    tokens: _Amount | None = None
    calls: _Amount | None = None
    per: Annotated[str | float, WithJsonSchema(_PER)]
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


class ShadowSettings(AskedSettings):
    """A metric's second judge (``metrics: [{faithfulness: {shadow: {model: …}}}]``): asked beside the first, counted apart.

    What is left out is as of ``judge``, but for its fallback; address, key and parameters only where the provider is the same.

    Attributes:
        model: a chat model by ``provider:model``, or ``lexical``; beside it may stand what else ``judge`` has.
        budget: what it may be paid for this metric; None = as much again as the judge.
    """

    model: str = ""
    cache: str | None = None
    budget: list[BudgetSettings] | None = None
