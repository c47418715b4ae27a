"""Units that wait on a disk: one scorer hands them over and another scores them, once, with the same ids."""

import json
import sqlite3
import threading
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from opentelemetry.sdk.resources import Resource
from tests.live import QUESTION, Grounded, Held, a_line, a_trace, identity_holds, rag
from tests.servers.server import poll

from spanscore import Rule, session
from spanscore.config import Compare, Limits, Outputs, RemoteScoring, RuleCondition, Sampling, Sessions, Spool
from spanscore.durable.spool import inspect_spool, retry_dead_letters
from spanscore.errors import ConfigurationError
from spanscore.pipeline.queues import MemoryQueue
from spanscore.scorer import pipeline_of
from spanscore.testing import MemorySink


def ask(scorer, units=1):
    rag().batch([QUESTION] * units, config={"callbacks": [scorer.handler]})


def delegated(path, units, *metrics, **options):
    """Have a process write units, and score none; return its outcomes."""
    with a_line(*metrics, spool=Spool(path=path, score_here=False), **options) as (scorer, trace):
        ask(scorer, units)
        assert scorer.flush(10)
        assert identity_holds(scorer)
        return scorer.status().outcomes, trace


@contextmanager
def a_worker(path, *metrics, sink=None, **options):
    sinks = [] if sink is None else [sink]
    with a_line(*metrics, spool=Spool(path=path), outputs=Outputs(sinks=sinks), **options) as (scorer, trace):
        scorer.start_workers()
        yield scorer, trace


def until(what, question):
    return poll(question, deadline_s=10, what=what)


def ended(scorer, units, metric="grounded"):
    """Wait until so many units have ended, and return how."""

    def all_of_them():
        counts = scorer.status().outcomes.get(metric, {})
        return counts if sum(counts.values()) == units else None

    return until(f"{units} units to end", all_of_them)


def rows(path):
    with sqlite3.connect(path) as file:
        return [(bytes(key), scores) for key, scores in file.execute("SELECT key, scores FROM rows")]


def aside(path):
    with sqlite3.connect(path) as file:
        return [aside for (aside,) in file.execute("SELECT aside FROM rows")]


def test_a_unit_is_scored_by_who_wrote_it_and_its_row_is_gone_when_that_is_exported(path):
    with a_line(spool=Spool(path=path)) as (scorer, trace):
        ask(scorer, 3)
        assert scorer.flush(10)
        until("the rows to be deleted", lambda: rows(path) == [])

    assert scorer.status().outcomes == {"grounded": {"scored": 3}}
    assert [root.attributes["spanscore.score.grounded"] for root in trace.roots] == [1.0] * 3


def test_who_only_writes_hands_over_and_another_scores_what_was_chosen(path):
    metric = Grounded()

    outcomes, written = delegated(path, 5, metric, sample_rate=0.999)
    with a_worker(path, sample_rate=0.0) as (worker, scored):
        result = ended(worker, 5)

    assert outcomes == {"grounded": {"delegated": 5}}
    assert metric.seen == [], "nothing is scored where units are only written"
    assert {root.attributes["spanscore.status"] for root in written.roots} == {"delegated"}
    assert result == {"scored": 5}, "no unit is sampled again"
    assert {span.attributes["spanscore.sampling.threshold"] for span in scored.evaluations} == {"004189374bc6a8"}
    assert {span.parent.span_id for span in scored.evaluations} == {root.context.span_id for root in written.roots}


def test_a_unit_is_counted_and_shown_under_the_release_that_made_it(path):
    old, new = (a_trace(resource=Resource({"service.name": "shop", "service.version": it})) for it in ("1.4", "1.5"))
    options = {"compare": Compare(by="service.version")}
    delegated(path, 1, trace=old, **options)

    with a_worker(path, trace=new, **options) as (worker, scored):
        ended(worker, 1)
        assert worker.flush(10)
        known = pipeline_of(worker).compared.values_of("grounded")

    assert known == ("1.4",)
    assert [dict(span.resource.attributes) for span in scored.evaluations] == [dict(old.roots[0].resource.attributes)]


