"""Makes a scorer from a configuration file, the environment and arguments, and applies the file again after a change."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from weakref import ReferenceType

from spanscore.config.judging import OF_SCORER, JudgeSettings
from spanscore.config.kinds import SettingsPart
from spanscore.config.messages import NEW_OPTIONS
from spanscore.config.reading import read_settings
from spanscore.config.sampling import Sampling
from spanscore.config.tree import RELOADED, SHORT_FORMS, Configuration, ScorerSettings
from spanscore.core.log import log_event
from spanscore.core.printable import did_you_mean
from spanscore.core.threads import call_in_child, start_daemon
from spanscore.errors import ConfigurationError
from spanscore.metrics.catalog.configured import (
    judge_of,
    metrics_of,
    per_session,
    session_metrics,
    shadow_budget_of,
    shadows_of,
)
from spanscore.metrics.catalog.registry import by_name, under_current_names
from spanscore.monitoring.health import refused_evaluator_versions
from spanscore.monitoring.watched_means import alerts_by_key
from spanscore.protocols import Metric
from spanscore.wiring.build import Pipeline

if TYPE_CHECKING:
    from threading import Thread

    from spanscore.wiring.build import Replacement
    from spanscore.wiring.receiver_set import ReceiverSet

S = TypeVar("S")
T = TypeVar("T", bound=ScorerSettings)
_LEXICAL: Final = "lexical"
"""A judge and embeddings that need no key."""
_PROVIDERS: Final = ("tracer_provider", "meter_provider", "logger_provider")


def make_from_file(path: str | Path, overrides: Mapping[str, Any], make: Callable[..., S]) -> tuple[S, Configuration]:
    """Return a scorer made from a file and overriding arguments of ``OnlineScorer``, and its configuration.

    Raises:
        ConfigurationError: the file is missing, or a key, a value or an override is wrong; the message names each error.
    """
    read = read_settings(path)
    with read.as_written.mask_errors():
        settings = override(read.settings, overrides)
        providers = {name: overrides[name] for name in _PROVIDERS if name in overrides}
        return make(**scorer_arguments(settings, overrides.get("metrics")), **providers), settings


def scorer_arguments(settings: Configuration, metrics: Any = None) -> dict[str, Any]:
    """Return a configuration as arguments of ``OnlineScorer``.

    Without the argument ``metrics``, the configuration's metrics are made here: metrics of units, metrics of conversations, and
    second judges.

    Raises:
        ConfigurationError: a metric or a judge cannot be made; or an alert watches an evaluator version that no metric has.
    """
    own = settings.judge.model_fields_set.intersection(OF_SCORER)
    judge: dict[str, Any] = {name: getattr(settings.judge, name) for name in own}
    if metrics is None:
        metrics, of_sessions, second_judges = _make_metrics(settings)
        judge |= second_judges
        if of_sessions:
            settings = settings.model_copy(update={"sessions": _replace_fields(settings.sessions, metrics=of_sessions)})
    sections = {name: getattr(settings, name) for name in ScorerSettings.model_fields}
    return {"metrics": metrics, **sections, "judge": JudgeSettings(**judge)}


def _make_metrics(settings: Configuration) -> tuple[list[Metric], list[Metric], dict[str, Any]]:
    """Return the metrics of units, the metrics of conversations, and the fields of second judges."""
    second_judges: dict[str, Any] = {}
    spool, of_sessions = settings.spool, [*per_session(settings)]
    if settings.remote_scoring is not None or (spool is not None and not spool.score_here):
        # Only the scoring process needs judges' keys and libraries.
        embeddings = None if settings.embeddings is None else _LEXICAL
        without_judges = settings.model_copy(update={"judge": JudgeSettings(model=_LEXICAL), "embeddings": embeddings})
        made = metrics_of(without_judges, judge=judge_of(without_judges))
    else:
        made, shadows = metrics_of(settings), shadows_of(settings)
        problems = list[str]()
        for key, alerts in alerts_by_key(settings.alerts, settings.units.also).items():
            problems += refused_evaluator_versions(alerts, made, shadows, key)
        if problems:
            raise ConfigurationError("; ".join(problems))
        if shadows:
            second_judges = {
                "shadows": shadows,
                "shadow_budget": shadow_budget_of(settings, tuple(settings.judge.budget)),
            }
    units = [metric for metric, is_session in zip(made, of_sessions, strict=True) if not is_session]
    return units, [metric for metric, is_session in zip(made, of_sessions, strict=True) if is_session], second_judges


def override(settings: T, overrides: Mapping[str, Any]) -> T:
    """Return a configuration with fields replaced by arguments of ``OnlineScorer``.

    A section replaces only those fields of the file's section that are set in it. ``sample_rate`` also removes the rates of
    metrics and the rules, which would override it. ``metrics`` also removes the rates of metrics that are not among them.

    Raises:
        ConfigurationError: an argument is unknown, or a value is wrong.
    """
    _check_names(overrides)
    sections = ScorerSettings.of(overrides)
    fields = ScorerSettings.model_fields
    update: dict[str, Any] = {
        name: None
        for name, value in overrides.items()
        if value is None and name in fields and fields[name].default is None
    }
    if overrides.get("sample_rate") is not None:
        sampling = settings.sampling
        kept = {name: getattr(sampling, name) for name in sampling.model_fields_set - {"rates", "rules"}}
        settings = settings.model_copy(update={"sampling": Sampling(**kept)})
    for name in sections.model_fields_set:
        update[name] = _merge_section(getattr(settings, name), getattr(sections, name))
    if overrides.get("metrics") is not None:  # these replace the file's metrics
        sampling = update.get("sampling", settings.sampling)
        names = [*by_name(overrides["metrics"]), *by_name(update.get("sessions", settings.sessions).metrics)]
        rates = under_current_names(sampling.rates, names)
        update["sampling"] = _replace_fields(sampling, rates={name: rates[name] for name in names if name in rates})
    return settings.model_copy(update=update)


def _merge_section(section: Any, value: Any) -> Any:
    """Return a section of the file, updated by the fields that were set in a Python section."""
    if not isinstance(value, SettingsPart) or type(section) is not type(value):
        return value
    return _replace_fields(section, **{name: getattr(value, name) for name in value.model_fields_set})


def _replace_fields(section: Any, **fields: Any) -> Any:
    return type(section)(**{name: getattr(section, name) for name in section.model_fields_set} | fields)


def _check_names(overrides: Mapping[str, Any]) -> None:
    names = ["metrics", *SHORT_FORMS, *ScorerSettings.model_fields, *_PROVIDERS]
    for name in overrides:
        if name in names:
            continue
        if new := NEW_OPTIONS.get(name) or _key_of_field(name):
            section, _, field_name = new.partition(".")
            kind = type(getattr(ScorerSettings(), section)).__name__
            raise ConfigurationError(f"{name} is now {section}" + (f"={kind}({field_name}=…)" if field_name else ""))
        meant = did_you_mean(name, names)
        raise ConfigurationError(
            f"there is no argument {name!r}{f'; {meant}' if meant else '.'} There are {', '.join(names)}"
        )


def _key_of_field(name: str) -> str:
    """Return the key of the first section with a field of this name; empty if no section has the field."""
    sections = {key: type(value) for key, value in ScorerSettings() if isinstance(value, SettingsPart)}
    return next((f"{key}.{name}" for key, section in sections.items() if name in section.model_fields), "")


# --- reloads ---------------------------------------------------------------------------------------------------------

_CHECK_S: Final = 2.0
"""Seconds between two checks of the file. A change is read after two checks in a row with the same content."""
_MAX_SWITCH_S: Final = 10.0
"""Maximum seconds of the wait for the span thread, which takes milliseconds unless an exporter blocks it."""
_MAX_CHANGES: Final = 10
"""Maximum number of changes of evaluator versions in ``status()``."""
_OF_SESSIONS: Final = "metrics with per: session"


class EvaluatorChange(NamedTuple):
    """A change of a metric's evaluator version by a reload.

    Attributes:
        when_s: time of the reload, seconds since the epoch.
        metric: name of the metric.
        before: earlier evaluator version.
        after: evaluator version of the units that began after the reload.
    """

    when_s: float
    metric: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.metric}: evaluator version {self.before} → {self.after} at {_describe_time(self.when_s)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """The result of a reload.

    Attributes:
        changed: keys of the file that changed and are applied, such as ``sampling.rate``.
        after_restart: keys of the file that changed and need a restart. They have no effect yet.
        evaluator_versions: metric → evaluator versions before and after; only metrics with a changed version.
    """

    changed: tuple[str, ...]
    after_restart: tuple[str, ...]
    evaluator_versions: Mapping[str, tuple[str, str]]

    def __str__(self) -> str:
        applied = f"applied {', '.join(self.changed)}" if self.changed else "no key changed"
        return f"{applied}; after a restart: {', '.join(self.after_restart)}" if self.after_restart else applied


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadState:
    """The reloads of a scorer so far.

    Attributes:
        when_s: time of the last successful reload, seconds since the epoch; None without one.
        last: result of the last successful reload; None without one.
        fault: errors of a file that was refused after the last successful reload, in one line; empty without one.
        evaluator_changes: latest changes of evaluator versions, 10 at most, oldest first.
    """

    when_s: float | None = None
    last: Reload | None = None
    fault: str = ""
    evaluator_changes: tuple[EvaluatorChange, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the lines of ``status()``."""
        if self.when_s is not None:
            yield f"configuration read again at {_describe_time(self.when_s)}: {self.last}"
        if self.fault:
            yield f"the changed configuration was refused, and nothing changed: {self.fault}"
        yield from map(str, self.evaluator_changes)


