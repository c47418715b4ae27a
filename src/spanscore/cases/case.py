"""A unit with its scores → a case: one line of a data set, in ragas's field names."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from spanscore.core.sample import MultiTurnSample, Sample, Samples
from spanscore.core.score import Score
from spanscore.core.span import Session, UnitKey

__all__ = ["CollectedCase", "FoundScore", "case_sample"]

_PRECISION: Final = 6


class FoundScore(NamedTuple):
    """What a case, or a store, says of one score.

    Attributes:
        value: on the metric's own scale; None where it has none. Likewise ``label``, ``pass`` or ``fail``.
        evaluator_version: metric version, judge model and votes.
        probability: with which the unit was chosen, (0, 1]; None = nobody says.
    """

    value: float | None
    label: str | None
    evaluator_version: str | None
    probability: float | None

    @classmethod
    def of(cls, score: Score) -> Self:
        """Return what is said of a score that was just given."""
        probability = None if score.probability is None else float(score.probability)
        return cls(
            None if score.value is None else float(score.value),
            score.label,
            score.evaluator_version or None,
            probability,
        )

    def as_json(self) -> dict[str, Any]:
        """Return what is known of it."""
        known = {
            "value": self.value,
            "label": self.label,
            "evaluator_version": self.evaluator_version,
            "probability": self.probability,
        }
        return {name: told for name, told in known.items() if told is not None}


@dataclass(slots=True)
class CollectedCase:
    """One case.

    Attributes:
        key: of the unit; of a conversation, that of its last turn.
        sample: redacted.
        scores: metric → its latest score.
        probability: with which the unit was chosen to be scored, by the likeliest of its metrics, (0, 1]; None = nobody says.
        times: units with the same question, this one among them.
        session: of a whole conversation; None of a unit.
    """

    key: UnitKey
    sample: Sample
    scores: Mapping[str, FoundScore]
    probability: float | None = None
    times: int = 1
    session: Session | None = None

    @classmethod
    def of(cls, key: UnitKey, sample: Sample, scores: Mapping[str, FoundScore], session: Session | None = None) -> Self:
        """Return the case of a unit, or of a conversation."""
        told = [score.probability for score in scores.values() if score.probability is not None]
        return cls(key, sample, scores, max(told, default=None), session=session)

    @property
    def id(self) -> str:
        """Of the unit: trace id and span id; of a conversation, the hash of its id, so that it is no unit's."""
        trace_id, span_id = self.key if self.session is None else self.session.key
        return f"{trace_id:032x}-{span_id:016x}"

    @property
    def question(self) -> str:
        """What the user asked, without the differences that writing makes: equal ones are one case."""
        asked = self.sample.pretty() if isinstance(self.sample, MultiTurnSample) else self.sample.user_input or ""
        return " ".join(asked.split()).casefold()

    def record(self) -> dict[str, Any]:
        """Return it as a record of a data set: ``spanscore evaluate`` reads it, and so does ragas."""
        scores = {name: score.as_json() for name, score in self.scores.items()}
        ids = {"trace_id": f"{self.key.trace_id:032x}", "span_id": f"{self.key.span_id:016x}"}
        turns = {} if self.session is None else {"turns": self.session.turns}
        beside: dict[str, Any] = {**ids, **turns, "times": self.times, "scores": scores}
        if self.probability is not None:
            beside["probability"] = round(self.probability, _PRECISION)
        return {"id": self.id, **self.sample.model_dump(exclude_none=True), **beside}

    def line(self) -> str:
        """Return the same as a line of a file, with its end."""
        return f"{json.dumps(self.record(), ensure_ascii=False, default=str)}\n"


def case_sample(
    samples: Samples, metrics: Collection[str], requires: Mapping[str, Mapping[str, Collection[str]]]
) -> Sample | None:
    """Return what metrics were scored on: the turn, but a conversation where all of them score those alone; None: no sample.

    Args:
        samples: of the unit, redacted.
        metrics: their names.
        requires: metric → kind of sample → the fields that it needs; one that is not in it may score either.
    """
    if samples.outcome is not None:
        return None
    kinds = [requires[name] for name in metrics if name in requires]
    conversations_alone = bool(kinds) and all("single_turn" not in kind for kind in kinds)
    wanted = (
        (samples.multi_turn, samples.single_turn) if conversations_alone else (samples.single_turn, samples.multi_turn)
    )
    return next((sample for sample in wanted if sample is not None), None)
