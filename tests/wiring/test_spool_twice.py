"""Units that are in a spool already when they, or their scores, come once more: each score is made and emitted once."""

import sqlite3
import threading

from tests.live import Grounded, Held, a_line, a_trace, identity_holds, run_rag
from tests.wiring.test_revisions import again, answered, give
from tests.wiring.test_spool import a_worker, ended, rows, until

from spanscore import Rule
from spanscore.config import Outputs, RuleCondition, Sampling, Spool
from spanscore.core.codecs.job import job_of
from spanscore.scorer import pipeline_of
from spanscore.testing import MemorySink


def test_revisions_of_one_unit_that_were_handed_over_are_all_emitted(path):
    unit, sink, go_on = answered(), MemorySink(), threading.Event()
    with a_line(Held(go_on), spool=Spool(path=path, score_here=False)) as (scorer, _):
        give(scorer, unit, again(unit), again(unit, 2))
        assert scorer.flush(10)
    assert len(rows(path)) == 3

    with a_worker(path, held := Held(go_on), sink=sink):
        until("all of them to be begun", lambda: held.begun == 3)
        go_on.set()
        until("the rows to be deleted", lambda: rows(path) == [])

    assert len({score.id for score in sink.scores}) == 3


def test_a_metric_that_waited_for_a_score_and_has_its_own_is_not_asked_again(path):
    rule = Rule(rate=1.0, name="bad", when=RuleCondition(score={"metric": "grounded", "below": 1.0}))
    options = {"sampling": Sampling(rates={"grounded": 1.0, "second": 0.0}, rules=[rule])}
    trace, asked_again = a_trace(), [Grounded(), Grounded("second")]
    trace.provider.force_flush = lambda timeout_millis=30_000: False
    with a_line(Grounded(), Grounded("second"), trace=trace, spool=Spool(path=path), **options) as (scorer, _):
        run_rag(scorer, answer="Nobody knows.")

    with a_worker(path, *asked_again, **options) as (worker, _):
        outcomes = ended(worker, 1), ended(worker, 1, "second")
        until("the row to be deleted", lambda: rows(path) == [])

    assert outcomes == ({"scored": 1}, {"scored": 1})
    assert [metric.seen for metric in asked_again] == [[], []]


def test_a_unit_that_comes_again_while_it_is_scored_from_the_spool_has_its_score(path):
    unit, sink, go_on = answered(), MemorySink(), threading.Event()
    with a_line(Held(go_on), spool=Spool(path=path, score_here=False)) as (scorer, _):
        give(scorer, unit)
        assert scorer.flush(10)

    with a_worker(path, Held(go_on), sink=sink) as (worker, _):
        until("it to be begun", lambda: worker.status().pending["held"])
        give(worker, unit)
        until("it to be on its way no more", lambda: worker.status().queue[0] == 1)
        go_on.set()
        until("the row to be deleted", lambda: rows(path) == [])
        assert worker.flush(10)

    assert len(sink.scores) == 1
    assert identity_holds(worker)


def test_a_unit_that_comes_again_before_it_is_begun_from_the_spool_has_its_score(path):
    unit, sink = answered(), MemorySink()
    with a_line(spool=Spool(path=path, score_here=False)) as (scorer, _):
        give(scorer, unit)
        assert scorer.flush(10)
    with sqlite3.connect(path) as file:
        [(job,)] = file.execute("SELECT body FROM bodies")

    with a_line(spool=Spool(path=path), outputs=Outputs(sinks=[sink])) as (worker, _):
        units, thread = pipeline_of(worker).units, pipeline_of(worker).span_thread
        worker.start_workers()
        thread.call(lambda: (units.unit_complete(unit, {}, thread.now_ns()), units.accept_job(job_of(job))), 5)
        until("the row to be deleted", lambda: rows(path) == [])

    assert len(sink.scores) == 1
    assert worker.status().outcomes["grounded"] == {"scored": 1}
