"""Sections of units and conversations: whose spans are read, and when a unit or a conversation is whole."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from spanscore.config.kinds import (
    Count,
    ExtractorPart,
    Items,
    MetricObjects,
    NormalizerPart,
    PositiveSeconds,
    Seconds,
    SettingsPart,
    Size,
)
from spanscore.core.span import UNIT_KINDS, UnitKind

__all__ = ["Replicas", "Sessions", "Units"]


class Units(SettingsPart):
    """Whose spans are read, and when spans that arrive from other processes are a whole unit.

    Attributes:
        scopes: beginnings of further instrumentation scopes whose spans a ``ScoringSpanProcessor`` or ``spanscore serve``
            claims. Of other scopes they claim the spans that have GenAI attributes.
        ignore_scopes: beginnings of scopes whose spans are left alone, whatever their attributes are.
        kinds: kinds of units that are scored: ``workflow``, ``agent``, and ``chat``, which is a model called alone, also by
            a tool in a thread of its own. Units of other kinds are ``filtered``.
        dialects: sample extractors of your own, each a ``SampleExtractor``, its name, or the name with parameters: they come
            before the built-in ones in the choice of what reads a unit, which is by its root. One with a parameter ``extract``
            is given ``capture.extract``.
        translations: normalizers of your own, which write spans of a library that spanscore does not know in GenAI names; each
            a ``SpanNormalizer``, its name, or the name with parameters. They come before the built-in ones, on spanscore's
            span thread.
        idle_timeout: a unit whose root is there closes when no span of it has come for this long.
        orphan_wait: spans whose parent never comes wait for this long after the latest span of their trace.
        max_age: a unit that is older closes incomplete.
        max_spans: claimed spans of a unit; one with more closes incomplete.
        max_bytes: size of a unit's spans; one with more closes incomplete.
        traces: open traces with spans that may be of a unit; more are refused until some have closed.
        bytes: size of all spans that wait; more are refused until some have closed.
        late: what happens to a span that comes after its unit was closed: ``count`` it, or ``rescore`` the unit, as its next
            revision.
        external_scores: whether scores that others made, and that come with spans and logs, are counted beside ours: in the
            source ``external``, which no alert and no mean of ours reads.
    """

    section: ClassVar[str] = "units"
    scopes: Items[str] = ()
    ignore_scopes: Items[str] = ()
    kinds: Items[UnitKind] = UNIT_KINDS
    dialects: Items[ExtractorPart] = ()
    translations: Items[NormalizerPart] = ()
    idle_timeout: Seconds = 2.0
    orphan_wait: Seconds = 60.0
    max_age: PositiveSeconds = 3_600.0
    max_spans: Count = 2_000
    max_bytes: Size = 16_000_000
    traces: Count = 100_000
    bytes: Size = 512_000_000
    late: Literal["count", "rescore"] = "count"
    external_scores: bool = True


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
        max_bytes: approximate size of the open conversations' content. Above it, or above 10,000 open conversations, the one
            without a turn for the longest time ends (``evicted``).
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
    max_bytes: Size = 64_000_000
    score_every: Annotated[int, Field(ge=0)] = 10
    replicas: Replicas = "one"
