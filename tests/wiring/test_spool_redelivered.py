"""A unit that comes again when its scores have been exported and its row is gone: recognised, counted apart, not scored."""

import sqlite3

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.live import QUESTION, Grounded, a_line, a_trace, identity_holds, rag
from tests.servers.otlp import OtlpReceiver
from tests.wiring.test_revisions import answered, give
from tests.wiring.test_spool import a_worker, ended, path, rows, until

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
    trace = a_trace()
    trace.provider.force_flush = lambda timeout_millis=30_000: False
    with a_line(trace=trace, spool=Spool(path=path)) as (scorer, _):
        rag("Nobody knows.").invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert scorer.flush(10)

    with a_worker(path, Grounded()) as (worker, _):
        assert ended(worker, 1) == {"scored": 1}
        assert redelivered(worker) == 1


def remembered(path):
    with sqlite3.connect(path) as file:
        return file.execute("SELECT count(*) FROM done").fetchone()[0]


@pytest.mark.parametrize("answer", [200, 400, 404])
def test_scores_that_are_emitted_again_add_to_no_sum_if_their_sums_were_exported(path, monkeypatch, answer):
    trace, reader, sink, takes_metrics = a_trace(), InMemoryMetricReader(), MemorySink(), answer == 200
    trace.provider.force_flush = lambda timeout_millis=30_000: False  # the backend of the spans is away
    with OtlpReceiver() as backend:
        backend.answer(answer, "metrics")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{backend.endpoint}/v1/metrics")
        with a_line(trace=trace, spool=Spool(path=path), meter_provider=None) as (scorer, _):
            rag("Nobody knows.").invoke(QUESTION, config={"callbacks": [scorer.handler]})
            until("an export of metrics", lambda: scorer.status().outcomes["grounded"] and backend.requests["metrics"])
            if takes_metrics:
                until("the mark", lambda: remembered(path) == 1)

    with a_worker(path, Grounded(), sink=sink, meter_provider=MeterProvider(metric_readers=[reader])) as (worker, _):
        assert ended(worker, 1) == ({"delegated": 1} if takes_metrics else {"scored": 1})
        assert (redelivered(worker), identity_holds(worker), len(list(sink.scores))) == (1, True, 1)
        assert sum_of(reader, "spanscore.scored") == (0 if takes_metrics else 1)


def sum_of(reader, name):
    """Return the sum of a counter over all attributes."""
    metrics = [
        metric
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    return sum(point.value for metric in metrics if metric.name == name for point in metric.data.data_points)
