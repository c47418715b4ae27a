"""A judge check's file → what its judges are asked, and what is right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spanscore.config.monitoring import JudgeCheck
from spanscore.core.codecs.annotation_file import passes, read_annotations
from spanscore.core.codecs.stored_sample import content_hash
from spanscore.core.sample import HumanValue, Sample
from spanscore.errors import ConfigurationError
from spanscore.protocols import Metric

__all__ = ["JudgeCheckCase", "cases_of"]


class JudgeCheckCase(NamedTuple):
    """A labelled sample.

    Attributes:
        key: of its content, so that it is known again in a file that was edited.
    """

    key: str
    sample: Sample
    human: HumanValue


def cases_of(judge_check: JudgeCheck, watched: Mapping[str, Metric]) -> tuple[JudgeCheckCase, ...]:
    """Return the labelled samples of a judge check's file, equal ones once.

    Raises:
        ConfigurationError: it cannot be read, holds no sample, or a label that says nothing of one of the metrics.
    """
    read = [
        (sample.line, sample.sample, sample.human)
        for sample in read_annotations(judge_check.path, name=judge_check.name)
    ]
    cases = {
        key: JudgeCheckCase(key, sample, human) for _, sample, human in read if sample and (key := content_hash(sample))
    }
    if not cases:
        raise ConfigurationError(
            f"judge_check.golden_set: {judge_check.path} holds labels without samples; a judge needs their fields"
        )
    for line, _, human in read:
        for metric in watched.values():
            try:
                passes(human, metric.scale)
            except ConfigurationError as error:
                raise ConfigurationError(
                    f"judge_check.golden_set: {judge_check.path}, line {line}, {metric.name}: {error}"
                ) from None
    return tuple(cases.values())
