"""The table of options: a line per knob, with its default, its bounds and its key in a configuration file.

``OnlineScorer(…)`` has the same names, the same defaults, and says what each means; ``line/configuration.py`` makes the keys of
a configuration file from this table, and reads its annotations for that: they are no text here. Tests hold both against it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from spanscore.dialects.extract import Extract
from spanscore.errors import ConfigurationError
from spanscore.model.span import UNIT_KINDS, UnitKind
from spanscore.protocols import Filter, Metric, Queue, Redactor, SampleExtractor, Sink, SpanNormalizer
from spanscore.runtime.plugins import Entry, entries
from spanscore.sampling.rules import Rule
from spanscore.scoring.redactors import redactor_in
from spanscore.settings.budget import Budget, checked_budgets, checked_share
from spanscore.settings.collect import Collect, CollectSettings, collect_in
from spanscore.settings.compare import Compare, CompareSettings, compare_in
from spanscore.settings.feedback import FeedbackSampling, FeedbackSettings, feedback_in
from spanscore.settings.judge_check import JudgeCheck, JudgeCheckSettings, judge_check_in
from spanscore.settings.judging import BudgetSettings
from spanscore.settings.kinds import Count, FilePath, Named, PositiveSeconds, Rate, Seconds, Share, Size, TaskCount
from spanscore.settings.remote_scoring import RemoteScoring, RemoteScoringSettings, remote_scoring_in
from spanscore.settings.sessions import Sessions, SessionSettings
from spanscore.settings.spool import Spool, SpoolSettings, spool_in
from spanscore.settings.tree import AttachSettings, PlaceSettings, RuleSettings
from spanscore.settings.upstream import Upstream, upstream_in

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["PLACES", "Key", "Options", "budgets_in", "key_of", "rules_in"]

PLACES = tuple(AttachSettings.model_fields)
"""Where scores can land."""


@dataclass(frozen=True, slots=True)
class Key:
    """Where an option stands in a configuration file.

    Attributes:
        path: section and key; ``outputs.*`` = all keys of ``form``, in that section.
        form: what stands there, where that is of another type than the option.
        read: makes the option of what stands there.
    """

    path: str
    form: Any = None
    read: Callable[[Any], Any] = lambda given: given


def rules_in(given: Sequence[RuleSettings]) -> tuple[Rule, ...]:
    """Return the sampling rules of a configuration; one without a name has its position for one."""
    named = ((rule, rule.name or f"rule_{position}") for position, rule in enumerate(given, start=1))
    return tuple(Rule(rate=rule.rate, name=name, **rule.when.model_dump()) for rule, name in named)


def budgets_in(given: Sequence[BudgetSettings]) -> tuple[Budget, ...]:
    """Return the budgets of a configuration."""
    return tuple(one.budget() for one in given)


def _sessions(given: SessionSettings) -> Sessions:
    return given.sessions()


def _places(given: AttachSettings) -> tuple[str, ...]:
    return tuple(place for place in PLACES if getattr(given, place))


def _extract(given: PlaceSettings) -> Extract | None:
    found = {name: getattr(given, name) for name in PlaceSettings.model_fields}
    return Extract(**found) if any(found.values()) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything that can be chosen about a scorer but its metrics; ``OnlineScorer`` says what each means, and its unit.

    Raises:
        ConfigurationError: ``outputs`` names a place that is none, or ``sinks`` one that is; or ``replica_share`` is none.
    """

    sample_rate: Annotated[Rate, Key("sampling.rate")] = 1.0
    rates: Annotated[Mapping[str, Rate], Key("sampling.rates")] = field(default_factory=dict)
    rules: Annotated[Sequence[Rule], Key("sampling.rules", list[RuleSettings], rules_in)] = ()
    sampling_key: Annotated[bytes | None, Key("sampling.key")] = None
    head_sampling_rate: Annotated[
        float | Mapping[str, Any], Key("sampling.head_sampling_rate", Upstream, upstream_in)
    ] = 1.0
    feedback_sampling: Annotated[
        FeedbackSampling | None, Key("sampling.feedback", FeedbackSettings | None, feedback_in)
    ] = None
    budget: Annotated[Sequence[Budget], Key("judge.budget", list[BudgetSettings], budgets_in)] = ()
    replica_share: Annotated[Share, Key("judge.replica_share")] = 1.0
    trace_judges: Annotated[bool, Key("judge.trace")] = False
    shadows: Sequence[Metric] = ()
    shadow_budget: Sequence[Budget] | None = None
    judge_check: Annotated[JudgeCheck | None, Key("judge_check", JudgeCheckSettings | None, judge_check_in)] = None
    session_metrics: Sequence[Metric] = ()
    sessions: Annotated[Sessions, Key("sessions.*", SessionSettings, _sessions)] = field(default_factory=Sessions)
    service_name: Annotated[str | None, Key("service_name")] = None
    tracer_provider: "TracerProvider | None" = None
    meter_provider: "MeterProvider | None" = None
    logger_provider: "LoggerProvider | None" = None
    capture: Annotated[bool, Key("capture.enabled")] = True
    capture_content: Annotated[bool | None, Key("capture.content")] = None
    capture_metadata: Annotated[Sequence[str], Key("capture.metadata", list[str])] = ()
    capture_metrics: Annotated[bool, Key("capture.metrics")] = True
    capture_context: Annotated[bool, Key("capture.context")] = False
    all_runs: Annotated[bool, Key("capture.all_runs")] = False
    score_abandoned: Annotated[bool, Key("capture.score_abandoned")] = False
    score_failed: Annotated[bool, Key("capture.score_failed")] = False
    extract: Annotated[Extract | None, Key("capture.*", PlaceSettings, _extract)] = None
    redactor: Annotated[Redactor | None, Key("redactor", Named | None, redactor_in)] = None
    sample_filter: Filter | None = None
    outputs: Annotated[Sequence[str], Key("outputs.*", AttachSettings, _places)] = PLACES
    sinks: Annotated[Sequence[Sink | Entry], Key("sinks", list[Named])] = ()
    dialects: Annotated[Sequence[SampleExtractor | Entry], Key("dialects", list[Named])] = ()
    queue: Annotated[Queue | Entry, Key("queue", Named)] = "memory"
    remote_scoring: Annotated[
        RemoteScoring | None, Key("remote_scoring", RemoteScoringSettings | None, remote_scoring_in)
    ] = None
    spool: Annotated[Spool | None, Key("spool", SpoolSettings | None, spool_in)] = None
    collect: Annotated[Collect | None, Key("collect", CollectSettings | None, collect_in)] = None
    spans_to: Annotated[str | Path | None, Key("spans_to", FilePath | None)] = None
    hold: Annotated[Seconds | None, Key("outputs.hold")] = None
    timeout: Annotated[Seconds, Key("limits.timeout")] = 180.0
    hook_timeout: Annotated[PositiveSeconds, Key("limits.hook_timeout")] = 1.0
    workers: Annotated[TaskCount, Key("limits.workers")] = 32
    queue_size: Annotated[Count, Key("limits.queue_size")] = 1_000
    queue_bytes: Annotated[Size, Key("limits.queue_bytes")] = 256_000_000
    event_queue_size: Annotated[Count, Key("limits.event_queue_size")] = 10_000
    event_queue_bytes: Annotated[Size, Key("limits.event_queue_bytes")] = 64_000_000
    feedback_scales: Annotated[Mapping[str, Sequence[str]], Key("feedback_scales", dict[str, list[str | int]])] = field(
        default_factory=dict
    )
    compare: Annotated[Compare | None, Key("compare", CompareSettings | None, compare_in)] = None
    dimensions: Annotated[Mapping[str, Sequence[str]], Key("monitoring.dimensions")] = field(default_factory=dict)
    scopes: Annotated[Sequence[str], Key("units.scopes", list[str])] = ()
    ignore_scopes: Annotated[Sequence[str], Key("units.ignore_scopes", list[str])] = ()
    kinds: Annotated[Sequence[UnitKind], Key("units.kinds", list[UnitKind])] = UNIT_KINDS
    translations: Annotated[Sequence[SpanNormalizer | Entry], Key("units.translations", list[Named])] = ()

    def __post_init__(self) -> None:
        for name, kind in _OBJECTS.items():
            if (given := getattr(self, name)) is not None and not isinstance(given, kind):
                raise ConfigurationError(f"{name} is {given!r}; write {name}=spanscore.config.{kind.__name__}(…)")
        _check_redactor(self.redactor)
        if isinstance(self.capture_metadata, str):
            raise ConfigurationError(
                f"capture_metadata is {self.capture_metadata!r}; write [{self.capture_metadata!r}]"
            )
        checked_share(self.replica_share)
        checked_budgets(self.budget)
        checked_budgets(self.shadow_budget or ())
        _check_names("outputs", self.outputs, PLACES)
        _check_names("kinds", self.kinds, UNIT_KINDS)
        named = entries(sink for sink in self.sinks if isinstance(sink, str | Mapping))
        if places := [name for name, _ in named if name in PLACES]:
            raise ConfigurationError(
                f"sinks names {places[0]!r}, which is a place: outputs says whether scores land there"
            )

    @property
    def listed_metadata(self) -> tuple[str, ...]:
        """Keys of metadata that are named somewhere: of a closed unit no others are kept."""
        of_rules = (key for rule in self.rules for key in rule.metadata or ())
        return tuple(dict.fromkeys([*self.capture_metadata, *self.dimensions, *of_rules]))

    def rates_of(self, metric: str) -> tuple[float, float]:
        """Return the least and the most of a metric's sampling rate: rules only raise it."""
        rate = self.rates.get(metric, self.sample_rate)
        return rate, max([rate, *(rule.rate for rule in self.rules)])

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the options that are among what is given, by value; None for a mapping is an empty one."""
        return cls(**{option.name: _own(given[option.name], option) for option in fields(cls) if option.name in given})


def _check_names(option: str, given: Sequence[str], allowed: Sequence[str]) -> None:
    unknown = sorted(set(given) - set(allowed))
    if unknown:
        raise ConfigurationError(f"{option} names {unknown[0]!r}; allowed are {', '.join(allowed)}")


def _own(value: Any, option: "Field[Any]") -> Any:
    """Return a value that stays as it is when the caller's list or dict does not."""
    if value is None and option.default_factory is not MISSING:
        return option.default_factory()
    if isinstance(value, Mapping):
        return dict(value)
    return tuple(value) if isinstance(value, list) else value


def _check_redactor(given: Any) -> None:
    if given is not None and not callable(given):
        raise ConfigurationError(
            f"redactor is {given!r}; give the function itself: only a configuration file names one"
        )


_OBJECTS: Final = {
    "judge_check": JudgeCheck,
    "collect": Collect,
    "compare": Compare,
    "remote_scoring": RemoteScoring,
    "sessions": Sessions,
    "spool": Spool,
}
"""Options that a configuration has as keys with values, and Python as an object."""


def key_of(option: "Field[Any]") -> Key | None:
    """Return where an option stands in a configuration file; None where it is an object, and so for Python alone."""
    return next((note for note in getattr(option.type, "__metadata__", ()) if isinstance(note, Key)), None)
