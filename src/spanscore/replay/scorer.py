"""A configuration → the scorer of a replay: its metrics, rates and rules, and nothing of what belongs to live traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from opentelemetry._logs import NoOpLoggerProvider
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace import TracerProvider

from spanscore.errors import ConfigurationError
from spanscore.line.configuration import Configuration, given_in, metrics_in, overridden
from spanscore.line.options import Options
from spanscore.protocols import Metric, Sink
from spanscore.scorer import OnlineScorer
from spanscore.settings.budget import Budget
from spanscore.settings.reading import read_settings
from spanscore.settings.serving import WireUnits
from spanscore.settings.tree import Settings

__all__ = ["ReplayScorer", "refuse_unready", "replay_scorer"]

_NOT_LIVE: Final[Mapping[str, Any]] = {
    "capture": False,
    "capture_metrics": False,
    "judge_check": None,
    "collect": None,
    "feedback_sampling": None,
    "shadows": (),
    "shadow_budget": (),
    "session_metrics": (),
    "queue": "memory",
    "queue_size": 1_000,
    "queue_bytes": 1_000_000_000,
}
"""Option → what it is here. The queue has room for all that are under way, which are few: none is to be lost for it."""

_EMITTING: Final[Mapping[str, Any]] = {"outputs": ("evaluation_span",)}


@dataclass(frozen=True, slots=True)
class ReplayScorer:
    """What a replay scores with.

    Attributes:
        options: that are in force.
        units: what a unit may hold.
        notes: what of the configuration is not in force, a sentence each.
    """

    scorer: OnlineScorer
    options: Options
    units: WireUnits
    notes: Sequence[str]


def replay_scorer(
    config: Path,
    *,
    emits: bool = False,
    answers: Path | None = None,
    sinks: Sequence[Sink] = (),
    metrics: Sequence[Metric] | None = None,
) -> ReplayScorer:
    """Make it.

    Args:
        config: of the live scorer.
        emits: whether evaluation spans leave, by its providers, and its own sinks are told; else nothing does.
        answers: file where the judge's answers are kept, unless the configuration names one; None = none.
        sinks: told of scores, beside.
        metrics: those of the configuration that score units, made otherwise; None = they are made as it says.

    Raises:
        ConfigurationError: the configuration is wrong, or scores conversations alone.
    """
    read = read_settings(config, Configuration)
    settings = read.settings
    if answers is not None and settings.judge.cache in (None, "", "memory"):
        judge = settings.judge.model_copy(update={"cache": str(answers)})
        settings = settings.model_copy(update={"judge": judge})
    with read.as_written.told():
        chosen = _read_options(settings)
        made = _make_metrics(config, settings, chosen) if metrics is None else {"metrics": metrics}
        own = _EMITTING if emits else _silent()
        beside = {"sinks": [*(chosen["sinks"] if emits else ()), *sinks], "budget": _budgets(chosen["budget"])}
        arguments = {**made, **overridden(chosen, {**_NOT_LIVE, **own, **beside})}
        scorer = OnlineScorer(**arguments)
    options = Options.of(
        {option.name: arguments[option.name] for option in fields(Options) if option.name in arguments}
    )
    return ReplayScorer(scorer, options, settings.units, [*_notes(chosen, made)])


def refuse_unready(config: Path) -> None:
    """Make sure that the metrics of a configuration can be made here; no file is written for it.

    Raises:
        ConfigurationError: they cannot; the message names the key, the library or the setting.
    """
    read = read_settings(config, Configuration)
    judge = read.settings.judge.model_copy(update={"cache": None})
    settings = read.settings.model_copy(update={"judge": judge})
    with read.as_written.told():
        _make_metrics(config, settings, _read_options(settings))


def _read_options(settings: Settings) -> dict[str, Any]:
    """Return the options of a configuration, without those by which other processes would score: the judge is made here."""
    return {**given_in(settings), "spool": None, "remote_scoring": None}


def _make_metrics(config: Path, settings: Settings, given: Mapping[str, Any]) -> dict[str, Any]:
    made = metrics_in(settings, given)
    if not made["metrics"]:
        raise ConfigurationError(f"{config} scores whole conversations alone, and these are not replayed")
    return made


def _budgets(given: Sequence[Budget]) -> Sequence[Budget]:
    """Return budgets that lower no rate: the configuration's rates decide, and the rest of a window ends
    ``budget_exhausted``.
    """
    return [replace(budget, lowers_rates=False) for budget in given]


def _silent() -> Mapping[str, Any]:
    """Return options by which nothing leaves the process, whatever the environment says of exporters."""
    return {
        "outputs": (),
        "trace_judges": False,
        "tracer_provider": TracerProvider(),
        "meter_provider": NoOpMeterProvider(),
        "logger_provider": NoOpLoggerProvider(),
    }


def _notes(given: Mapping[str, Any], made: Mapping[str, Any]) -> Any:
    if made.get("session_metrics"):
        named = ", ".join(metric.name for metric in made["session_metrics"])
        yield f"conversations are not replayed: {named} scores none"
    if made.get("shadows"):
        yield "second judges are not asked"
