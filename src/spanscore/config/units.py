"""The sections ``units`` and ``sessions``: the spans that are read, and the conditions that close a unit or a conversation."""

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
    """The spans that are read, and the conditions that close a unit of spans from other processes.

    Attributes:
        scopes: prefixes of further instrumentation scopes whose spans a ``ScoringSpanProcessor`` or ``spanscore serve`` claims.
            Spans of other scopes are claimed if they have GenAI attributes.
        ignore_scopes: prefixes of scopes whose spans are never claimed, whatever their attributes are.
        kinds: kinds of units that are scored: ``workflow``, ``agent`` and ``chat``. ``chat`` is a model called alone, also by a
            tool in a thread of its own. Units of other kinds are ``filtered``.
        dialects: sample extractors of your own: each a ``SampleExtractor``, its name, or the name with parameters. The first
            extractor that claims the unit's root reads the unit; yours come before the built-in ones. A parameter ``extract``
            gets ``capture.extract``.
        translations: normalizers of your own, which map the spans of another library to GenAI names: each a ``SpanNormalizer``,
            its name, or the name with parameters. They come before the built-in ones, and run on spanscore's span thread.
        idle_timeout: time without a new span after which a unit closes, once its root has arrived.
        orphan_wait: time for which spans without their parent wait, after the latest span of their trace.
        max_age: age at which a unit closes as incomplete.
        max_spans: number of claimed spans of a unit; a unit with more closes as incomplete.
        max_bytes: size of a unit's spans; a larger unit closes as incomplete.
        traces: number of open traces with spans of possible units; further traces are refused until some have closed.
        bytes: size of all waiting spans; further spans are refused until some have closed.
        late: treatment of a span that arrives after its unit was closed: ``count`` it, or ``rescore`` the unit as its next
            revision.
        external_scores: whether scores of other evaluators, which arrive with spans and logs, are counted. They have the source
            ``external``, which no alert and no mean of spanscore reads.
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
    """The end of a conversation, for metrics that score whole conversations (``per: session``), and limits of open
    conversations.

    Attributes:
        metrics: metrics that score whole conversations, once each, after their end: the metrics of a ``MultiTurnSample``. Their
            rates are shares of conversations, and no rule raises them: either all turns of a conversation are gathered or none.
            A conversation is all runs of one ``spanscore.session``, or all runs with the same ``thread_id``, ``session_id`` or
            ``conversation_id`` in their metadata. With session metrics, the scorer's ``metrics`` may be empty. Python only: in
            a file, write ``per: session`` into a metric's parameters.
        idle_timeout: time without a turn after which a conversation ends.
        max_turns: number of turns after which a conversation ends.
        max_bytes: approximate size of the content of open conversations. Above it, or above 10,000 open conversations, the
            conversation with the oldest last turn ends (``evicted``).
        score_every: number of turns between provisional scores of an open conversation. They are on evaluation spans only, in
            no sum; 0 = no provisional scores.
        replicas: distribution of turns over the processes of an application. ``one``: there is one process. ``sticky``: all
            turns of a conversation reach the same process. ``any``: any process may get any turn. With ``any``,
            ``idle_timeout`` and ``score_every`` are off, and only ``end_session`` and ``max_turns`` end a conversation, on a
            turn that has the whole history with it; without that history the conversation is ``incomplete``.
    """

    section: ClassVar[str] = "sessions"
    metrics: MetricObjects = ()
    idle_timeout: PositiveSeconds = 300.0
    max_turns: Count = 50
    max_bytes: Size = 64_000_000
    score_every: Annotated[int, Field(ge=0)] = 10
    replicas: Replicas = "one"
