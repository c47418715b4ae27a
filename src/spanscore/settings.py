"""The configuration tree: YAML, overridden by ``SPANSCORE_*`` variables (``SPANSCORE_SAMPLING__RATE=0.2``)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError

from spanscore import semconv
from spanscore.errors import ConfigurationError

__all__ = [
    "AlertSettings",
    "AttachSettings",
    "CaptureSettings",
    "JudgeSettings",
    "LimitSettings",
    "MonitoringSettings",
    "PriceSettings",
    "Reading",
    "RuleSettings",
    "SamplingSettings",
    "ServeSettings",
    "Settings",
    "wrong_settings",
]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _seconds(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*", value)
    if found is None:
        raise ValueError(f"{value!r} is no duration; write for example 30s, 500ms, 5m, 1h or a number of seconds")
    return float(found[1]) * _UNITS[found[2] or "s"]


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0)]
Rate = Annotated[float, Field(ge=0, le=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PriceSettings(_Part):
    """What a model costs: USD per million tokens, read (``input``) and written (``output``)."""

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)


class JudgeSettings(_Part):
    """Who judges: a chat model by ``provider:model``, or ``lexical`` for the offline judge.

    ``prices`` are by model as its provider names it in the answer; a dated name has the price of the undated one.
    """

    model: str = "lexical"
    max_concurrency: int | None = Field(default=None, ge=1)
    timeout: Seconds | None = None
    attempts: int | None = Field(default=None, ge=1)
    prices: dict[str, PriceSettings] = Field(default_factory=dict)


class RuleWhen(_Part):
    """Which units a rule is for; what is left out matches all."""

    status: Literal["error", "ok"] | None = None
    workflow: str | None = None
    slower_than: Seconds | None = None
    metadata: str | None = None
    equals: Any = None


class RuleSettings(_Part):
    """Score units that match ``when`` at ``rate``, where that is larger than the metric's own rate."""

    when: RuleWhen
    rate: Rate
    name: str | None = None


class SamplingSettings(_Part):
    """Which share is scored: ``rate`` for all metrics, ``rates`` per metric, ``rules`` that raise them."""

    rate: Rate = 1.0
    rates: dict[str, Rate] = Field(default_factory=dict)
    rules: list[RuleSettings] = Field(default_factory=list)
    key: str | None = None


class AttachSettings(_Part):
    """Where scores land, and how long a unit's span waits for them."""

    span: bool = True
    evaluation_span: bool = True
    event: bool = True
    instruments: bool = True
    hold: Seconds | None = None


class CaptureSettings(_Part):
    """Whether runs are recorded, what is exported of them, and where question, answer and contexts are found.

    ``score_abandoned`` scores the partial answer of a stream that its reader left half-way, too.
    """

    enabled: bool = True
    content: bool | None = None
    steps: bool = False
    score_abandoned: bool = False
    user_input: str | None = None
    response: str | None = None
    retrieved_contexts: str | None = None


class LimitSettings(_Part):
    """Bounds: events in the inbox, jobs in the queue, jobs at once, seconds per score."""

    inbox: int = Field(default=10_000, ge=1)
    queue: int = Field(default=1_000, ge=1)
    workers: int = Field(default=32, ge=1)
    timeout: Seconds = 60.0


