"""A lost unit represents as many units as a scored one would: the bounds of a mean include both."""

from __future__ import annotations

import threading
from time import time_ns
from typing import Any
from uuid import uuid4

from tests.live import QUESTION, Failing, Held, a_line, looked_at, rag, run_rag
from tests.servers.server import poll

from spanscore.config import Limits
from spanscore.core.job import Weights
from spanscore.core.score import Outcome
from spanscore.scorer import pipeline_of
from spanscore.testing import ManualClock

UNITS = 60
RATE = 0.25


def begin(scorer: Any) -> None:
    for _ in range(UNITS):
        scorer.handler.on_chain_start(None, {}, run_id=uuid4(), name="endless", metadata={})


def test_a_chosen_unit_that_finds_no_room_stands_for_those_that_were_not_chosen() -> None:
    go_on = threading.Event()
    with a_line(Held(go_on), sample_rate=RATE, limits=Limits(queue_size=1)) as (scorer, _):
        for _ in range(UNITS):
            rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        go_on.set()
        assert scorer.flush(5)
        not_attempted = scorer.status().outcomes["held"]["queue_full"]

    expected = Weights(not_attempted / RATE, not_attempted / RATE**2)
    assert pipeline_of(scorer).ledger.excluded() == {("held", Outcome.QUEUE_FULL, None): expected}


def test_a_unit_that_never_ended_stands_for_those_that_were_not_followed() -> None:
    with a_line(sample_rate=RATE) as (scorer, _):
        pipeline_of(scorer).span_thread.now_ns = clock = ManualClock(time_ns())
        begin(scorer)
        looked_at(scorer, clock, 10, 3_600)
        outcomes = scorer.status().outcomes["grounded"]

    weights = pipeline_of(scorer).ledger.excluded()["grounded", Outcome.INCOMPLETE, None]
    assert outcomes["incomplete"] + outcomes["not_sampled"] == UNITS
    assert weights.w == outcomes["incomplete"] / RATE


def test_a_unit_that_a_shutdown_ends_stands_for_those_that_were_not_followed() -> None:
    with a_line(sample_rate=RATE) as (scorer, _):
        begin(scorer)
        scorer.shutdown(timeout=2)
        outcomes = scorer.status().outcomes["grounded"]

    weights = pipeline_of(scorer).ledger.excluded()["grounded", Outcome.SHUTDOWN, None]
    assert outcomes["shutdown"] + outcomes["not_sampled"] == UNITS
    assert weights.w == outcomes["shutdown"] / RATE


def test_a_status_says_of_how_much_the_mean_is_where_a_burst_found_the_queue_full() -> None:
    """Bursts are worse: 30 good answers one by one, and 8 bad ones at once, 2 of which find room."""
    go_on = threading.Event()
    go_on.set()
    with a_line(Held(go_on), limits=Limits(queue_size=2)) as (scorer, _):
        for _ in range(30):
            run_rag(scorer)
        go_on.clear()
        for _ in range(8):
            rag("Nowhere.").invoke(QUESTION, config={"callbacks": [scorer.handler]})
        poll(
            lambda: scorer.status().outcomes["held"].get("queue_full") == 6, deadline_s=5, what="six to be turned away"
        )
        go_on.set()
        assert scorer.flush(5)
        status = scorer.status()

    (mean, _, _), (share, low, high), said = (
        status.means["held"],
        status.excluded["held"],
        " ".join(str(status).split()),
    )
    assert (mean, share) == (30 / 32, 6 / 38)
    assert low < 30 / 38 < high
    assert "16 % of the sampled units were not scored (queue_full 6): the mean is of the rest" in said
    assert f"{low:.2f} at worst, {high:.2f} at best" in said
    assert "−16 % lost" in said


def test_where_no_unit_was_scored_a_status_tells_of_no_mean() -> None:
    with a_line(Failing(RuntimeError("no"))) as (scorer, _):
        run_rag(scorer)

        said = " ".join(str(scorer.status()).split())

    assert "failing: 100 % of the sampled units were not scored (metric_error 1): there is no mean" in said
    assert "the rest" not in said