class ConfigFile:
    """A file whose content may change, also behind a symbolic link. Thread-safe.

    A relative path is made absolute, so that a change of the working directory has no effect.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self._read_hash = self._last_hash = self._hash()

    def is_changed(self) -> bool:
        """Return True once for each new content, after two calls in a row have found it."""
        before, self._last_hash = self._last_hash, self._hash()
        if self._last_hash != before or self._last_hash == self._read_hash:
            return False
        self._read_hash = self._last_hash
        return True

    def note_read(self) -> None:
        """Record that the present content is read, so that it is no change. Call it before the file is read."""
        self._read_hash = self._hash()

    def _hash(self) -> bytes:
        """Return a hash of the content; empty if the file cannot be read."""
        try:
            return blake2b(self.path.read_bytes()).digest()
        except OSError:
            return b""


@dataclass(eq=False, repr=False)
class Reloader:
    """Reloads the configuration of a scorer that was made from a file. Thread-safe.

    Attributes:
        file: the configuration file.
        overrides: arguments of ``OnlineScorer`` that override the file, also after a reload.
        settings: the configuration in force.
        pipeline: the parts of the scorer.
        receivers: weak reference to the receivers of the scorer.
        report: called with a line about each reload, and whether the line is an error.
        state: the reloads so far.
    """

    file: ConfigFile
    overrides: Mapping[str, Any]
    settings: Configuration
    pipeline: Pipeline
    receivers: ReferenceType[ReceiverSet]
    report: Callable[[str, bool], None] = lambda text, is_error: log_event(
        text, level=logging.WARNING if is_error else logging.INFO
    )
    state: ReloadState = field(default_factory=ReloadState)

    def __post_init__(self) -> None:
        self._make_lock()
        call_in_child(self, Reloader._make_lock)
        if self.settings.reload:
            self.pipeline.on_start.append(self.watch)

    def _make_lock(self) -> None:
        self._lock = threading.RLock()  # a signal handler may interrupt its holder
        self._thread: Thread | None = None

    def watch(self) -> None:
        """Check the file every two seconds from now on, on a daemon thread. Does not block; further calls have no effect."""
        if self._thread is None:
            self._thread = start_daemon(self._watch, "spanscore-reload")

    def _watch(self) -> None:
        while not self.pipeline.ended.wait(_CHECK_S):
            if self.file.is_changed():
                self.try_reload()

    def try_reload(self) -> None:
        """Reload, unless the scorer is shut down. Errors of the file are reported and not raised. Blocks."""
        if self.pipeline.is_shutting_down:
            return
        try:
            self.reload()
        except ConfigurationError as error:
            self.report(f"the configuration was not reloaded, and nothing changed: {error}", True)

    def reload(self, path: str | Path | None = None) -> Reload:
        """Read the file again, and apply it; see ``OnlineScorer.reload``.

        Raises:
            ConfigurationError: a key or a value is wrong; the message is one line. Nothing has changed then.
        """
        with self._lock:
            file = self.file if path is None else ConfigFile(path)
            file.note_read()
            try:
                settings, after_restart, changed, new = self._read(file)
            except ConfigurationError as error:
                error.args = (_in_one_line(str(error)),)
                self.state = replace(self.state, fault=str(error))
                raise
            before = {name: metric.evaluator_version for name, metric in self.pipeline.metrics.items()}
            self.pipeline.span_thread.call(partial(self._switch, new), _MAX_SWITCH_S)
            after = {name: metric.evaluator_version for name, metric in new.checked.metrics.items()}
            versions = {
                name: (version, after[name]) for name, version in before.items() if after.get(name, version) != version
            }
            self.file, self.settings = file, settings
            return self._record(Reload(changed=changed, after_restart=after_restart, evaluator_versions=versions))

    def _read(self, file: ConfigFile) -> tuple[Configuration, tuple[str, ...], tuple[str, ...], Replacement]:
        """Return the configuration after the reload, the keys that need a restart, the applied keys, and the new parts."""
        read = read_settings(file.path)
        with read.as_written.mask_errors():
            written = override(read.settings, self.overrides)
            keys = [*changed_keys(self.settings, written)]
            changed = tuple(key for key in keys if is_reloaded(key))
            settings = merge_keys(self.settings, written, changed)
            arguments = scorer_arguments(settings, self.overrides.get("metrics"))
            arguments["sessions"] = self.pipeline.settings.sessions  # conversations may be open for days
            metrics = arguments.pop("metrics")
            new = self.pipeline.check(metrics, ScorerSettings.of(arguments))
        after_restart = [key for key in keys if key not in changed]
        after_restart += [_OF_SESSIONS] if self._changes_sessions(settings) else []
        return settings, tuple(after_restart), changed, new

    def _changes_sessions(self, settings: Configuration) -> bool:
        """Whether the configuration of session metrics has changed. It needs a restart, because conversations are open."""
        before = session_metrics(self.settings)
        if before != session_metrics(settings):
            return True
        rates = {name: settings.sampling.rates_of(name)[0] for name in self.pipeline.of_sessions}  # without rules
        judges = [judge.model_copy(update={"budget": ()}) for judge in (self.settings.judge, settings.judge)]
        return bool(before) and (judges[0] != judges[1] or rates != self.pipeline.session_rates)

    def _switch(self, new: Replacement) -> None:
        self.pipeline.change(new)
        if (receivers := self.receivers()) is not None:
            receivers.use_metrics()

    def _record(self, done: Reload) -> Reload:
        when_s = time()
        changes = [EvaluatorChange(when_s, name, *versions) for name, versions in done.evaluator_versions.items()]
        latest = deque([*self.state.evaluator_changes, *changes], maxlen=_MAX_CHANGES)
        self.state = ReloadState(when_s=when_s, last=done, evaluator_changes=tuple(latest))
        self.report(f"the configuration was read again: {done}", False)
        for change in changes:
            self.report(str(change), False)
        return done


def changed_keys(before: Configuration, after: Configuration) -> Iterator[str]:
    """Yield the keys with different values: ``section.key``, or the name of a value that is no section."""
    for name in Configuration.model_fields:
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if not isinstance(old, SettingsPart) or type(old) is not type(new):
            yield name
            continue
        yield from (f"{name}.{key}" for key in type(old).model_fields if getattr(old, key) != getattr(new, key))


def is_reloaded(key: str) -> bool:
    """Whether a reload applies a key. Other keys need a restart."""
    name, _, inner = key.partition(".")
    return name in RELOADED and inner not in RELOADED[name]  # the inner keys in ``RELOADED`` need a restart


def merge_keys(before: Configuration, after: Configuration, keys: tuple[str, ...]) -> Configuration:
    """Return a configuration with the values of these keys from another one."""
    update: dict[str, Any] = {}
    for key in keys:
        name, _, inner = key.partition(".")
        value = getattr(after, name)
        if inner:
            section = update.get(name, getattr(before, name))
            value = section.model_copy(update={inner: getattr(value, inner)})
        update[name] = value
    return before.model_copy(update=update)


def _in_one_line(text: str) -> str:
    headline, *lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{headline}: {'; '.join(lines)}" if lines else headline


def _describe_time(when_s: float) -> str:
    return f"{datetime.fromtimestamp(when_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
