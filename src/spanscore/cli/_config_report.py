"""Checks the settings, the metrics, and each topic of a configuration file. No judge is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from spanscore.cli._cost_plan import CostPlan
from spanscore.cli._judge_topics import JUDGE_TOPICS, without_new_cache
from spanscore.cli._topics import TOPICS, Line, MadeConfig, MetricEntry, Topic, TopicReader
from spanscore.config.messages import wrong_settings
from spanscore.config.reading import SecretMask, examine_settings
from spanscore.config.tree import Configuration
from spanscore.core import plugins
from spanscore.core.score import refuse_taken_name
from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.metrics.catalog.configured import entries
from spanscore.metrics.catalog.registry import create, under_current_names
from spanscore.protocols import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReport(MadeConfig):
    """A configuration file that was checked.

    Attributes:
        errors: problems of the file, a line each.
        missing: libraries, keys and files that this environment lacks, a line each.
        lines: topic → its lines, for a configuration without errors.
        as_written: replaces each secret in a text by the name of its environment variable.
    """

    errors: tuple[str, ...]
    missing: tuple[str, ...]
    lines: Mapping[str, Sequence[Line]]
    as_written: SecretMask

    def lines_with(self, costs: Sequence[CostPlan]) -> dict[str, tuple[str, ...]]:
        """Return topic → its lines as texts; ``costs``: known costs of a score of each metric."""
        return {
            topic: tuple(line if isinstance(line, str) else line(costs) for line in lines)
            for topic, lines in self.lines.items()
        }


def valid(config: Path, *, judge: bool = True, embeddings: bool = True) -> ConfigReport:
    """Return a configuration without errors. This environment may still lack a key or a library.

    Args:
        config: the configuration file.
        judge: whether the configured judge is checked; False if the command uses another judge.
        embeddings: whether the configured embeddings are checked.

    Raises:
        ConfigurationError: the file has errors; the message lists all of them.
    """
    report = config_report(config, judge=judge, embeddings=embeddings)
    if report.errors:
        raise wrong_settings(config, report.errors)
    return report


def config_report(
    config: Path,
    *,
    judge: bool = True,
    embeddings: bool = True,
    further: Mapping[str, TopicReader] = MappingProxyType({}),
) -> ConfigReport:
    """Return a configuration with all its problems. The judge's client and the metrics are made; no server is contacted.

    Args:
        config: the configuration file.
        judge: whether the topics of judges are read.
        embeddings: whether the configured embeddings are checked.
        further: further topics to read.

    Raises:
        ConfigurationError: the file does not exist, or is not a YAML mapping.
    """
    read = examine_settings(config)
    metrics, made_entries, failed = _make_metrics(read.settings)
    unmade = tuple(name for name, _ in failed)
    settings = _under_current_names(read.settings, [*unmade, *(metric.name for metric in metrics)])
    made = MadeConfig(
        settings=without_new_cache(settings),
        metrics=metrics,
        made_entries=made_entries,
        unmade=unmade,
        all_read=read.all_metrics,
    )
    topics = {**(JUDGE_TOPICS if judge else {}), **TOPICS, **further}
    if not embeddings:
        topics.pop("embeddings", None)
    problems, lines = [error for _, error in failed], {topic: list[Line]() for topic in topics}
    for topic, read_topic in topics.items():
        for part in _with_refusal(read_topic(made)):
            if isinstance(part, ConfigurationError):
                problems.append(part)
            else:
                lines[topic].append(part)
    return ConfigReport(
        settings=settings,
        metrics=metrics,
        made_entries=made_entries,
        unmade=unmade,
        all_read=made.all_read,
        errors=(*read.errors, *map(read.as_written, _texts(problems, are_missing=False))),
        missing=tuple(map(read.as_written, _texts(problems, are_missing=True))),
        lines=lines,
        as_written=read.as_written,
    )


def _make_metrics(
    settings: Configuration,
) -> tuple[list[Metric], list[MetricEntry], list[tuple[str, ConfigurationError]]]:
    """Return the metrics that can be made, their entries in the file, and the name of each other metric with the reason."""
    metrics, made_entries, failed = list[Metric](), list[MetricEntry](), list[tuple[str, ConfigurationError]]()
    for (written, as_written), (name, parameters) in zip(
        plugins.entries(settings.metrics), entries(settings), strict=True
    ):
        try:
            metrics.append(_make_metric(name, parameters))
            made_entries.append({written: dict(as_written)})
        except ConfigurationError as error:
            failed.append((str(parameters.get("name", name)), error))
    return metrics, made_entries, failed


def _make_metric(name: str, parameters: Mapping[str, Any]) -> Metric:
    """Return a metric with the offline judge.

    Raises:
        ConfigurationError: the metric or a parameter is wrong, or a library is missing.
    """
    try:
        metric = create(name, judge="lexical", embeddings="lexical", **parameters)
        refuse_taken_name(metric.name)
    except NotReadyError:
        raise  # its message stays: two places may report it, and equal messages are printed once
    except ConfigurationError as error:
        message = f"metrics: {error}" if name in str(error) else f"metrics: {name}: {error}"
        raise ConfigurationError(message) from error
    return metric


def _under_current_names(settings: Configuration, names: Sequence[str]) -> Configuration:
    """Return settings with rates and alerts under the current names of the metrics."""
    rates = under_current_names(settings.sampling.rates, names)
    sampling = settings.sampling.model_copy(update={"rates": rates})
    alerts = under_current_names(settings.alerts, names)
    return settings.model_copy(update={"sampling": sampling, "alerts": alerts})


def _with_refusal(parts: Topic) -> Topic:
    """Yield the problems and lines of a topic, with the problem that it raises at the end, if any."""
    try:
        yield from parts
    except ConfigurationError as error:
        yield error


def _texts(problems: Iterable[ConfigurationError], *, are_missing: bool) -> Iterable[str]:
    """Return the texts of problems of the file, or of missing parts of this environment, each once."""
    return dict.fromkeys(str(problem) for problem in problems if isinstance(problem, NotReadyError) is are_missing)
