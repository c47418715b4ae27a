"""A request is answered when the units that close with it are on the disk."""

import sqlite3
from contextlib import contextmanager

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from tests.live import Grounded, a_trace
from tests.service.process import a_run

from spanscore import OnlineScorer
from spanscore.config import Spool
from spanscore.config.serving import ServeSettings
from spanscore.config.units import Units
from spanscore.scorer import pipeline_of
from spanscore.service.otlp_endpoint import TRACES, ExportRequest
from spanscore.service.run import handler_of


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spool.db"


@contextmanager
def a_handler(path, *, quiet, **options):
    scorer = OnlineScorer(
        [Grounded()], spool=Spool(path=path, score_here=False), tracer_provider=a_trace().provider, **options
    )
    try:
        yield handler_of(scorer, ServeSettings(), Units(idle_timeout=quiet))[0], scorer
    finally:
        scorer.shutdown(5)


def a_body():
    return encode_spans([a_run()]).SerializeToString()


def rows(path):
    with sqlite3.connect(path) as file:
        return file.execute("SELECT count(*) FROM rows").fetchone()[0]


def test_what_closes_with_a_request_is_on_the_disk_when_it_is_answered(path):
    with a_handler(path, quiet=0) as (handler, _):
        answered = [(handler.answer(ExportRequest(TRACES, a_body())).status, rows(path)) for _ in range(3)]

    assert answered == [(200, 1), (200, 2), (200, 3)]


def test_what_no_metric_takes_is_answered_all_the_same(path):
    with a_handler(path, quiet=0, sample_rate=0.0) as (handler, _):
        answered = handler.answer(ExportRequest(TRACES, a_body())).status

    assert (answered, rows(path)) == (200, 0)


def test_a_unit_that_finds_no_room_on_the_disk_has_ended_and_is_answered(path):
    with a_handler(path, quiet=0) as (handler, scorer):
        pipeline_of(scorer).queue.spool.close(5)
        answered = handler.answer(ExportRequest(TRACES, a_body())).status
        outcomes = scorer.flush(10) and scorer.status().outcomes

    assert (answered, outcomes) == (200, {"grounded": {"queue_full": 1}})


def test_an_answer_waits_for_nobody_where_units_stay_open(path):
    with a_handler(path, quiet=2.0) as (handler, _):
        assert not handler.may_block
        assert handler.answer(ExportRequest(TRACES, a_body())).status == 200
