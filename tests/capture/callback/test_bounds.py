"""Runs that never end are given up: by age on the span thread, by number on arrival."""

from time import time_ns
from uuid import uuid4

from tests.live import a_line, looked_at, run_rag

from spanscore.scorer import pipeline_of
from spanscore.testing import ManualClock

HOUR = 3_600


def start(handler, run_id=None, name="endless"):
    handler.on_chain_start(None, {}, run_id=run_id or uuid4(), name=name, metadata={})


def test_a_root_that_never_ends_is_given_up_by_age_and_counted():
    with a_line() as (scorer, trace):
        pipeline_of(scorer).span_thread.now_ns = clock = ManualClock(time_ns())
        start(scorer.handler)
        looked_at(scorer, clock, 10, 10)
        assert scorer.status().pending == {"grounded": 1}

        looked_at(scorer, clock, HOUR)

        assert scorer.status().outcomes["grounded"] == {"incomplete": 1}
        assert scorer.handler.memory.remembered() == 0
    assert trace.roots[0].attributes["spanscore.run.end"] == "abandoned"


def test_a_root_that_begins_when_the_wall_clock_was_set_back_is_as_young_as_any():
    with a_line() as (scorer, _):
        pipeline_of(scorer).span_thread.now_ns = clock = ManualClock(time_ns() + HOUR * 10**9)
        start(scorer.handler)
        looked_at(scorer, clock, 10, 10)

        assert scorer.status().pending == {"grounded": 1}


def test_an_end_after_that_changes_nothing():
    late = uuid4()
    with a_line() as (scorer, trace):
        pipeline_of(scorer).span_thread.now_ns = clock = ManualClock(time_ns())
        start(scorer.handler, late)
        looked_at(scorer, clock, 10, HOUR)

        scorer.handler.on_chain_end("too late", run_id=late)
        scorer.flush(5)

        assert scorer.status().outcomes["grounded"] == {"incomplete": 1}
    assert len(trace.roots) == 1


def test_the_oldest_of_too_many_open_roots_is_given_up():
    with a_line() as (scorer, trace):
        scorer.handler.max_roots = 3
        for number in range(5):
            start(scorer.handler, name=f"run {number}")
        run_rag(scorer)

        assert scorer.status().outcomes["grounded"]["scored"] == 1
    abandoned = [r.name for r in trace.roots if r.attributes.get("spanscore.run.end") == "abandoned"]
    assert abandoned[:2] == ["invoke_workflow run 0", "invoke_workflow run 1"]