def test_scores_that_were_not_exported_are_emitted_again_and_no_judge_is_asked_again(path):
    first, second, asked_again = MemorySink(), MemorySink(), Grounded()
    trace = a_trace()
    trace.provider.force_flush = lambda timeout_millis=30_000: False
    with a_line(trace=trace, spool=Spool(path=path), outputs=Outputs(sinks=[first])) as (scorer, _):
        ask(scorer, 2)
        assert scorer.flush(10)
    assert all(scores for _, scores in rows(path)), "its scores are on the disk before they are emitted"

    with a_worker(path, asked_again, sink=second) as (worker, _):
        outcomes = ended(worker, 2)
        until("the rows to be deleted", lambda: rows(path) == [])

    assert outcomes == {"scored": 2}
    assert asked_again.seen == []
    assert sorted(first.scores, key=lambda score: score.id) == sorted(second.scores, key=lambda score: score.id)


def test_of_a_unit_of_which_some_scores_are_in_the_others_are_asked(path):
    go_on, again = threading.Event(), Grounded()
    with a_line(Grounded(), Held(go_on), spool=Spool(path=path)) as (scorer, _):
        ask(scorer)
        until("the first score", lambda: rows(path)[0][1] if rows(path) else None)
        scorer.shutdown(0.5)
        left = scorer.status().outcomes
    go_on.set()

    with a_worker(path, again, Held(go_on)) as (worker, _):
        outcomes = ended(worker, 1, "held"), ended(worker, 1)

    assert left["held"] == {"delegated": 1}, "what a shutdown finds in work is others'"
    assert outcomes == ({"scored": 1}, {"scored": 1})
    assert again.seen == []


def test_what_finds_no_room_in_memory_waits_on_the_disk_and_is_scored_by_and_by(path):
    go_on = threading.Event()
    with a_line(Held(go_on), spool=Spool(path=path), limits=Limits(queue_size=2)) as (scorer, _):
        ask(scorer, 9)
        until("the others to be handed over", lambda: scorer.status().outcomes["held"] == {"delegated": 7})
        assert scorer.status().queue[0] == 2
        go_on.set()
        outcomes = ended(scorer, 16, "held")

    assert outcomes == {"delegated": 7, "scored": 9}
    assert identity_holds(scorer)


def test_who_sends_its_units_elsewhere_scores_nothing_that_others_have_left(path):
    delegated(path, 2)
    metric, token = Grounded(), path.with_name("token")
    token.write_text("none")
    with a_line(
        metric, spool=Spool(path=path), remote_scoring=RemoteScoring(endpoint="http://127.0.0.1:9", token_file=token)
    ) as (scorer, _):
        scorer.start_workers()
        assert scorer.flush(10)

    assert (metric.seen, len(rows(path))) == ([], 2)


def test_a_shutdown_hands_over_what_is_not_begun_at_once(path):
    with a_line(Held(threading.Event()), spool=Spool(path=path), limits=Limits(workers=1)) as (scorer, _):
        ask(scorer, 5)
        until("the units to be on the disk", lambda: len(rows(path)) == 5)
        scorer.shutdown(0.5)

    assert scorer.status().outcomes == {"held": {"delegated": 5}}
    with sqlite3.connect(path) as file:
        assert file.execute("SELECT count(*) FROM rows WHERE owner IS NULL AND attempts = 0").fetchone() == (5,)


def test_what_is_too_old_is_counted_and_never_judged(path):
    delegated(path, 2)
    with sqlite3.connect(path) as file:
        file.execute("UPDATE rows SET put_ns = 1")

    metric = Grounded()
    with a_worker(path, metric) as (worker, _):
        outcomes = ended(worker, 2)
        until("the rows to be deleted", lambda: rows(path) == [])

    assert (outcomes, metric.seen) == ({"expired": 2}, [])
    assert worker.status().reasons == {"grounded expired": "it waited in the spool for longer than max_age"}


