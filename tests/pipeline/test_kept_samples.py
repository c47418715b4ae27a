"""Kept samples use no more memory than allowed, by Python's own sizes, for any content."""

from __future__ import annotations

import gc
import tracemalloc
from secrets import randbits

import pytest

from spanscore import semconv
from spanscore.core.job import Decision
from spanscore.core.sample import Samples, SingleTurnSample
from spanscore.core.score import Score
from spanscore.core.span import Unit, UnitKey
from spanscore.pipeline.sizes import SampleCache
from spanscore.testing import make_score, make_span, make_unit

MOST = 2_000_000
TEXTS = {"short": "a" * 30, "long": "a" * 8_000, "of two bytes each": "答" * 1_000}


def answered(number: int, text: str) -> tuple[Unit, Samples]:
    trace, span = randbits(128), randbits(64)
    attributes = {semconv.WORKFLOW_NAME: "support", semconv.CONVERSATION_ID: f"conversation-{number}"}
    metadata = {"user_tier": "gold", "thread_id": f"thread-{number}", "note": f"{number} {text}"}
    root = make_span(trace_id=trace, span_id=span, attributes=attributes, metadata=metadata)
    asked = SingleTurnSample(
        user_input=f"{number}?", response=f"{number} {text}", retrieved_contexts=[f"{text} {number}"] * 3
    )
    return make_unit(root), Samples.of(asked)


def scores(number: int) -> list[Score]:
    text = f"{number}: {'because ' * 20}"
    return [make_score(0.5, f"metric_{one}", explanation=text, id=f"{number:032x}") for one in range(3)]


@pytest.mark.parametrize("scored", [False, True], ids=["alone", "with scores"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_at_its_bound_what_is_kept_holds_at_most_half_as_much_again(text: str, scored: bool) -> None:
    kept = SampleCache(lambda _: Decision(True, 0.5, 1 << 55), within_ns=1 << 60, max_bytes=MOST)

    held = held_by(kept, text, scored=scored)

    assert 0.3 * MOST < held <= 1.5 * MOST


def held_by(kept: SampleCache, text: str, *, scored: bool) -> int:
    """Keep units until the first one is dropped; return the held memory."""
    gc.collect()
    tracemalloc.start()
    try:
        first, number = keep(kept, 0, text, scored=scored), 1
        while not kept.was_dropped(first):
            keep(kept, number, text, scored=scored)
            number += 1
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def keep(kept: SampleCache, number: int, text: str, *, scored: bool) -> UnitKey:
    unit, samples = answered(number, text)
    kept.on_samples(unit.facts(), unit, samples)
    kept.add_scores(unit.key, scores(number) if scored else [])
    return unit.key
