"""Checks a configuration file: its settings, its metrics, then topic by topic the parts that it configures. Calls no judge."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from spanscore.cli._judge_topics import JUDGE_TOPICS
from spanscore.cli._topics import TOPICS, ConfigReport, Line, TopicReader
from spanscore.config.messages import wrong_settings
from spanscore.config.reading import PartialSettings, examine_settings
from spanscore.config.tree import Configuration
from spanscore.core.score import check_metric_name
from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.metrics.catalog.configured import metric_entries
from spanscore.metrics.catalog.registry import create, under_current_names
from spanscore.protocols import Metric


def valid(config: Path, *, judge: bool = True, embeddings: bool = True) -> ConfigReport:
    """Return a configuration without errors. This environment may still lack a key or a library.

    Args:
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

    ``judge`` and ``embeddings`` are as in ``valid``; ``further`` are topics of one command.

    Raises:
        ConfigurationError: the file does not exist, or is not a YAML mapping.
    """
    read = examine_settings(config)
    report, problems = _make_metrics(read)
    topics = {**(JUDGE_TOPICS if judge else {}), **TOPICS, **further}
    if not embeddings:
        topics.pop("embeddings", None)
    checked = replace(report, settings=_without_new_cache(report.settings))
    lines = {topic: list[Line]() for topic in topics}
    for topic, read_topic in topics.items():
        try:
            for part in read_topic(checked):
                if isinstance(part, ConfigurationError):
                    problems.append(part)
                else:
                    lines[topic].append(part)
        except ConfigurationError as error:  # a topic may raise its last problem
            problems.append(error)
    # A message that two topics yield is in the report once.
    messages = {read.as_written(str(problem)): isinstance(problem, NotReadyError) for problem in problems}
    errors, missing = [*read.errors], list[str]()
    for message, is_missing in messages.items():
        (missing if is_missing else errors).append(message)
    return replace(report, errors=tuple(errors), missing=tuple(missing), lines=lines)


def _make_metrics(read: PartialSettings) -> tuple[ConfigReport, list[ConfigurationError]]:
    settings, metrics, made_entries = read.settings, list[Metric](), list[Mapping[str, Mapping[str, Any]]]()
    unmade, problems = list[str](), list[ConfigurationError]()
    for entry in metric_entries(settings):
        try:
            metrics.append(_make_metric(entry.name, entry.parameters))
            made_entries.append(entry.written)
        except ConfigurationError as error:
            unmade.append(str(entry.parameters.get("name", entry.name)))
            problems.append(error)
    names = [*unmade, *(metric.name for metric in metrics)]
    sampling = settings.sampling.model_copy(update={"rates": under_current_names(settings.sampling.rates, names)})
    alerts = under_current_names(settings.alerts, names)
    report = ConfigReport(
        settings=settings.model_copy(update={"sampling": sampling, "alerts": alerts}),
        all_metrics=read.all_metrics,
        as_written=read.as_written,
        metrics=metrics,
        made_entries=made_entries,
        unmade=tuple(unmade),
    )
    return report, problems


def _make_metric(name: str, parameters: Mapping[str, Any]) -> Metric:
    try:
        metric = create(name, judge="lexical", embeddings="lexical", **parameters)
        check_metric_name(metric.name)
    except NotReadyError:
        raise  # its message stays: two places may report it, and equal messages are printed once
    except ConfigurationError as error:
        message = f"metrics: {error}" if name in str(error) else f"metrics: {name}: {error}"
        raise ConfigurationError(message) from error
    return metric


def _without_new_cache(settings: Configuration) -> Configuration:
    """Return settings without the judge's cache if its file does not exist yet, because a check would create it."""
    cache = settings.judge.cache
    if cache in (None, "", "memory"):
        return settings
    file = Path(cache).expanduser()
    if file.exists() or not os.access(file.parent, os.W_OK | os.X_OK):
        return settings
    return settings.model_copy(update={"judge": settings.judge.model_copy(update={"cache": None})})
