"""A canary's file → what its judges are asked, and what is right."""

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

__all__ = ["CanaryCase", "cases_of"]


class CanaryCase(NamedTuple):
    """A labelled sample.

    Attributes:
        key: of its content, so that it is known again in a file that was edited.
    """

    key: str
    sample: Sample
    human: HumanValue


def cases_of(canary: Canary, watched: Mapping[str, Metric]) -> tuple[CanaryCase, ...]:
    """Return the labelled samples of a canary's file, equal ones once.

    Raises:
        ConfigurationError: it cannot be read, holds no sample, or a label that says nothing of one of the metrics.
    """
    read = [(one.line, one.sample, one.human) for one in read_labelled(canary.path, name=canary.name)]
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