class AlertSettings(_Part):
    """When one metric is worth a page. All numbers are quality: [0, 1], 1 good, whatever the metric's own scale.

    Attributes:
        baseline: the quality that is normal, measured and then frozen; None = drops are not watched.
        min_drop: smallest drop below the baseline that matters; a quarter of it is tolerated.
        false_alarm_every: at most one false drop alarm in this time, over all windows, metrics and segments together.
        threshold: lowest acceptable mean, whatever is normal; None = none.
        min_scores: effective scores a window needs before anything is said; None = 100, for a pass/fail metric with a
            baseline of 0.95 and more 400.
        z: standard errors that a drop must have; None = computed from ``false_alarm_every``.
        series: only this series (metric version, judge and votes) is watched; None = whatever is scored.
    """

    baseline: Rate | None = None
    min_drop: Annotated[float, Field(gt=0, lt=1)] = 0.05
    false_alarm_every: Annotated[Seconds, Field(gt=0)] = 30 * 86_400.0
    threshold: Rate | None = None
    min_scores: int | None = Field(default=None, ge=1)
    z: Annotated[float, Field(gt=0)] | None = None
    series: str | None = None

    @model_validator(mode="after")
    def _can_drop(self) -> Self:
        if self.baseline is not None and self.baseline <= self.min_drop:
            raise ValueError(f"a baseline of {self.baseline} cannot drop by {self.min_drop}: lower min_drop")
        return self


class MonitoringSettings(_Part):
    """What sums are told apart by, and what all alerts share.

    Attributes:
        segments: metadata or attribute key → values that are told apart in sums and watched by alerts of their own.
        interval: between two evaluations of the rules.
        windows: over which the mean is watched; a short one finds a large drop soon, a long one a small drop at all.
        no_scores_after: without a single score for this long, something is broken.
        max_failed: highest acceptable share of failed evaluations.
        dashboard_url: what an alert links to; ``{metric}`` is replaced.
        trace_url: where the traces of failed units are listed; ``{metric}`` is replaced. None = no link.
    """

    segments: dict[str, list[str]] = Field(default_factory=dict)
    interval: Annotated[Seconds, Field(gt=0)] = 60.0
    windows: list[Annotated[Seconds, Field(gt=0)]] = Field(default=[3_600.0, 21_600.0, 86_400.0], min_length=1)
    no_scores_after: Annotated[Seconds, Field(gt=0)] = 86_400.0
    max_failed: Annotated[float, Field(gt=0, lt=1)] = 0.1
    dashboard_url: str = "http://localhost:3000/d/spanscore-metric?var-metric={metric}"
    trace_url: str | None = None

    @model_validator(mode="after")
    def _is_long_enough(self) -> Self:
        short = [window for window in self.windows if window < 4 * self.interval]
        if short:
            raise ValueError(f"a window of {short[0]:g} s needs at least 4 evaluations, one in {self.interval:g} s")
        return self

    @field_validator("segments")
    @classmethod
    def _has_values(cls, segments: dict[str, list[str]]) -> dict[str, list[str]]:
        empty = [key for key, values in segments.items() if not values]
        if empty:
            raise ValueError(f"{empty[0]} lists no values; write for example {{user_tier: [gold, free]}}")
        return segments


class ServeSettings(_Part):
    """Where the metrics can be scraped; port 0 = any free one."""

    port: int = Field(default=9464, ge=0, le=65_535)
    host: str = "127.0.0.1"


def _port(value: Any) -> Any:
    return {"port": value} if isinstance(value, int) and not isinstance(value, bool) else value


