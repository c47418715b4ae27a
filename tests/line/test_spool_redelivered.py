"""A unit that comes again when its scores have been exported and its row is gone: recognised, counted apart, not scored."""

from tests.line.test_revisions import answered, give
from tests.line.test_spool import a_worker, ended, path, rows, until
from tests.live import Grounded, a_line, identity_holds

from spanscore.config import Outputs, Spool
from spanscore.testing import MemorySink

__all__ = ["path"]


def redelivered(scorer):
    return scorer._line.queue.redelivered


def scored_once(path, unit):
    with a_line(Grounded(), spool=Spool(path=path)) as (scorer, _):
        give(scorer, unit)
        until("the row to be deleted", lambda: scorer.status().outcomes["grounded"] and rows(path) == [])


def test_a_unit_that_was_scored_in_a_life_before_is_handed_over_and_in_no_sum(path):
    unit, sink, asked = answered(), MemorySink(), Grounded()
    scored_once(path, unit)

    with a_line(asked, spool=Spool(path=path), outputs=Outputs(sinks=[sink])) as (scorer, _):
        give(scorer, unit)
        assert scorer.flush(10)

        assert scorer.status().outcomes["grounded"] == {"delegated": 1}
        assert redelivered(scorer) == 1
        assert identity_holds(scorer)
    assert (asked._seen, list(sink.scores), rows(path)) == ([], [], [])


def test_a_unit_that_comes_after_max_age_is_a_new_one(path):
    unit = answered()
    scored_once(path, unit)

    with a_line(Grounded(), spool=Spool(path=path, max_age=0.001)) as (scorer, _):
        give(scorer, unit)
        until("an outcome", lambda: scorer.status().outcomes["grounded"])

        assert redelivered(scorer) == 0


def test_scores_that_a_life_before_may_have_emitted_are_counted_as_redelivered(path):
    from tests.live import QUESTION, a_trace, rag

    trace = a_trace()
    trace.provider.force_flush = lambda timeout_millis=30_000: False
    with a_line(trace=trace, spool=Spool(path=path)) as (scorer, _):
        rag("Nobody knows.").invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert scorer.flush(10)

    with a_worker(path, Grounded()) as (worker, _):
        assert ended(worker, 1) == {"scored": 1}
        assert redelivered(worker) == 1
