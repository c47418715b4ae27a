"""The sections ``units`` and ``sessions``: the spans that are read, and the conditions that close a unit or a conversation."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from spanscore.config.kinds import (
    Count,
    ExtractorPart,
    FrozenDict,
    Items,
    MetricObjects,
    NormalizerPart,
    PositiveSeconds,
    Rate,
    Seconds,
    SettingsPart,
    Size,
    Table,
)
from spanscore.config.monitoring import AlertSettings
from spanscore.core.span import UNIT_KINDS, InnerGroup, InnerKind, UnitKind


class InnerUnit(SettingsPart):
    """Spans below a root that are units of their own, beside the unit of the root.

    Attributes:
        kind: kind of the spans: ``retriever``, ``tool``, ``agent`` or ``chat`` (a model call).
        name: name of the tool, the agent, the retriever or the model; None = any name.
        rate: share of these spans that each metric scores, [0, 1], among spans below recorded roots. A root is recorded at the
            largest rate of any metric and matching rule. The probability of a score is the product of this rate and
            the rate at which the root is recorded.
        metrics: names of the metrics that score these spans; None = all metrics of units.
        alerts: metric → settings of its alerts on these spans, as in the section ``alerts``: ``{context_relevance: {baseline:
            0.8}}``.
    """

    section: ClassVar[str] = "units.also"
    kind: InnerKind
    name: Annotated[str, Field(min_length=1)] | None = None
    rate: Rate = 1.0
    metrics: Items[str] | None = None
    alerts: Table[str, AlertSettings] = Field(default_factory=FrozenDict)

    @model_validator(mode="after")
    def _can_alert(self) -> Self:
        if self.alerts and "=" in (self.name or ""):
            raise ValueError(
                f"cannot have alerts, because its name {self.name!r} contains =: leave out the name or the alerts"
            )
        return self

    @property
    def group(self) -> InnerGroup:
        """The entry without its rate and metrics."""
        return InnerGroup(self.kind, self.name)


def _refuse_repeated(also: tuple[InnerUnit, ...]) -> tuple[InnerUnit, ...]:
    groups = [entry.group for entry in also]
    repeated = [str(group) for group in dict.fromkeys(groups) if groups.count(group) > 1]
    if repeated:
        raise ValueError(f"has {repeated[0]} twice; the first matching entry holds: give each kind and name once")
    return also


class Units(SettingsPart):
    """The spans that are read, and the conditions that close a unit of spans from other processes.

    Attributes:
        scopes: prefixes of further instrumentation scopes whose spans a ``ScoringSpanProcessor`` or ``spanscore serve`` claims.
            Spans of other scopes are claimed if they have GenAI attributes.
        ignore_scopes: prefixes of scopes whose spans are never claimed, whatever their attributes are.
        kinds: kinds of units that are scored: ``workflow``, ``agent`` and ``chat``. ``chat`` is a model call without a run
            around it, such as a call that a tool makes in a separate thread. Units of other kinds are ``filtered``.
        also: spans below a root that are units of their own, such as ``[{kind: retriever}, {kind: tool, name: search}]``. Each
            has a sample of its own input and output, and separate scores, counts and means. The first matching entry holds.
        dialects: sample extractors of your own: each a ``SampleExtractor``, its name, or the name with parameters. The first
            extractor that claims the unit's root reads the unit; yours precede the built-in extractors. If the class has a
            parameter ``extract``, it receives the value of ``capture.extract``.
        translations: normalizers of your own, which map the spans of another library to GenAI names: each a ``SpanNormalizer``,
            its name, or the name with parameters. Yours precede the built-in normalizers, and run on spanscore's span thread.
        idle_timeout: time without a new span after which a unit closes, once its root has arrived.
        orphan_wait: time for which spans without their parent wait, after the latest span of their trace.
        max_age: age at which a unit closes as incomplete.
        max_spans: number of claimed spans of a unit; a unit with more spans closes as incomplete.
        max_bytes: size of a unit's spans; a larger unit closes as incomplete.
        traces: number of open traces with spans of possible units; further traces are refused until some have closed.
        bytes: size of all waiting spans; further spans are refused until some have closed.
        late: treatment of a span that arrives after its unit was closed: ``count`` it, or ``rescore`` the unit as its next
            revision.
        external_scores: whether scores of other evaluators, which arrive with spans and logs, are counted. These scores
            have the source ``external``, which no alert and no mean of spanscore reads.
    """

    section: ClassVar[str] = "units"
    scopes: Items[str] = ()
    ignore_scopes: Items[str] = ()
    kinds: Items[UnitKind] = UNIT_KINDS
    also: Annotated[Items[InnerUnit], AfterValidator(_refuse_repeated)] = ()
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
        metrics: metrics that score whole conversations, once each, after their end: the metrics of a ``MultiTurnSample``. Rates
            of such metrics are shares of conversations, and no rule raises these rates: all turns of a conversation are
            gathered, or no turn. A conversation is all runs of one ``spanscore.session``, or all runs with the same
            ``thread_id``, ``session_id`` or ``conversation_id`` in their metadata. With session metrics, the scorer's
            ``metrics`` may be empty. Python only: in a file, write ``per: session`` into a metric's parameters.
        idle_timeout: time without a turn after which a conversation ends.
        max_turns: number of turns after which a conversation ends.
        max_bytes: approximate size of the content of open conversations. Above it, or above 10,000 open conversations, the
            conversation with the oldest last turn ends (``evicted``).
        score_every: number of turns between provisional scores of an open conversation. Such scores are only on evaluation
            spans, and in no sum; 0 = no provisional scores.
        replicas: distribution of turns over the processes of an application. ``one``: there is one process. ``sticky``: all
            turns of a conversation reach the same process. ``any``: any process may get any turn. With ``any``,
            ``idle_timeout`` and ``score_every`` have no effect: ``end_session`` or ``max_turns`` ends a conversation. If the
            last turn that reached the process lacks the whole history, the conversation is ``incomplete``.
    """

    section: ClassVar[str] = "sessions"
    metrics: MetricObjects = ()
    idle_timeout: PositiveSeconds = 300.0
    max_turns: Count = 50
    max_bytes: Size = 64_000_000
    score_every: Annotated[int, Field(ge=0)] = 10
    replicas: Replicas = "one"
