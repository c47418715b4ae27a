"""HumanLabel: what somebody said of a unit; and one line of a file of labels, with what the judge said of the same sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from spanscore.model.sample import Sample
from spanscore.model.score import Label
from spanscore.model.span import UnitKey

__all__ = ["HumanLabel", "HumanValue", "Judged", "LabelledSample"]

HumanValue: TypeAlias = bool | float | str
"""Passes or not; a number on a metric's scale; or a word of a declared scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanLabel:
    """What somebody said of a unit.

    Attributes:
        annotator: who: a low-cardinality name of a person, a team or a way of asking.
        comment: content; None where nothing was said.
        when_ns: when it was said, since 1970; None where nobody knows.
        unit: what was labelled; None where only ``key`` tells.
        key: the unit's own key in the application (``spanscore.feedback_key``); None where ids tell.
        revision: 0, or how often the same annotator changed the same label of the unit.
    """

    name: str
    value: HumanValue
    annotator: str = "HUMAN"
    comment: str | None = None
    when_ns: int | None = None
    unit: UnitKey | None = None
    key: str | None = None
    revision: int = 0


class Judged(NamedTuple):
    """What a judge said of a labelled sample.

    Attributes:
        value: on the metric's scale; None where only the verdict is known.
        label: the verdict; None where only the value is known.
        series: of the score; empty where nobody knows.
    """

    value: float | None
    label: Label | None
    series: str


class LabelledSample(NamedTuple):
    """One line of a file of labels.

    Attributes:
        line: in the file, from 1; of ragas's annotations the place.
        sample: None where the line tells only whose label it is.
        human: what the human said.
        judged: metric → what its judge said; empty where the line has no ``scores``.
        group: session or trace: what must not be torn apart by a split. None where neither is known.
        probability: with which it was drawn to be labelled, (0, 1]; None = not told.
        id: the line's own name; None where it has none.
        label: all that the line tells of the label; None of ragas's annotations.
    """

    line: int
    sample: Sample | None
    human: HumanValue
    judged: Mapping[str, Judged]
    group: str | None = None
    probability: float | None = None
    id: str | int | None = None
    label: HumanLabel | None = None
