"""A sample made by hand comes in like any other unit."""

from tests.live import ANSWER, CONTEXT, QUESTION, a_line, identity_holds

from spanscore import SingleTurnSample
from spanscore.wiring.span_thread import SpanThread


def sample():
    return SingleTurnSample(user_input=QUESTION, response=ANSWER, retrieved_contexts=[CONTEXT])


def test_a_sample_that_a_stuck_span_thread_has_not_read_ends_as_shutdown(monkeypatch):
    monkeypatch.setattr(SpanThread, "ensure", lambda self: None)  # as if it hung in an exporter
    with a_line() as (scorer, _):
        scorer.submit(sample())
        scorer.shutdown(timeout=0.5)

        assert scorer.status().outcomes["grounded"] == {"shutdown": 1}
        assert identity_holds(scorer)
