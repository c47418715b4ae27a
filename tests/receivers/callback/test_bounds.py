"""What never ends is given up: by age on the span thread, by count at the door."""

from uuid import uuid4

from tests.live import QUESTION, a_line, open_roots, rag

from spanscore.testing import ManualClock

HOUR = 3_600


def start(handler, run_id=None, name="endless"):
    handler.on_chain_start(None, {}, run_id=run_id or uuid4(), name=name, metadata={})


def test_a_root_that_never_ends_is_given_up_by_age_and_counted():
    with a_line() as (scorer, trace):
        start(scorer.handler)
        clock = ManualClock(open_roots(scorer.handler)[0].start_ns)
        scorer._line.span_thread._clock = clock
        scorer.flush(5)
        clock.advance(10)  # for so long the span thread need not hear of it
        scorer._line.inbox.nudge()
        scorer.flush(5)
        assert scorer.status().pending == {"grounded": 1}

        clock.advance(HOUR)
        scorer._line.inbox.nudge()
        scorer.flush(5)

        assert scorer.status().outcomes["grounded"] == {"incomplete": 1}
        assert scorer.handler.remembered() == 0
    assert trace.roots[0].attributes["spanscore.run.end"] == "abandoned"


def test_a_root_that_begins_when_the_wall_clock_was_set_back_is_as_young_as_any():
    with a_line() as (scorer, _):
        start(scorer.handler)
        clock = scorer._line.span_thread._clock = ManualClock(open_roots(scorer.handler)[0].start_ns + HOUR * 10**9)
        scorer.flush(5)
        clock.advance(10)
        scorer._line.inbox.nudge()
        scorer.flush(5)

        assert scorer.status().pending == {"grounded": 1}


def test_an_end_after_that_changes_nothing():
    late = uuid4()
    with a_line() as (scorer, trace):
        start(scorer.handler, late)
        clock = ManualClock(open_roots(scorer.handler)[0].start_ns)
        scorer._line.span_thread._clock = clock
        scorer.flush(5)
        clock.advance(HOUR)
        scorer._line.inbox.nudge()
        scorer.flush(5)

        scorer.handler.on_chain_end("too late", run_id=late)
        scorer.flush(5)

        assert scorer.status().outcomes["grounded"] == {"incomplete": 1}
    assert len(trace.roots) == 1


def test_the_oldest_of_too_many_open_roots_is_given_up():
    with a_line() as (scorer, trace):
        scorer.handler._max_roots = 3
        for number in range(5):
            start(scorer.handler, name=f"run {number}")
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert scorer.flush(5)

        assert scorer.status().outcomes["grounded"]["scored"] == 1
    abandoned = [r.name for r in trace.roots if r.attributes.get("spanscore.run.end") == "abandoned"]
    assert abandoned[:2] == ["invoke_workflow run 0", "invoke_workflow run 1"]
