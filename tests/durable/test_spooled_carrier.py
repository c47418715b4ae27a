"""Copies that wait on the disk for the process that scores them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.durable.application import METRICS, application, run, token_file
from tests.durable.test_handover import outcomes, poll, spans_in
from tests.live import identity_holds
from tests.servers.otlp import dead_endpoint
from tests.service.backend import RawBackend, Reply

from spanscore import ConfigurationError
from spanscore.config import Limits, RemoteScoring, Sampling, Spool

ALL: dict[str, Any] = {"sampling": Sampling()}


@pytest.fixture
def other() -> Iterator[RawBackend]:
    with RawBackend() as backend:
        yield backend


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(path=tmp_path / "spool.db")


def roots_in(other: RawBackend) -> int:
    return sum(not span.parent_span_id for span in spans_in(other))


def test_a_unit_is_handed_over_when_it_is_on_the_disk_and_flushed_when_it_has_arrived(
    tmp_path: Path, other: RawBackend, spool: Spool
) -> None:
    other.reply(Reply(503))
    with application(
        RemoteScoring(endpoint=other.endpoint, token_file=token_file(tmp_path)),
        spool=spool,
        limits=Limits(queue_size=2),
        **ALL,
    ) as (
        scorer,
        _,
    ):
        for delegated in (2, 4, 6, 8, 10):
            run(scorer, 2)
            assert poll(lambda so_far=delegated: outcomes(scorer) == {"delegated": so_far})
        flushed = scorer.flush(0.3)
        other.reply(Reply())
        assert scorer.flush(20)

        assert not flushed
        assert outcomes(scorer) == {"delegated": 10}
        assert roots_in(other) == 10
        assert identity_holds(scorer)


def test_what_a_process_left_another_one_takes_there(tmp_path: Path, other: RawBackend, spool: Spool) -> None:
    with application(RemoteScoring(endpoint=dead_endpoint(), token_file=token_file(tmp_path)), spool=spool, **ALL) as (
        scorer,
        _,
    ):
        run(scorer, 3)
        assert poll(lambda: outcomes(scorer) == {"delegated": 3})
        scorer.shutdown(1.0)

    with application(
        RemoteScoring(endpoint=other.endpoint, token_file=token_file(tmp_path)), spool=spool, seed=24, **ALL
    ) as (scorer, _):
        assert other.wait_for(lambda: roots_in(other) == 3)
        run(scorer, 1)
        assert scorer.flush(20)

        assert outcomes(scorer) == {"delegated": 1}
        assert roots_in(other) == 4


def test_what_waited_for_longer_than_max_age_is_counted_and_does_not_go_there(
    tmp_path: Path, other: RawBackend, spool: Spool
) -> None:
    with application(RemoteScoring(endpoint=dead_endpoint(), token_file=token_file(tmp_path)), spool=spool, **ALL) as (
        scorer,
        _,
    ):
        run(scorer, 3)
        assert poll(lambda: outcomes(scorer) == {"delegated": 3})
        scorer.shutdown(1.0)
    with sqlite3.connect(spool.path) as file:
        file.execute("UPDATE rows SET put_ns = put_ns - ?", (int(1.1e9 * spool.max_age),))
    file.close()

    with application(
        RemoteScoring(endpoint=other.endpoint, token_file=token_file(tmp_path)), spool=spool, seed=24, **ALL
    ) as (scorer, _):
        run(scorer, 1)
        assert scorer.flush(20)

        assert poll(lambda: outcomes(scorer) == {"delegated": 1, "expired": 3})
        assert roots_in(other) == 1
        assert identity_holds(scorer)
        assert poll(lambda: (state := scorer.status().spool) is not None and state.depth == 0)


def test_what_is_refused_for_good_is_counted_once_more(tmp_path: Path, other: RawBackend, spool: Spool) -> None:
    other.reply(Reply(413))
    with application(RemoteScoring(endpoint=other.endpoint, token_file=token_file(tmp_path)), spool=spool, **ALL) as (
        scorer,
        _,
    ):
        run(scorer, 2)
        assert scorer.flush(20)
        assert poll(lambda: outcomes(scorer).get("queue_full") == 2)  # once more after their end

        assert identity_holds(scorer)


def test_past_the_spool_units_are_not_taken_and_it_is_reported_why(tmp_path: Path, other: RawBackend) -> None:
    small = Spool(path=tmp_path / "spool.db", max_bytes=1)
    with application(RemoteScoring(endpoint=other.endpoint, token_file=token_file(tmp_path)), spool=small, **ALL) as (
        scorer,
        trace,
    ):
        run(scorer, 1)
        assert scorer.flush(20)
        (explained,) = scorer.explain(f"{trace.roots[0].context.trace_id:032x}")

        assert outcomes(scorer) == {"queue_full": 1}
        assert explained["metrics"][METRICS[0]]["reason"].startswith("remote_scoring: spool: ")


def test_units_go_to_a_worker_or_to_a_serve(tmp_path: Path) -> None:
    spool = Spool(path=tmp_path / "spool.db", score_here=False)
    said, where = (
        "spool.score_here: false cannot be combined with remote_scoring",
        RemoteScoring(endpoint="http://a:1", token_file=token_file(tmp_path)),
    )
    with pytest.raises(ConfigurationError, match=said), application(where, spool=spool):
        pass
