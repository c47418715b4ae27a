"""A unit that comes again when its scores have been exported and its row is gone: recognised, counted apart, not scored."""

import sqlite3
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from urllib.request import urlopen

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.live import QUESTION, Grounded, a_line, a_trace, identity_holds, rag, run_rag
from tests.servers.otlp import OtlpReceiver
from tests.wiring.test_revisions import answered, give
from tests.wiring.test_spool import a_worker, ended, rows, until

from spanscore.config import Outputs, Spool
from spanscore.core.span import UnitKey
from spanscore.scorer import pipeline_of
from spanscore.testing import MemorySink
from spanscore.wiring.outputs import ExportConfirmation


def redelivered(scorer):
    return pipeline_of(scorer).queue.redelivered


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
    assert (asked.seen, list(sink.scores), rows(path)) == ([], [], [])


def test_a_unit_that_comes_after_max_age_is_a_new_one(path):
    unit = answered()
    scored_once(path, unit)

    with a_line(Grounded(), spool=Spool(path=path, max_age=0.001)) as (scorer, _):
        give(scorer, unit)
        until("an outcome", lambda: scorer.status().outcomes["grounded"])

        assert redelivered(scorer) == 0


def test_scores_that_a_life_before_may_have_emitted_are_counted_as_redelivered(path):
    trace = a_trace()
    trace.provider.force_flush = lambda timeout_millis=30_000: False
    with a_line(trace=trace, spool=Spool(path=path)) as (scorer, _):
        run_rag(scorer, answer="Nobody knows.")

    with a_worker(path, Grounded()) as (worker, _):
        assert ended(worker, 1) == {"scored": 1}
        assert redelivered(worker) == 1


def remembered(path):
    with sqlite3.connect(path) as file:
        return file.execute("SELECT count(*) FROM done").fetchone()[0]


@contextmanager
def a_backend(monkeypatch, answer):
    """Receive metrics by spanscore's own exporter, every 50 ms."""
    with OtlpReceiver() as backend:
        backend.answer(answer, "metrics")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{backend.endpoint}/v1/metrics")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
        yield backend


def ask(scorer):
    rag("Nobody knows.").invoke(QUESTION, config={"callbacks": [scorer.handler]})
    until("the score", lambda: scorer.status().outcomes["grounded"])


def follow(path):
    """Have another process take the rows; return its outcomes, emitted scores, evaluation spans and sum of scores."""
    reader, sink = InMemoryMetricReader(), MemorySink()
    with a_worker(path, Grounded(), sink=sink, meter_provider=MeterProvider(metric_readers=[reader])) as (
        worker,
        trace,
    ):
        outcomes = ended(worker, 1)
        assert (redelivered(worker), identity_holds(worker)) == (1, True)
        assert worker.flush(10)
        return outcomes, len(list(sink.scores)), len(trace.evaluations), sum_of(reader, "spanscore.scored")


def marks(path):
    with sqlite3.connect(path) as file:
        return file.execute("SELECT sent FROM rows").fetchall()


@pytest.mark.parametrize("answer", [200, 400, 404])
def test_scores_that_are_emitted_again_add_to_no_sum_if_their_sums_were_exported(path, monkeypatch, answer):
    trace, takes_metrics = a_trace(), answer == 200
    trace.provider.force_flush = lambda timeout_millis=30_000: False  # the backend of the spans is away
    with (
        a_backend(monkeypatch, answer) as backend,
        a_line(trace=trace, spool=Spool(path=path), meter_provider=None) as (scorer, _),
    ):
        ask(scorer)
        until("an export of metrics", lambda: backend.requests["metrics"])
        if takes_metrics:
            until("the mark", lambda: remembered(path) == 1)

    assert follow(path) == (({"delegated": 1}, 1, 1, 0) if takes_metrics else ({"scored": 1}, 1, 1, 1))


def test_scores_that_were_exported_and_in_no_exported_sum_are_only_added_up(path, monkeypatch):
    with a_backend(monkeypatch, 400), a_line(spool=Spool(path=path), meter_provider=None) as (scorer, trace):
        ask(scorer)
        until("the mark", lambda: marks(path) == [(1,)])
        until("a spool in which no unit waits", lambda: pipeline_of(scorer).queue.spool.state().depth == 0)

    assert len(trace.evaluations) == 1
    assert follow(path) == ({"scored": 1}, 0, 0, 1)


def test_a_row_is_deleted_when_its_scores_and_its_sums_are_exported(path, monkeypatch):
    with (
        a_backend(monkeypatch, 503) as backend,
        a_line(spool=Spool(path=path), meter_provider=None) as (scorer, _),
    ):
        ask(scorer)
        until("the mark", lambda: marks(path) == [(1,)])
        backend.answer(200, "metrics")
        until("the row to be deleted", lambda: marks(path) == [])

        assert remembered(path) == 1


def test_a_read_page_of_metrics_is_an_export_of_the_sums(path):
    with a_line(spool=Spool(path=path)) as (scorer, _):
        page = f"http://127.0.0.1:{scorer.serve_metrics(0)}/metrics"
        urlopen(page).close()
        ask(scorer)
        until("the mark", lambda: marks(path) == [(1,)])
        urlopen(page).close()
        until("the row to be deleted", lambda: marks(path) == [])


class Marks:
    """A spool's queue that keeps the marks, and providers that export spans at once."""

    def __init__(self):
        self.exported, self.sent = [], []

    def mark_exported(self, units):
        self.exported += [unit.key.span_id for unit in units]

    def mark_sent(self, units):
        self.sent += [unit.key.span_id for unit in units]

    def exports_metrics(self):
        return True

    def start_flush_of_spans(self):
        flushed = Future()
        flushed.set_result(True)
        return flushed


def test_no_row_waits_for_sums_of_which_no_export_was_seen_for_five_minutes():
    now_s, marks = [0.0], Marks()
    confirmation = ExportConfirmation(marks, marks, spool=marks, later=lambda _, flush: flush(), clock=lambda: now_s[0])
    early, late = (replace(answered(), key=UnitKey(1, span)) for span in (1, 2))
    confirmation.mark_emitted(early)
    assert (marks.sent, marks.exported) == ([1], [])

    now_s[0] = 301.0
    confirmation.mark_emitted(late)

    assert (marks.sent, marks.exported) == ([1], [1, 2])


def sum_of(reader, name):
    """Return the sum of a counter over all attributes."""
    metrics = [
        metric
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    return sum(point.value for metric in metrics if metric.name == name for point in metric.data.data_points)