def test_dead_letters_is_counted_once_and_stays_in_the_file(path):
    delegated(path, 1)
    with sqlite3.connect(path) as file:
        file.execute("UPDATE rows SET aside = 1, attempts = 3")

    with a_worker(path) as (worker, _):
        outcomes = ended(worker, 1)
        until("it to be put aside for good", lambda: worker.status().spool.dead_letters == 1)
    with a_worker(path) as (another, _):
        until("it to be seen", lambda: another.status().spool.dead_letters == 1)

    assert outcomes == {"metric_error": 1}
    assert another.status().outcomes == {"grounded": {}}
    assert "three processes crashed" in worker.status().reasons["grounded metric_error"]


def test_dead_letters_that_is_tried_again_is_scored(path):
    delegated(path, 1)
    with sqlite3.connect(path) as file:
        file.execute("UPDATE rows SET aside = 1, attempts = 3")
    with a_worker(path) as (worker, _):
        ended(worker, 1)
        until("it to be put aside for good", lambda: aside(path) == [2])
        assert retry_dead_letters(path) == 1
        outcomes = ended(worker, 2)

    assert outcomes == {"metric_error": 1, "scored": 1}
    assert identity_holds(worker)


def test_a_job_of_a_newer_version_is_put_aside_in_the_file_and_counted(path, caplog):
    delegated(path, 1)
    with sqlite3.connect(path) as file:
        (body,) = file.execute("SELECT body FROM bodies").fetchone()
        file.execute("UPDATE bodies SET body = ?", (json.dumps({**json.loads(body), "version": 2}).encode(),))

    with a_worker(path) as (worker, _):
        outcomes = ended(worker, 1)
        until("it to be put aside", lambda: aside(path) == [2])
    with a_worker(path) as (another, _):
        until("it to be seen", lambda: another.status().spool.dead_letters == 1)

    assert outcomes == {"metric_error": 1}
    assert another.status().outcomes == {"grounded": {}}, "it is counted once"
    assert "it has version 2, and this spanscore reads 1" in caplog.text


def test_a_metric_that_a_worker_lacks_waits_for_a_worker_that_has_it(path, caplog):
    first, second = MemorySink(), MemorySink()
    delegated(path, 20, Grounded("only_there"))
    delegated(path, 1, Grounded())
    with a_worker(path, sink=first) as (old, _):
        assert ended(old, 1) == {"scored": 1}
        until("its row to be deleted", lambda: len(rows(path)) == 20)
        with a_worker(path, Grounded("only_there"), sink=second) as (new, _):
            assert ended(new, 20, "only_there") == {"scored": 20}
            until("the rows to be deleted", lambda: rows(path) == [])
            assert identity_holds(old)
            assert identity_holds(new)

    assert "only_there" not in old.status().outcomes
    assert [len(sink.scores) for sink in (first, second)] == [1, 20]
    assert caplog.text.count("units for metrics that this process lacks: only_there") == 1


def test_a_worker_scores_the_metrics_that_it_has_and_leaves_the_others(path):
    sinks = [MemorySink(), MemorySink()]
    delegated(path, 3, Grounded(), Grounded("second"), Grounded("third"))

    for metric, sink in zip(("second", "grounded"), sinks, strict=True):
        with a_worker(path, Grounded(metric), sink=sink) as (worker, _):
            assert ended(worker, 3, metric) == {"scored": 3}
            until("a flush", lambda: all(scores is None for _, scores in rows(path)))
            assert identity_holds(worker)

    assert [{score.metric for score in sink.scores} for sink in sinks] == [{"second"}, {"grounded"}]
    assert [(row.metric, row.units) for row in inspect_spool(path).waiting] == [("third", 3)]


def test_kept_scores_are_emitted_by_a_worker_without_their_metric(path):
    trace, sink = a_trace(), MemorySink()
    trace.provider.force_flush = lambda timeout_millis=30_000: False
    with a_line(trace=trace, spool=Spool(path=path)) as (scorer, _):
        ask(scorer, 2)
        assert scorer.flush(10)

    with a_worker(path, Grounded("another"), sink=sink) as (worker, _):
        assert ended(worker, 2) == {"scored": 2}
        until("the rows to be deleted", lambda: rows(path) == [])

    assert len(sink.scores) == 2