class Settings(BaseSettings):
    """The whole tree."""

    model_config = SettingsConfigDict(
        env_prefix=semconv.SETTINGS_ENV_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True
    )

    metrics: list[str | dict[str, dict[str, Any] | None]] = Field(min_length=1)
    judge: JudgeSettings = JudgeSettings()
    embeddings: str | None = None
    sampling: SamplingSettings = SamplingSettings()
    attach: AttachSettings = AttachSettings()
    capture: CaptureSettings = CaptureSettings()
    limits: LimitSettings = LimitSettings()
    serve_metrics: Annotated[ServeSettings | None, BeforeValidator(_port)] = None
    monitoring: MonitoringSettings = MonitoringSettings()
    alerts: dict[str, AlertSettings] = Field(default_factory=dict)
    service_name: str | None = None

    @classmethod
    def read(cls, path: str | Path) -> Settings:
        """Read a YAML file and the environment.

        Raises:
            ConfigurationError: the file is not there, or a key or value is wrong; the message names each with what is allowed.
        """
        reading = cls.examine(path)
        if reading.faults:
            raise wrong_settings(path, reading.faults)
        return reading.settings

    @classmethod
    def examine(cls, path: str | Path) -> Reading:
        """Read a YAML file and the environment as far as they can be read: what is wrong is told and left out.

        Raises:
            ConfigurationError: the file is not there, or is no mapping in YAML.
        """
        given, left_over = _yaml(Path(path)), _LeftOver()
        faults: tuple[str, ...] = ()
        while True:
            try:
                settings = _read(cls, given, left_over)
            except pydantic.ValidationError as error:
                entries = error.errors(include_url=False)
                faults = faults or _told(entries)  # what is wrong afterwards is what dropping left behind
                if not left_over.drop(entries):
                    raise wrong_settings(path, faults) from None
            else:
                break
        if left_over.no_metrics:
            settings = settings.model_copy(update={"metrics": []})
        return Reading(settings, faults, all_metrics=not left_over.lost_metrics)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file and the environment say, and what in them is wrong.

    Attributes:
        settings: with the defaults where something is wrong, and without the metrics that are none.
        faults: a line each: the key, the value, what is allowed and what was probably meant.
        all_metrics: whether every entry of ``metrics`` could be read.
    """

    settings: Settings
    faults: tuple[str, ...]
    all_metrics: bool


def wrong_settings(path: str | Path, faults: Sequence[str]) -> ConfigurationError:
    """Return the error that tells all faults of a file."""
    count = f"{len(faults)} wrong setting{'s' if len(faults) > 1 else ''}"
    return ConfigurationError("\n".join([f"{path}: {count}", *(f"  {fault}" for fault in faults)]))


def _yaml(file: Path) -> dict[str, Any]:
    """Return what stands in a file; {} where nothing does."""
    import yaml

    if file.is_dir():
        raise ConfigurationError(f"{file} is a folder; give the YAML file in it")
    if not file.exists():
        raise ConfigurationError(f"there is no configuration file {file}")
    try:
        given = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file} is no text in UTF-8, so no YAML") from error
    except yaml.YAMLError as error:  # names the line
        raise ConfigurationError(f"{file} is no YAML: {error}") from error
    if given is not None and not (isinstance(given, dict) and all(isinstance(key, str) for key in given)):
        raise ConfigurationError(f"{file} holds no settings; write keys with values, such as metrics: [faithfulness]")
    return given or {}


def _read(kind: type[Settings], given: dict[str, Any], left_over: _LeftOver) -> Settings:
    class FromFile(kind):  # type: ignore[valid-type, misc]  # what stands in the file is known only here
        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], **sources: PydanticBaseSettingsSource
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return sources["env_settings"], InitSettingsSource(settings_cls, init_kwargs=given)

        @model_validator(mode="before")
        @classmethod
        def _without_what_is_wrong(cls, merged: dict[str, Any]) -> dict[str, Any]:
            return left_over.of(merged)

    try:
        settings: Settings = FromFile()
    except SettingsError as error:
        raise ConfigurationError(_of_a_variable(error)) from error
    return settings


def _of_a_variable(error: SettingsError) -> str:
    found = re.search(r'field "(\w+)"', str(error))
    if found is None:
        return f"a {semconv.SETTINGS_ENV_PREFIX}* variable of the environment: {error}"
    name = found[1].upper()
    return (
        f"{semconv.SETTINGS_ENV_PREFIX}{name} of the environment is no JSON: {error.__cause__}; write for example "
        f"""{semconv.SETTINGS_ENV_PREFIX}METRICS='["faithfulness"]' or {semconv.SETTINGS_ENV_PREFIX}SAMPLING__RATE=0.2"""
    )


class _LeftOver:
    """What was given, without what turned out to be wrong.

    Attributes:
        lost_metrics: entries of ``metrics`` were dropped.
        no_metrics: none was left; a built-in stands in for them, as there must be one.
    """

    def __init__(self) -> None:
        self._tree: dict[str, Any] | None = None
        self.lost_metrics = False
        self.no_metrics = False

    def of(self, merged: dict[str, Any]) -> dict[str, Any]:
        """Return what is left of it: at first all."""
        if self._tree is None:
            self._tree = deepcopy(merged)
        return self._tree

    def drop(self, entries: Iterable[Any]) -> bool:
        """Drop what pydantic complains of, and what lacks something; whether there was anything to drop."""
        assert self._tree is not None  # validated, and so given
        places = {_place(entry)[: -1 if entry["type"] == "missing" else None] for entry in entries}
        dropped = [_drop(self._tree, place) for place in sorted(places, key=_order, reverse=True)]
        lost = any(place[:1] in ((), ("metrics",)) for place in places)
        if lost and not self._tree.get("metrics"):
            self._tree["metrics"], self.no_metrics = ["exact_match"], True
        self.lost_metrics |= lost
        return lost or any(dropped)


def _place(entry: Any) -> tuple[int | str, ...]:
    """Return where it is, without what pydantic adds: which of the types that a metric's entry could have it tried."""
    location: tuple[int | str, ...] = entry["loc"]
    return location[:2] if location[:1] == ("metrics",) else location


