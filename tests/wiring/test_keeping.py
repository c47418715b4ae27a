"""A keeper that selects samples with their scores: it gets each selected unit once, whatever its outcome."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.live import ANSWER, a_line, identity_holds
from tests.wiring.test_revisions import answered, give, until

from spanscore.config import Limits
from spanscore.core.sample import Samples
from spanscore.core.span import SamplingContext, Unit
from spanscore.scorer import pipeline_of


class Wanting:
    """Keeps its units; selects all that equal ``wanted``."""

    def __init__(self, *, wanted: bool = True) -> None:
        self.wanted = wanted
        self.kept: list[tuple[SamplingContext, Unit, Samples]] = []

    def is_interested(self, facts: SamplingContext) -> bool:
        return self.wanted

    def on_samples(self, facts: SamplingContext, unit: Unit, samples: Samples) -> None:
        self.kept.append((facts, unit, samples))


def keeping(scorer: Any, *, wanted: bool = True) -> Wanting:
    keeper = Wanting(wanted=wanted)
    pipeline_of(scorer).sample_observers.observers.append(keeper)
    return keeper


def answers(keeper: Wanting) -> list[str | None]:
    return [None if samples.single_turn is None else samples.single_turn.response for _, _, samples in keeper.kept]


def test_who_wants_samples_gets_those_of_a_unit_that_is_scored() -> None:
    with a_line() as (scorer, _):
        keeper = keeping(scorer)
        give(scorer, answered())
        assert scorer.flush(10)

        assert answers(keeper) == [ANSWER]
        assert scorer.status().outcomes == {"grounded": {"scored": 1}}


def test_of_a_unit_that_no_metric_takes_the_samples_are_made_all_the_same() -> None:
    with a_line(sample_rate=0.0) as (scorer, _):
        keeper = keeping(scorer)
        give(scorer, answered())
        assert scorer.flush(10)

        assert answers(keeper) == [ANSWER]
        assert scorer.status().outcomes == {"grounded": {"not_sampled": 1}}
        assert scorer.status().queue[0] == 0
        assert identity_holds(scorer)


def test_nothing_is_made_for_who_wants_nothing() -> None:
    with a_line(sample_rate=0.0) as (scorer, _):
        keeper = keeping(scorer, wanted=False)
        give(scorer, answered())
        assert scorer.flush(10)

        assert keeper.kept == []


def test_what_is_kept_has_been_redacted() -> None:
    with a_line(redactor=lambda text: text.replace("Paris", "[city]")) as (scorer, _):
        keeper = keeping(scorer)
        give(scorer, answered())
        assert scorer.flush(10)

        assert answers(keeper) == [ANSWER.replace("Paris", "[city]")]


def test_a_queue_without_room_is_reported() -> None:
    with a_line(sample_rate=0.0, limits=Limits(queue_size=1)) as (scorer, _):
        keeper = keeping(scorer)
        pipeline_of(scorer).queue.reserve(1)
        give(scorer, answered())
        until(lambda: bool(keeper.kept))

        assert [samples.outcome for _, _, samples in keeper.kept] == ["queue_full"]


def test_a_unit_that_is_lost_is_reported() -> None:
    with a_line() as (scorer, _):
        keeper = keeping(scorer)
        give(scorer, replace(answered(), complete=False))
        assert scorer.flush(10)

        assert [samples.outcome for _, _, samples in keeper.kept] == ["incomplete"]
