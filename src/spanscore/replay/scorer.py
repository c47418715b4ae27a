"""A configuration → the scorer of a replay: its metrics, rates and rules, and nothing of what belongs to live traffic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from opentelemetry._logs import NoOpLoggerProvider
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace import TracerProvider

from spanscore.config.judging import Budget, JudgeSettings
from spanscore.config.outputs import Outputs
from spanscore.config.reading import read_settings
from spanscore.config.tree import Configuration, ScorerSettings
from spanscore.errors import ConfigurationError
from spanscore.protocols import Metric, Sink
from spanscore.scorer import OnlineScorer
from spanscore.wiring.from_config import scorer_arguments

__all__ = ["ReplayScorer", "refuse_unready", "replay_scorer"]

_QUEUE_BYTES: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ReplayScorer:
    """What a replay scores with.

    Attributes:
        settings: what is in force.
        notes: what of the configuration is not in force, a sentence each.
    """

    scorer: OnlineScorer
    settings: ScorerSettings
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
    read = read_settings(config)
    settings = read.settings
    if answers is not None and settings.judge.cache in (None, "", "memory"):
        judge = settings.judge.model_copy(update={"cache": str(answers)})
        settings = settings.model_copy(update={"judge": judge})
    with read.as_written.told():
        arguments = _arguments(config, settings, metrics)
        notes = [*_notes(arguments)]
        arguments |= _without_live_parts(arguments, sinks, emits=emits)
        scorer = OnlineScorer(**arguments)
    return ReplayScorer(scorer, ScorerSettings.of(arguments), notes)


def refuse_unready(config: Path) -> None:
    """Make sure that the metrics of a configuration can be made here; no file is written for it.

    Raises:
        ConfigurationError: they cannot; the message names the key, the library or the setting.
    """
    read = read_settings(config)
    judge = read.settings.judge.model_copy(update={"cache": None})
    settings = read.settings.model_copy(update={"judge": judge})
    with read.as_written.told():
        _arguments(config, settings)


def _arguments(config: Path, settings: Configuration, metrics: Sequence[Metric] | None = None) -> dict[str, Any]:
    """Return a configuration as arguments of ``OnlineScorer``, without the sections by which other processes would score."""
    arguments = scorer_arguments(settings.model_copy(update={"spool": None, "remote_scoring": None}), metrics)
    if not arguments["metrics"]:
        raise ConfigurationError(f"{config} scores whole conversations alone, and these are not replayed")
    return arguments


def _without_live_parts(arguments: Mapping[str, Any], sinks: Sequence[Sink], *, emits: bool) -> dict[str, Any]:
    """Return the arguments of ``OnlineScorer`` that a replay has otherwise: nothing of what belongs to live traffic.

    The queue has room for all units that are under way, which are few: none is to be lost for it.
    """
    outputs, judge, limits = arguments["outputs"], arguments["judge"], arguments["limits"]
    silent: dict[str, Any] = {} if emits else _silent()
    own = {"queue_size": 1_000, "queue_bytes": _QUEUE_BYTES, "job_queue": "memory"}
    return {
        "judge": JudgeSettings(
            budget=_budgets(judge.budget), replica_share=judge.replica_share, trace=judge.trace and emits
        ),
        "sampling": arguments["sampling"].model_copy(update={"feedback": None}),
        "capture": arguments["capture"].model_copy(update={"enabled": False, "metrics": False}),
        "outputs": Outputs(
            span=False,
            evaluation_span=emits,
            event=False,
            instruments=False,
            hold=outputs.hold,
            sinks=[*(outputs.sinks if emits else ()), *sinks],
            spans_to=outputs.spans_to,
        ),
        "limits": limits.model_copy(update=own),
        "sessions": arguments["sessions"].model_copy(update={"metrics": ()}),
        "judge_check": None,
        "collect": None,
        **silent,
    }


def _budgets(given: Sequence[Budget]) -> Sequence[Budget]:
    """Return budgets that lower no rate: the configuration's rates decide, and the rest of a window ends
    ``budget_exhausted``.
    """
    return [budget.model_copy(update={"lowers_rates": False}) for budget in given]


def _silent() -> dict[str, Any]:
    """Return providers by which nothing leaves the process, whatever the environment says of exporters."""
    return {
        "tracer_provider": TracerProvider(),
        "meter_provider": NoOpMeterProvider(),
        "logger_provider": NoOpLoggerProvider(),
    }


def _notes(arguments: Mapping[str, Any]) -> Iterator[str]:
    if of_sessions := arguments["sessions"].metrics:
        yield f"conversations are not replayed: {', '.join(metric.name for metric in of_sessions)} scores none"
    if arguments["judge"].shadows:
        yield "second judges are not asked"
