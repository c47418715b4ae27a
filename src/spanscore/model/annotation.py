"""Annotation: what somebody said of a unit; and one line of a file of labels, with what the judge said of the same sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from spanscore import semconv
from spanscore.model.sample import Sample
from spanscore.model.score import Label
from spanscore.model.span import UnitKey

__all__ = ["AnnotatedSample", "Annotation", "HumanValue", "JudgeResult", "UnitId"]

HumanValue: TypeAlias = bool | float | str
"""Passes or not; a number on a metric's scale; or a word of a declared scale."""


class UnitId(NamedTuple):
    """What names a unit outside of this process: hex digits, 32 of its trace and 16 of its span."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """What somebody said of a unit.

    Attributes:
        annotator: who: a low-cardinality name of a person, a team or a way of asking.
        comment: content; None where nothing was said.
        when_ns: when it was said, since 1970; None where nobody knows.
        unit: what was labelled; None where only ``key`` tells.
        key: the unit's own key in the application (``spanscore.feedback_key``); None where ids tell.
        revision: 0, or how often the same annotator changed the same label of the unit, as far as the process knows.
        quality: [0, 1], 1 is good; None where no scale tells.
    """

    name: str
    value: HumanValue
    annotator: str = semconv.ANNOTATOR_HUMAN
    comment: str | None = None
    when_ns: int | None = None
    unit: UnitKey | None = None
    key: str | None = None
    revision: int = 0
    quality: float | None = None

    def without_comment(self) -> Annotation:
        """Return the label as it leaves where content does not."""
        return replace(self, comment=None)

    @property
    def text(self) -> str | None:
        """What it says in a word: ``pass`` or ``fail``, or that of its scale; None of a number."""
        if isinstance(self.value, bool):
            return "pass" if self.value else "fail"
        return self.value if isinstance(self.value, str) else None

    @property
    def id(self) -> str:
        """32 hex digits, the same for the same label in any process; the span's id is the first 16 of them.

        A time of its own tells two equal votes apart; where nobody gave one the revision does, as far as it is known.
        """
        whose = self.key if self.unit is None else f"{self.unit.trace_id:032x}/{self.unit.span_id:016x}"
        said = f"{self.name}/{self.annotator}/{self.value!r}"
        when = f"r{self.revision}" if self.when_ns is None else str(self.when_ns)
        return blake2b(f"label/{whose}/{said}/{when}".encode(), digest_size=16).hexdigest()


class JudgeResult(NamedTuple):
    """What a judge said of a labelled sample.

    Attributes:
        value: on the metric's scale; None where only the verdict is known.
        label: the verdict; None where only the value is known.
        evaluator_version: of the score; empty where nobody knows.
    """

    value: float | None
    label: Label | None
    evaluator_version: str


class AnnotatedSample(NamedTuple):
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
    judged: Mapping[str, JudgeResult]
    group: str | None = None
    probability: float | None = None
    id: str | int | None = None
    label: Annotation | None = None
