"""The means that alerts watch: a metric's mean quality, or the share of units that do not have a watched category.

A mean is over units of roots, over inner units, or over the conversations of a session metric. The series ``intent=refund`` has
1 − the share of ``refund``, because the rules detect drops: if the share rises, the series falls. A mean of inner units has a
name such as ``context_relevance (retriever)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from spanscore import semconv
from spanscore.config.monitoring import AlertSettings
from spanscore.config.units import InnerUnit
from spanscore.core.score import BINARY, Scale
from spanscore.core.span import InnerGroup
from spanscore.errors import ConfigurationError
from spanscore.monitoring import promql
from spanscore.monitoring.promql import label
from spanscore.protocols import Metric

IS_SHARE = ".+=.+"
"""Pattern of the names of shares; no other mean's name has an equals sign."""


class WatchedMean(NamedTuple):
    """A mean that the alerts of one metric watch.

    Attributes:
        of: the metric.
        settings: alert settings. For a share, a numeric ``baseline`` is 1 − the normal share; ``max`` and ``min_rise`` remain
            shares.
        category: the category whose share is watched; empty if the metric's quality is watched.
        inner: the entry of ``units.also`` whose units are watched; None = roots' units, or a session metric's conversations.
    """

    of: Metric
    settings: AlertSettings
    category: str = ""
    inner: InnerGroup | None = None

    @property
    def metric(self) -> str:
        """Name of the metric."""
        return self.of.name

    @property
    def scale(self) -> Scale:
        """Scale of the values behind the mean."""
        return BINARY if self.category else self.of.scale

    @property
    def subject(self) -> str:
        """Name of the metric, and of the units if they are inner: ``faithfulness``, or ``context_relevance (retriever)``."""
        return self.metric if self.inner is None else f"{self.metric} ({self.inner})"

    @property
    def name(self) -> str:
        """Name in the recorded series: ``subject``, or ``subject=category`` for the series of 1 − the share of the category."""
        return f"{self.subject}={self.category}" if self.category else self.subject

    @property
    def has_own_records(self) -> bool:
        """Whether it needs recording rules of its own: True for a share, and for a mean of inner units."""
        return bool(self.category) or self.inner is not None

    @property
    def watches_drops(self) -> bool:
        """Whether it has a baseline, and a quality that can drop."""
        return self.settings.baseline is not None and self.scale.has_quality

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels that select its counters: the metric, and for inner units source, kind and name; not the category."""
        own = {promql.METRIC: self.metric}
        if self.inner is not None:
            own[label(semconv.EVALUATION_SOURCE)] = semconv.SOURCE_INNER
            own |= {label(name): value for name, value in self.inner.attributes.items()}
        return own

    @property
    def matchers(self) -> str:
        """PromQL matchers of its counters. Without ``inner`` only the metric: ``promql`` excludes inner units."""
        # An empty value matches a missing label: the units of an entry without a name.
        without_name = {} if self.inner is None else {label(semconv.UNIT_NAME): ""}
        return promql.matching(without_name | dict(self.labels))

    def under(self, name: str, expression: str) -> str:
        """Return a PromQL expression with ``name`` as the metric's name in each series."""
        return f'label_replace({expression}, "{promql.METRIC}", "{promql.replacement(name)}", "", "")'


def watched_mean(
    metric: Metric, alert: AlertSettings, place: str = "alerts", inner: InnerGroup | None = None
) -> WatchedMean:
    """Return the mean that a metric's alerts watch.

    Args:
        place: key of the configuration with the settings, for messages.
        inner: the entry of ``units.also`` whose units are watched; None = roots' units, or a session metric's conversations.

    Raises:
        ConfigurationError: ``share_of`` names no category of the metric.
    """
    if alert.share_of is None:
        return WatchedMean(metric, alert, inner=inner)
    if alert.share_of not in metric.scale.categories:
        there = f"the categories are {', '.join(metric.scale.categories)}"
        why = there if metric.scale.categories else f"{metric.name} has no categories"
        raise ConfigurationError(f"{place}.{metric.name}.share_of is {alert.share_of!r}; {why}")
    baseline = 1 - alert.baseline if isinstance(alert.baseline, float) else alert.baseline
    return WatchedMean(metric, alert.model_copy(update={"baseline": baseline}), alert.share_of, inner)


def watched_means(
    alerts: Mapping[str, AlertSettings], metrics: Sequence[Metric], also: Iterable[InnerUnit] = ()
) -> list[WatchedMean]:
    """Return the mean of each metric on roots' units or conversations, then each mean of inner units with alert settings.

    Args:
        alerts: metric → its alert settings; metrics without settings get the defaults.
        also: entries of ``units.also``; their alert settings on other metrics are ignored.

    Raises:
        ConfigurationError: a ``share_of`` names no category of its metric.
    """
    by_name = {metric.name: metric for metric in metrics}
    means = [watched_mean(metric, alerts.get(metric.name, AlertSettings())) for metric in metrics]
    for entry in also:
        own = {name: alert for name, alert in entry.alerts.items() if name in by_name}
        means += (watched_mean(by_name[name], alert, _key(entry), entry.group) for name, alert in own.items())
    return means


def alerts_by_key(
    alerts: Mapping[str, AlertSettings], also: Iterable[InnerUnit]
) -> dict[str, Mapping[str, AlertSettings]]:
    """Return the key of alert settings in the configuration, for messages, → metric → its alert settings."""
    return {"alerts": alerts, **{_key(entry): entry.alerts for entry in also}}


def _key(entry: InnerUnit) -> str:
    return f"units.also ({entry.group}): alerts"


def means_of_roots(means: Iterable[WatchedMean]) -> Iterator[WatchedMean]:
    """Yield the mean of each metric on roots' units or conversations."""
    return (mean for mean in means if mean.inner is None)


def means_of_inner_units(means: Iterable[WatchedMean]) -> list[WatchedMean]:
    """Return the means of inner units."""
    return [mean for mean in means if mean.inner is not None]


def refuse_unwatchable(alerts: Mapping[str, AlertSettings], metrics: Sequence[Metric], place: str = "alerts") -> None:
    """Refuse alerts on other metrics, and alerts on the quality of a metric that has none.

    Args:
        place: key of the configuration with the settings, for messages.

    Raises:
        ConfigurationError: the message states the remedy.
    """
    by_name = {metric.name: metric for metric in metrics}
    for name, alert in alerts.items():
        needs_quality = alert.share_of is None and (alert.baseline is not None or alert.threshold is not None)
        check_watchable(name, by_name, place, needs_quality=needs_quality)


def check_watchable(name: str, metrics: Mapping[str, Metric], place: str, *, needs_quality: bool = True) -> None:
    """Check that a metric that the configuration names at ``place`` exists, and has a quality if that is needed.

    Raises:
        ConfigurationError: it does not; the message states the remedy.
    """
    if name not in metrics:
        raise ConfigurationError(
            f"{place} names {name!r}, which is not a metric of this scorer; it has {', '.join(metrics)}"
        )
    scale = metrics[name].scale
    if needs_quality and not scale.has_quality:
        how = "the metric has an open scale and so no quality; give it the parameter range, if it has one"
        if words := scale.categories:
            how = f"its categories have no quality; name the bad ones in bad, or watch share_of: {words[0]} in alerts"
        raise ConfigurationError(f"{place}.{name}: {how}")
