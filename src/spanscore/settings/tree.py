"""The configuration tree: plain values with their defaults and bounds.

The keys of a scorer's options are not among them, but for those that others read, too: ``line/configuration.py`` adds them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from spanscore.settings.alerting import AlertSettings, MonitoringSettings
from spanscore.settings.judging import ByName, JudgeSettings
from spanscore.settings.kafka import KafkaSettings
from spanscore.settings.kinds import AlsoWritten, Count, Rate, Seconds, SettingsPart, Share
from spanscore.settings.serving import ServeSettings, WireUnits, WorkerSettings

__all__ = ["AttachSettings", "MetricsEndpointSettings", "PlaceSettings", "RuleSettings", "Settings"]


class ScoreBelow(SettingsPart):
    """Units to which a metric that asks no judge gave a lower quality; a unit without its score is none of them.

    Attributes:
        metric: its name; the other metrics wait for its score.
        below: quality, (0, 1].
    """

    metric: str
    below: Share


class RuleWhen(SettingsPart):
    """Which units a rule is for; what is left out matches all, and of ``metadata`` all must match."""

    status: Literal["error", "ok"] | None = None
    workflow: str | None = None
    slower_than: Seconds | None = None
    metadata: dict[str, Any] | None = None
    any_error: bool = False
    min_tool_calls: Count | None = None
    model: str | None = None
    score: ScoreBelow | None = None


class RuleSettings(SettingsPart):
    """Score units that match ``when`` at ``rate``, where that is larger than the metric's own rate.

    Attributes:
        when: which units; what is left out matches all.
        rate: probability in [0, 1].
        name: stands on the score as ``spanscore.sampling.rule``; None = ``rule_`` and its position, from 1.
    """

    when: RuleWhen
    rate: Rate
    name: str | None = None


class AttachSettings(SettingsPart):
    """Where scores land.

    Attributes:
        span: on the unit's own span, as attributes.
        evaluation_span: on a span per score, below the unit's and linked to it; late scores too.
        event: as a log event ``gen_ai.evaluation.result``.
        instruments: in counters, gauges and histograms; without them there are no alerts.
    """

    span: bool = True
    evaluation_span: bool = True
    event: bool = True
    instruments: bool = True


class PlaceSettings(SettingsPart):
    """Where question, answer and contexts are found, as key paths.

    Attributes:
        user_input: of the question, such as ``input.request``; None = where it usually is.
        response: of the answer, such as ``output.reply``; None = likewise.
        retrieved_contexts: of texts or documents, such as ``output.docs``; None = likewise.
    """

    user_input: str | None = None
    response: str | None = None
    retrieved_contexts: str | None = None


class MetricsEndpointSettings(SettingsPart):
    """Where the metrics can be scraped. The page has no authentication.

    Attributes:
        port: 0 = any free one.
        host: the address to listen on; by default reachable from this machine only. In a pod: ``0.0.0.0``.
    """

    port: int = Field(default=9464, ge=0, le=65_535)
    host: str = "127.0.0.1"


def _port(value: Any) -> Any:
    return {"port": value} if isinstance(value, int) and not isinstance(value, bool) else value


_Metrics = list[str | dict[str, dict[str, Any] | None]]
_OF_ALL = {"judge": "; a second one, beside it, is a metric's shadow", "embeddings": ""}
"""What metrics are handed, and none has of its own."""


def _without_a_judge_of_its_own(metrics: _Metrics) -> _Metrics:
    for name, parameters in (pair for entry in metrics if isinstance(entry, dict) for pair in entry.items()):
        for key in _OF_ALL.keys() & (parameters or {}):
            raise ValueError(
                f"{name}.{key} is no parameter of one metric: all share what {key} names at the top{_OF_ALL[key]}"
            )
    return metrics


class Settings(SettingsPart):
    """What is not an option of a scorer: the metrics, what they ask, and what is made of their scores.

    Attributes:
        metrics: what is scored: names, each alone or with its parameters; at least one. A metric of your own is
            ``my_pkg.metrics:Politeness``.
        embeddings: model that compares texts, ``provider:model`` or ``lexical``, for the metrics that need one; None = the
            offline ones beside the offline judge, else none. Asked by its provider's own variables (``OPENAI_API_KEY``,
            ``OPENAI_BASE_URL``), not at the judge's address.
        serve_metrics: page that a Prometheus scrapes, beside what goes out by OTLP; a number is the port. None = none.
        alerts: metric → when it is worth a page; without an entry only missing scores and a failing judge are told.
        serve: where ``spanscore serve`` listens, and for whom; nothing else reads it.
        worker: how ``spanscore worker`` ends.
        kafka: topic that ``spanscore worker`` reads; null = none.
    """

    metrics: Annotated[_Metrics, AfterValidator(_without_a_judge_of_its_own)] = Field(min_length=1)
    judge: Annotated[JudgeSettings, *ByName] = JudgeSettings()
    embeddings: str | None = None
    serve_metrics: Annotated[MetricsEndpointSettings | None, BeforeValidator(_port), AlsoWritten("integer")] = None
    monitoring: MonitoringSettings = MonitoringSettings()
    alerts: dict[str, AlertSettings] = Field(default_factory=dict)
    serve: ServeSettings = ServeSettings()
    worker: WorkerSettings = WorkerSettings()
    units: WireUnits = WireUnits()
    kafka: KafkaSettings | None = None