def _order(place: tuple[int | str, ...]) -> list[tuple[bool, int | str]]:
    """Return a key by which places can be sorted; backwards, a list loses its last element first and the others stay put."""
    return [(isinstance(part, str), part) for part in place]


def _drop(tree: dict[str, Any], place: tuple[int | str, ...]) -> bool:
    holder: Any = None
    key, inner = None, tree
    for part in place:
        try:
            holder, key, inner = inner, part, inner[part]  # type: ignore[index]  # checked by doing
        except (LookupError, TypeError):  # where a place was made of a plain value: serve_metrics: 9464
            break
    if holder is not None:
        del holder[key]
    return holder is not None


_LONGEST = 100
"""Characters of a wrong value that are shown."""
_METRICS = (
    "write a list of names, each alone or with its parameters: [response_relevancy, {faithfulness: {pass_at: 0.7}}]"
)
_METRIC = "write a name, alone or with its parameters: faithfulness, or faithfulness: {pass_at: 0.7}"


def _told(entries: Iterable[Any]) -> tuple[str, ...]:
    """Return a line per place."""
    lines: dict[tuple[int | str, ...], str] = {}
    for entry in entries:
        lines.setdefault(_place(entry), _line(entry))
    return tuple(lines.values())


def _line(entry: Any) -> str:
    place, kind, given = _place(entry), entry["type"], f" (given: {_shown(entry['input'])})"
    key = ".".join(map(str, place))
    if place[0] == "metrics":  # pydantic says of it which types it could have
        wrong = "is required" if kind == "missing" else f"names no metric{given}"
        return f"{key}: {wrong}; {_METRIC if len(place) > 1 else _METRICS}"
    if kind == "missing":
        return f"{key}: is required"
    if kind in ("model_type", "model_attributes_type"):
        return f"{key}: is a single value{given}; write keys with values, of {', '.join(_allowed((*place, '')))}"
    if kind != "extra_forbidden":
        return f"{key}: {entry['msg'].removeprefix('Value error, ')}{given}"
    allowed = _allowed(place)
    near = difflib.get_close_matches(str(place[-1]), allowed, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    return f"{key}: no such setting{given}{meant} Allowed here: {', '.join(allowed)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _allowed(location: tuple[Any, ...]) -> list[str]:
    model: Any = Settings
    for part in location[:-1]:
        if isinstance(part, str) and part in model.model_fields:
            annotation = model.model_fields[part].annotation
            model = next(
                (m for m in (annotation, *getattr(annotation, "__args__", ())) if hasattr(m, "model_fields")), model
            )
    return list(model.model_fields)
