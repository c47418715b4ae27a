"""The sections of a configuration put together: what a scorer is made of, and what a file may hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field

from spanscore.config.capture import Capture
from spanscore.config.collect import Collect
from spanscore.config.durable import KafkaSettings, RemoteScoring, Spool
from spanscore.config.judging import ByName, JudgeSettings
from spanscore.config.kinds import AlsoWritten, FilterFunction, FrozenDict, Items, RedactorPart, SettingsPart, Table
from spanscore.config.messages import NEW_OPTIONS
from spanscore.config.monitoring import AlertSettings, Compare, JudgeCheck, Monitoring
from spanscore.config.outputs import Limits, Outputs
from spanscore.config.sampling import Sampling
from spanscore.config.serving import ServeSettings, WorkerSettings
from spanscore.config.units import Sessions, Units
from spanscore.errors import ConfigurationError

__all__ = ["SHORT_FORMS", "Configuration", "MetricsEndpointSettings", "ScorerSettings"]

SHORT_FORMS: Final = {"sample_rate": "sampling.rate", "budget": "judge.budget", "extract": "capture.extract"}
"""Argument of ``OnlineScorer`` that is short for a key of a section → that key."""


class ScorerSettings(SettingsPart):
    """Everything that can be chosen about a scorer but its metrics and OpenTelemetry's providers.

    Attributes:
        service_name: the service, on our own providers, where the application has none; None = ``OTEL_SERVICE_NAME``.
        redactor: applied to every text before the judge and before export, and to the conversation's id; fails closed. Names
            (of runs, tools, models and error classes) and the ids of tool calls are exported as they are. Called from
            several threads. A function, or by name: ``my_pkg.privacy:redact``, a function, or a class with parameters.
        sample_filter: samples for which it is false are not scored (``filtered``). Python only.
        feedback_scales: name → the words that ``feedback()`` takes under it, worst first
            (``{"user_feedback": ["bad", "ok", "good"]}``). Under a name without a scale it takes True, False and numbers from 0
            to 1.
    """

    judge: Annotated[JudgeSettings, *ByName] = JudgeSettings.model_construct()
    sampling: Sampling = Sampling.model_construct()
    capture: Capture = Capture.model_construct()
    outputs: Outputs = Outputs.model_construct()
    limits: Limits = Limits.model_construct()
    units: Units = Units.model_construct()
    sessions: Sessions = Sessions.model_construct()
    monitoring: Monitoring = Monitoring.model_construct()
    judge_check: JudgeCheck | None = None
    compare: Compare | None = None
    collect: Collect | None = None
    spool: Spool | None = None
    remote_scoring: RemoteScoring | None = None
    feedback_scales: Table[str, Items[str | int]] = Field(default_factory=FrozenDict)
    service_name: str | None = None
    redactor: RedactorPart = None
    sample_filter: FilterFunction = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Return the settings that are among the arguments of ``OnlineScorer``, its short forms in their sections.

        Raises:
            ConfigurationError: a value is wrong, or a short form is given beside the key for which it is short.
        """
        sections = {name: arguments[name] for name in cls.model_fields if arguments.get(name) is not None}
        for name, key in SHORT_FORMS.items():
            section, _, field = key.partition(".")
            if arguments.get(name) is None:
                continue
            other = sections.get(section, {})
            fields = (
                other if isinstance(other, dict) else {name: getattr(other, name) for name in other.model_fields_set}
            )
            if field in fields:
                raise ConfigurationError(f"{name} is short for {key}, which is given, too; give one of them")
            sections[section] = {**fields, field: arguments[name]}
        return cls(**sections)

    @property
    def listed_metadata(self) -> tuple[str, ...]:
        """Keys of metadata that are named somewhere: of a closed unit no others are kept."""
        of_rules = (key for rule in self.sampling.rules for key in rule.when.metadata or ())
        return tuple(dict.fromkeys([*self.capture.metadata, *self.monitoring.dimensions, *of_rules]))


class MetricsEndpointSettings(SettingsPart):
    """Where the metrics can be scraped. The page has no authentication.

    Attributes:
        port: 0 = any free one.
        host: the address to listen on; by default reachable from this machine only. In a pod: ``0.0.0.0``.
    """

    port: int = Field(default=9464, ge=0, le=65_535)
    host: str = "127.0.0.1"


_PORT_ALONE = BeforeValidator(lambda value: {"port": value} if type(value) is int else value)
_Metrics = Items[str | dict[str, dict[str, Any] | None]]
_OF_ALL = {"judge": "; a second one, beside it, is a metric's shadow", "embeddings": ""}
"""What metrics are handed, and none has of its own."""


def _without_a_judge_of_its_own(metrics: _Metrics) -> _Metrics:
    for name, parameters in (pair for entry in metrics if isinstance(entry, dict) for pair in entry.items()):
        for key in _OF_ALL.keys() & (parameters or {}):
            raise ValueError(
                f"{name}.{key} is no parameter of one metric: all share what {key} names at the top{_OF_ALL[key]}"
            )
    return metrics


class Configuration(ScorerSettings):
    """What may stand in a configuration file: a scorer's sections, its metrics by name, and what services and alerts need.

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

    python_names: ClassVar[Mapping[str, str]] = {**SHORT_FORMS, **NEW_OPTIONS}
    """Arguments of ``OnlineScorer`` that stand elsewhere in a file, for the messages of misplaced keys."""
    metrics: Annotated[_Metrics, AfterValidator(_without_a_judge_of_its_own), Field(min_length=1)]
    embeddings: str | None = None
    serve_metrics: Annotated[MetricsEndpointSettings | None, _PORT_ALONE, AlsoWritten("integer")] = None
    alerts: Table[str, AlertSettings] = Field(default_factory=FrozenDict)
    serve: ServeSettings = ServeSettings.model_construct()
    worker: WorkerSettings = WorkerSettings.model_construct()
    kafka: KafkaSettings | None = None
