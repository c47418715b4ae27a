"""Decision and Job: who is scored with which probability, and a sample with the metrics chosen for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spanscore.model.sample import Samples
from spanscore.model.span import Unit

__all__ = ["Decision", "Job"]


@dataclass(frozen=True, slots=True)
class Decision:
    """Take a (unit × metric) or not.

    Attributes:
        take: whether it is scored.
        probability: with which it was chosen, derived from ``threshold``; (0, 1] when taken.
        threshold: T of the OpenTelemetry rule: kept when R ≥ T; 56 bit.
        rule: the name of the rule with the largest matching rate, ``base`` where none matched.
    """

    take: bool
    probability: float
    threshold: int
    rule: str = "base"


@dataclass(frozen=True, slots=True)
class Job:
    """A unit's samples with the metrics chosen for them.

    Attributes:
        unit: without content: what the sinks need.
        decisions: metric name → why and with which probability it was chosen.
        weight: bytes of its content, roughly, as they were reserved in the queue.
    """

    unit: Unit
    samples: Samples
    decisions: Mapping[str, Decision]
    weight: int = 0
