"""A canary's file and metrics → what is asked, and of whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spanscore.codec.content_hash import content_hash
from spanscore.codec.labelled import passes, read_labelled
from spanscore.errors import ConfigurationError
from spanscore.model.label import HumanValue
from spanscore.model.sample import Sample
from spanscore.protocols import Metric
from spanscore.settings.canary import Canary

__all__ = ["CanaryCase", "cases_of", "watched_by"]


class CanaryCase(NamedTuple):
    """A labelled sample.

    Attributes:
        key: of its content, so that it is known again in a file that was edited.
    """

    key: str
    sample: Sample
    human: HumanValue


def watched_by(canary: Canary, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return the metrics that a canary watches, by name.

    Raises:
        ConfigurationError: it names one that is none or has an open scale, or there is none to watch.
    """
    for name in canary.metrics:
        if name not in metrics:
            raise ConfigurationError(
                f"canary.metrics names {name!r}, which is no metric of this scorer; it has {', '.join(metrics)}"
            )
        if metrics[name].scale.range is None:
            raise ConfigurationError(f"canary.metrics names {name!r}, which has an open scale: give the metric range=")
    asking = (
        name
        for name, one in metrics.items()
        if getattr(one, "_judge", None) is not None and one.scale.range is not None
    )
    names = list(canary.metrics or asking)
    if not names:
        raise ConfigurationError("canary: no metric with a closed scale asks a judge; name what it watches in metrics")
    return {name: metrics[name] for name in names}


def cases_of(canary: Canary, watched: Mapping[str, Metric]) -> tuple[CanaryCase, ...]:
    """Return the labelled samples of a canary's file, equal ones once.

    Raises:
        ConfigurationError: it cannot be read, holds no sample, or a label that says nothing of one of the metrics.
    """
    read = [(one.line, one.sample, one.human) for one in read_labelled(canary.path)]
    cases = {
        key: CanaryCase(key, sample, human) for _, sample, human in read if sample and (key := content_hash(sample))
    }
    if not cases:
        raise ConfigurationError(f"canary.file: {canary.path} holds labels without samples; a judge needs their fields")
    for line, _, human in read:
        for metric in watched.values():
            try:
                passes(human, metric.scale)
            except ConfigurationError as error:
                raise ConfigurationError(f"canary.file: {canary.path}, line {line}, {metric.name}: {error}") from None
    return tuple(cases.values())
