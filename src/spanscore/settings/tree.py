"""The configuration tree: plain values with their defaults and bounds.

The keys of a scorer's options are not among them, but for those that others read, too: ``line/configuration.py`` adds them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from spanscore.settings.alerting import AlertSettings, MonitoringSettings
from spanscore.settings.judging import JudgeSettings
from spanscore.settings.kinds import Count, Rate, Seconds, SettingsPart, Share

__all__ = ["AttachSettings", "MetricsEndpointSettings", "PlaceSettings", "RuleSettings", "Settings"]


class ScoreBelow(SettingsPart):
    """Units to which a metric that asks no judge gave a lower quality."""

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
    """Score units that match ``when`` at ``rate``, where that is larger than the metric's own rate."""

    when: RuleWhen
    rate: Rate
    name: str | None = None


class AttachSettings(SettingsPart):
    """Where scores land."""

    span: bool = True
    evaluation_span: bool = True
    event: bool = True
    instruments: bool = True


class PlaceSettings(SettingsPart):
    """Where question, answer and contexts are found, as key paths; None = where they usually are."""

    user_input: str | None = None
    response: str | None = None
    retrieved_contexts: str | None = None


class MetricsEndpointSettings(SettingsPart):
    """Where the metrics can be scraped; port 0 = any free one."""

    port: int = Field(default=9464, ge=0, le=65_535)
    host: str = "127.0.0.1"


def _port(value: Any) -> Any:
    return {"port": value} if isinstance(value, int) and not isinstance(value, bool) else value


class Settings(SettingsPart):
    """What is not an option of a scorer: the metrics, what they ask, and what is made of their scores."""

    metrics: list[str | dict[str, dict[str, Any] | None]] = Field(min_length=1)
    judge: JudgeSettings = JudgeSettings()
    embeddings: str | None = None
    serve_metrics: Annotated[MetricsEndpointSettings | None, BeforeValidator(_port)] = None
    monitoring: MonitoringSettings = MonitoringSettings()
    alerts: dict[str, AlertSettings] = Field(default_factory=dict)
