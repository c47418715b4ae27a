"""The sections of those who judge: models, prices and budgets."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from spanscore.settings.budget import Budget
from spanscore.settings.kinds import Count, PerMinute, PositiveSeconds, Rate, SettingsPart, Size

__all__ = ["AskedSettings", "BudgetSettings", "JudgeSettings", "PriceSettings", "ShadowSettings"]


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


class ShadowSettings(AskedSettings):
    """A metric's second judge (``metrics: [{faithfulness: {shadow: {model: …}}}]``): asked beside the first, counted apart.

    What is left out is as of ``judge``, but for its fallback; address, key and parameters only where the provider is the same.
    ``budget`` is of this metric; left out, it is as much again as the judge's.
    """

    model: str = ""
    cache: str | None = None
    budget: list[BudgetSettings] | None = None
