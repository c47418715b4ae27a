"""Sessions: when a conversation ends, and how much of those that go on is kept."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Final, Literal, get_args

from pydantic import Field

from spanscore.errors import ConfigurationError
from spanscore.settings.kinds import Count, PositiveSeconds, SettingsPart, Size

__all__ = ["Replicas", "SessionSettings", "Sessions"]

Replicas = Literal["one", "sticky", "any"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """When a conversation ends, for the metrics that score whole ones, and how much of those that go on is kept.

    Attributes:
        idle_timeout: seconds without a turn after which it has ended.
        max_turns: turns after which it has.
        max_open: conversations gathered at once; past it the one that was silent for longest ends (``evicted``).
        max_bytes: of their content, roughly; likewise.
        score_every: turns after which one that goes on gets a provisional score, on an evaluation span alone; 0 = never.
        replicas: how turns reach the processes of an application. ``one``: there is one. ``sticky``: all turns of a
            conversation reach the same. ``any``: any may have any turn; then ``idle_timeout`` and ``score_every`` are off, and
            only ``end_session`` and ``max_turns``, on a turn that brought the whole history along, end one: else it is
            ``incomplete``.

    Raises:
        ConfigurationError: a number is too small, or ``replicas`` is none of these.
    """

    idle_timeout: float = 300.0
    max_turns: int = 50
    max_open: int = 10_000
    max_bytes: int = 64_000_000
    score_every: int = 10
    replicas: Replicas = "one"

    def __post_init__(self) -> None:
        for name in ("idle_timeout", "score_every", *_AT_LEAST_ONE):
            if isinstance(getattr(self, name), str):  # as a file may have it: 5m, 64MB
                raise ConfigurationError(f"sessions.{name} is {getattr(self, name)!r}; allowed is a number")
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ConfigurationError(f"sessions.{name} is {getattr(self, name)}; allowed is 1 or more")
        if self.score_every < 0:
            raise ConfigurationError(
                f"sessions.score_every is {self.score_every}; allowed is 1 or more, or 0 for never"
            )
        if not self.idle_timeout > 0:
            raise ConfigurationError(f"sessions.idle_timeout is {self.idle_timeout}; allowed are seconds, above 0")
        if self.replicas not in get_args(Replicas):
            raise ConfigurationError(
                f"sessions.replicas is {self.replicas!r}; allowed are {', '.join(get_args(Replicas))}"
            )


_AT_LEAST_ONE: Final = ("max_turns", "max_open", "max_bytes")


class SessionSettings(SettingsPart):
    """How turns become conversations, for the metrics that score these (``per: session``).

    Attributes:
        idle_timeout: time without a turn after which one has ended.
        max_turns: turns after which it has.
        max_open: conversations gathered at once; past it the one that was silent for longest ends.
        max_bytes: of their content, roughly; likewise.
        score_every: turns after which one that goes on gets a provisional score, which is in no sum; 0 = never.
        replicas: how turns reach the processes of an application: there is ``one``; they are ``sticky``, all of a conversation
            at the same; or ``any`` process may have any turn, and an end is known only where somebody tells it.
    """

    idle_timeout: PositiveSeconds = Sessions().idle_timeout
    max_turns: Count = Sessions().max_turns
    max_open: Count = Sessions().max_open
    max_bytes: Size = Sessions().max_bytes
    score_every: Annotated[int, Field(ge=0)] = Sessions().score_every
    replicas: Replicas = "one"

    def sessions(self) -> Sessions:
        """Return it as a scorer takes it."""
        return Sessions(**{one.name: getattr(self, one.name) for one in fields(Sessions)})
