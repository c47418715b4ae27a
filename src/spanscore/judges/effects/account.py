"""Account: whom a judge asks, and who pays. Limits belong to it, whoever asks and however the judge was made."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

from spanscore.errors import ConfigurationError

__all__ = ["Account", "AccountLimits", "AccountState", "BreakerState", "checked_positive"]

BreakerState = Literal["closed", "half_open", "open"]


class Account(NamedTuple):
    """Judges, metrics, embedders and scorers of a process that ask the same account share one gate.

    Attributes:
        provider: as ``gen_ai.provider.name`` has it.
        model: as it is asked for.
        address: where the provider is asked; empty where it is not known.
        key: a hash of the credentials, never they themselves; empty where there are none.
    """

    provider: str
    model: str
    address: str = ""
    key: str = ""

    def __repr__(self) -> str:
        """Name provider and model only: the rest is nobody's to read in a log."""
        return f"{self.provider} {self.model}"


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """What a user allows an account, None where nothing is said.

    Attributes:
        max_concurrency: questions at once.
        requests_per_minute: where the provider does not tell what is left.
        tokens_per_minute: likewise, of questions and answers.

    Raises:
        ConfigurationError: one is not positive.
    """

    max_concurrency: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is not None:
                checked_positive(limit.name, value)


def checked_positive(keyword: str, value: float) -> float:
    """Return a setting.

    Raises:
        ConfigurationError: it is not more than 0.
    """
    if value <= 0:
        raise ConfigurationError(f"{keyword} is {value}; it must be more than 0")
    return value


@dataclass(frozen=True, slots=True)
class AccountState:
    """What an account's gate is at, for ``status()`` and the instruments.

    Attributes:
        places: questions that may be out at once now; below 1 it is a pace.
        ceiling: of ``places``.
        share: part of the user's limits that is this process's, (0, 1]; the rest is other workers'.
        inflight: questions that are out.
        waiting: questions that wait to be sent.
        longest_wait_s: of those that wait now.
        breaker: ``open``: nothing is sent.
        because: the failure that opened it; empty while it is closed.
        throttled: refusals for load so far.
        last_throttled_s: seconds since the last one; None where there was none.
        calls: requests that were sent.
        retries: of them, those that repeated a failed one.
        cached: questions that were answered without a request.
        notes: what must be known of the account, a sentence each.
    """

    account: Account
    places: float = 0.0
    ceiling: int = 0
    share: float = 1.0
    inflight: int = 0
    waiting: int = 0
    longest_wait_s: float = 0.0
    breaker: BreakerState = "closed"
    because: str = ""
    throttled: int = 0
    last_throttled_s: float | None = None
    calls: int = 0
    retries: int = 0
    cached: int = 0
    notes: tuple[str, ...] = ()
