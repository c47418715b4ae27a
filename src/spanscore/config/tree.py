"""The whole configuration: all sections of a scorer, and all keys of a file."""

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

SHORT_FORMS: Final = {"sample_rate": "sampling.rate", "budget": "judge.budget", "extract": "capture.extract"}
"""Argument of ``OnlineScorer`` that is short for a key of a section → the key."""


class ScorerSettings(SettingsPart):
    """All settings of a scorer, except its metrics and OpenTelemetry's providers.

    Attributes:
        service_name: name of the service on spanscore's own providers, if the application has none; None =
            ``OTEL_SERVICE_NAME``.
        redactor: function that is applied to every text before the judge and before export, and to the conversation's id. If it
            fails, the text is not used. Names (of runs, tools, models and error classes) and the ids of tool calls are exported
            unchanged. The redactor is called from several threads. Give a function, or the name of a function or class:
            ``my_pkg.privacy:redact``; a class may have parameters.
        sample_filter: function of a sample; if it returns false or raises, the unit is not scored (``filtered``). Python only.
        feedback_scales: name → words that ``feedback()`` accepts under this name, worst first
            (``{"user_feedback": ["bad", "ok", "good"]}``). Names without a scale accept True, False and numbers from 0 to 1.
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
        """Return the settings among the arguments of ``OnlineScorer``, with short forms moved into their sections.

        Raises:
            ConfigurationError: a value is wrong, or both a short form and its key are given.
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
        """Keys of metadata that a setting names. Closed units keep only these."""
        of_rules = (key for rule in self.sampling.rules for key in rule.when.metadata or ())
        return tuple(dict.fromkeys([*self.capture.metadata, *self.monitoring.dimensions, *of_rules]))


class MetricsEndpointSettings(SettingsPart):
    """The listen address of the page for Prometheus. The page has no authentication.

    Attributes:
        port: port number; 0 = any free port.
        host: the address to listen on; by default reachable from this machine only. In a pod: ``0.0.0.0``.
    """

    port: int = Field(default=9464, ge=0, le=65_535)
    host: str = "127.0.0.1"


_PORT_ALONE = BeforeValidator(lambda value: {"port": value} if type(value) is int else value)
_Metrics = Items[str | dict[str, dict[str, Any] | None]]
_OF_ALL = {"judge": "; for a second judge, write shadow", "embeddings": ""}
"""Parameters that are set once for all metrics → end of the message."""


def _without_a_judge_of_its_own(metrics: _Metrics) -> _Metrics:
    for name, parameters in (pair for entry in metrics if isinstance(entry, dict) for pair in entry.items()):
        for key in _OF_ALL.keys() & (parameters or {}):
            raise ValueError(f"{name}.{key} is not a parameter of one metric: all share {key} at the top{_OF_ALL[key]}")
    return metrics


class Configuration(ScorerSettings):
    """All keys of a configuration file: a scorer's sections, its metrics by name, and the sections of services and alerts.

    Attributes:
        metrics: names of metrics, each alone or with its parameters; at least one. A metric of your own is
            ``my_pkg.metrics:Politeness``.
        embeddings: model that compares texts, ``provider:model`` or ``lexical``, for metrics that need one. None = the offline
            embeddings with the offline judge, else no model. The model uses its provider's variables (``OPENAI_API_KEY``,
            ``OPENAI_BASE_URL``), not the judge's address.
        serve_metrics: page for Prometheus, in addition to the export over OTLP; a number is the port. None = no page.
        alerts: metric → settings of its alerts. A metric without an entry has all alerts but those on drops, thresholds and
            shares.
        serve: listeners of ``spanscore serve``; other commands ignore them.
        worker: shutdown of ``spanscore worker``.
        kafka: topic that ``spanscore worker`` reads; null = no topic.
        reload: whether the file is read again when it changes, within some four seconds. An invalid file changes nothing.
            Only ``alerts``, ``embeddings``, ``judge``, ``metrics``, ``monitoring`` and ``sampling`` are applied, with
            exceptions; all else needs a restart (``docs/how-to/change-without-restart.md``).
    """

    python_names: ClassVar[Mapping[str, str]] = {**SHORT_FORMS, **NEW_OPTIONS}
    """Arguments of ``OnlineScorer`` that have another name in a file, for messages about misplaced keys."""
    metrics: Annotated[_Metrics, AfterValidator(_without_a_judge_of_its_own), Field(min_length=1)]
    embeddings: str | None = None
    serve_metrics: Annotated[MetricsEndpointSettings | None, _PORT_ALONE, AlsoWritten("integer")] = None
    alerts: Table[str, AlertSettings] = Field(default_factory=FrozenDict)
    serve: ServeSettings = ServeSettings.model_construct()
    worker: WorkerSettings = WorkerSettings.model_construct()
    kafka: KafkaSettings | None = None
    reload: bool = False


RELOADED: Final[Mapping[str, frozenset[str]]] = {
    "alerts": frozenset(),
    "embeddings": frozenset(),
    "judge": frozenset({"replica_share", "trace", "max_concurrency", "requests_per_minute", "tokens_per_minute"}),
    "metrics": frozenset(),
    "monitoring": frozenset({"dimensions"}),
    "sampling": frozenset({"key", "feedback"}),
}
"""Key of a file that a reload applies → its inner keys that need a restart. All other keys of a file need a restart."""
