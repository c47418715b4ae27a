"""When a conversation ends, and how much of those that go on is kept."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from spanscore.settings.kinds import Count, MetricObjects, PositiveSeconds, SettingsPart, Size

__all__ = ["Replicas", "Sessions"]

Replicas = Literal["one", "sticky", "any"]


class Sessions(SettingsPart):
    """When a conversation ends, for the metrics that score whole ones (``per: session``), and how much of open ones is kept.

    Attributes:
        metrics: metrics that score whole conversations, once each, when they have ended: those that take a
            ``MultiTurnSample``. Their rates are shares of conversations, which no rule raises: all turns of one are gathered,
            or none. A conversation is the runs of one ``spanscore.session``, or whose metadata name one ``thread_id``,
            ``session_id`` or ``conversation_id``. With them, the scorer's ``metrics`` may be empty. Python only: a file has
            ``per: session`` beside a metric's parameters.
        idle_timeout: time without a turn after which a conversation has ended.
        max_turns: turns after which it has ended.
        max_open: conversations gathered at once; past it the one that was silent for longest ends (``evicted``).
        max_bytes: approximate size of their content; past it as ``max_open``.
        score_every: turns after which a conversation that goes on gets a provisional score, on an evaluation span alone and in
            no sum; 0 = never.
        replicas: how turns reach the processes of an application. ``one``: there is one. ``sticky``: all turns of a
            conversation reach the same. ``any``: any may have any turn; then ``idle_timeout`` and ``score_every`` are off, and
            only ``end_session`` and ``max_turns``, on a turn that brought the whole history along, end one: else it is
            ``incomplete``.
    """

    section: ClassVar[str] = "sessions"
    metrics: MetricObjects = ()
    idle_timeout: PositiveSeconds = 300.0
    max_turns: Count = 50
    max_open: Count = 10_000
    max_bytes: Size = 64_000_000
    score_every: Annotated[int, Field(ge=0)] = 10
    replicas: Replicas = "one"