def test_a_metric_that_no_worker_has_expires_and_is_counted(path):
    delegated(path, 1, Grounded(), Grounded("only_there"))
    with a_worker(path) as (worker, _):
        ended(worker, 1)
        until("it to be left", lambda: [row.metric for row in inspect_spool(path).waiting] == ["only_there"])
        with sqlite3.connect(path) as file:
            file.execute("UPDATE rows SET put_ns = 0")
        outcomes = ended(worker, 1, "only_there")
        until("the row to be deleted", lambda: rows(path) == [])
        status = worker.status()

    assert outcomes == {"expired": 1}
    assert status.outcomes["grounded"] == {"scored": 1}, "it is not counted once more"
    assert "only_there" in str(status)
    assert identity_holds(worker)


def test_rows_of_an_older_version_are_shared_by_metric(path):
    delegated(path, 2, Grounded(), Grounded("second"))
    with sqlite3.connect(path) as file:
        file.executescript("DROP INDEX due; DROP INDEX scored; ALTER TABLE rows DROP COLUMN metrics;")

    for metric in ("second", "grounded"):
        with a_worker(path, Grounded(metric)) as (worker, _):
            assert ended(worker, 2, metric) == {"scored": 2}
            until("a flush", lambda: all(scores is None for _, scores in rows(path)))

    assert rows(path) == []


def test_metrics_that_wait_for_a_score_are_decided_on_where_that_is_made(path):
    rule = Rule(rate=1.0, name="good", when=RuleCondition(score={"metric": "grounded", "below": 1.0}))
    options = {"sampling": Sampling(rates={"grounded": 1.0, "second": 0.0}, rules=[rule])}
    metrics = [Grounded(), Grounded("second")]

    outcomes, _ = delegated(path, 1, *metrics, **options)
    with a_worker(path, *metrics, **options) as (worker, _):
        result = ended(worker, 1), ended(worker, 1, "second")

    assert outcomes == {"grounded": {"delegated": 1}, "second": {"delegated": 1}}
    assert result == ({"scored": 1}, {"not_sampled": 1})


def test_a_conversation_is_handed_over_as_one(path):
    of_sessions = Grounded("whole")
    of_sessions.requires = {"multi_turn": ()}
    sessions = {"sessions": Sessions(metrics=[of_sessions], score_every=0)}
    with a_line(spool=Spool(path=path, score_here=False), **sessions) as (scorer, _):
        with session("abc"):
            ask(scorer, 1)
        assert scorer.end_session("abc")
        assert scorer.flush(10)
        left = scorer.status().outcomes

    with a_worker(path, **sessions) as (worker, _):
        outcomes = ended(worker, 1, "whole")

    assert left == {"grounded": {"delegated": 1}, "whole": {"delegated": 1}}
    assert sum(outcomes.values()) == 1
    assert identity_holds(worker)


def test_a_full_spool_is_queue_full_and_says_so(path):
    with a_line(spool=Spool(path=path, max_bytes=1, score_here=False)) as (scorer, trace):
        ask(scorer, 2)
        assert scorer.flush(10)
        units = [unit for root in trace.roots for unit in scorer.explain(root.context.trace_id)]
        explained = [unit["metrics"]["grounded"]["reason"] for unit in units]

    assert scorer.status().outcomes == {"grounded": {"queue_full": 2}}
    assert set(explained) == {"spool: max_bytes"}


def test_a_spool_takes_the_place_of_a_queue(path):
    with pytest.raises(ConfigurationError, match=r"spool and limits\.job_queue are both given"):
        a_line(spool=Spool(path=path), limits=Limits(job_queue=MemoryQueue())).__enter__()


def test_status_tells_what_is_on_the_disk(path):
    with a_line(spool=Spool(path=path, score_here=False)) as (scorer, _):
        ask(scorer, 3)
        assert scorer.flush(10)
        until("the units to be reported", lambda: "spool: 3 units on the disk" in str(scorer.status()))
        began = datetime.fromtimestamp(scorer.status().since_s, UTC)

    assert f"counts of this process began at {began:%Y-%m-%d %H:%M:%S} UTC" in str(scorer.status())
