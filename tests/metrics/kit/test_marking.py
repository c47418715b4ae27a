"""The answers that count for the judge that is fitted."""

from __future__ import annotations

from dataclasses import replace

from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Outcome
from spanscore.metrics.kit.tuned_prompts import TuningSample
from spanscore.metrics.kit.tuning import agreements_in
from spanscore.testing import make_score

PASSES = TuningSample(SingleTurnSample(response="Please."), {}, verdict=1, group=1, example=None)
RIGHT = make_score(1.0)
FAILED = replace(
    RIGHT, outcome=Outcome.TIMEOUT, value=None, quality=None, label=None, error_type="timeout", reason="late"
)


def test_a_failure_and_the_verdict_of_a_fallback_are_no_answers() -> None:
    wrong, of_fallback = replace(RIGHT, value=0.0), replace(RIGHT, source="fallback")

    assert agreements_in([RIGHT, wrong, FAILED, of_fallback], [PASSES] * 4) == [True, False, None, None]
