"""A stream's clock runs while the stream is read, never faster than ours, and never past the times in its log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanscore.capture.otlp.streams import StreamClock

SECOND = 1_000_000_000
START = 1_000 * SECOND


def test_it_runs_while_there_is_nothing_more_to_read() -> None:
    clock = StreamClock(START)

    assert clock.now_ns(START + 3 * SECOND) == START + 3 * SECOND


def test_a_backlog_does_not_grow_old_faster_than_we_do() -> None:
    clock = StreamClock(START)

    clock.read(0, START)
    clock.read(3_600 * SECOND, START + SECOND)

    assert clock.now_ns(START + 2 * SECOND) == START + 2 * SECOND


def test_a_slow_reader_sees_no_more_pass_than_the_log_tells() -> None:
    clock = StreamClock(START)

    clock.read(0, START)
    clock.read(SECOND, START + 60 * SECOND)

    assert clock.now_ns(START + 90 * SECOND) == START + SECOND


@pytest.mark.parametrize("off_s", [300, -300, -3_600], ids=["five minutes ahead", "behind", "an hour back"])
def test_a_log_whose_times_jump_closes_nothing_early(off_s: int) -> None:
    """Brokers, or writers if the times are theirs, may have wrong clocks."""
    clock = StreamClock(START)
    clock.read(7_200 * SECOND, START)

    clock.read((7_200 + off_s) * SECOND, START + SECOND)
    clock.reach_end(START + SECOND)

    assert clock.now_ns(START + SECOND) <= START + SECOND
    assert clock.now_ns(START + 4 * SECOND) - clock.now_ns(START + SECOND) == 3 * SECOND


def test_it_stands_while_nobody_reads() -> None:
    clock = StreamClock(START)
    clock.stop(START + SECOND)

    assert clock.now_ns(START + 600 * SECOND) == START + SECOND
    clock.go(START + 600 * SECOND)
    assert clock.now_ns(START + 601 * SECOND) == START + 2 * SECOND


def test_it_says_when_it_will_be_a_time_if_nothing_more_is_read() -> None:
    clock = StreamClock(START)

    assert clock.monotonic_ns_at(START + 2 * SECOND) == START + 2 * SECOND
    clock.read(0, START + SECOND)
    assert clock.monotonic_ns_at(START + 2 * SECOND) is None
    clock.reach_end(START + SECOND)
    clock.stop(START + SECOND)
    assert clock.monotonic_ns_at(START + 2 * SECOND) is None


@given(
    st.lists(st.tuples(st.sampled_from(["read", "end", "stop", "go"]), st.integers(0, 5), st.integers(-300, 300))),
)
def test_it_never_goes_back_and_never_runs_ahead(steps: list[tuple[str, int, int]]) -> None:
    clock, steady, reading = StreamClock(START), START, START
    for what, later, log in steps:
        steady += later * SECOND
        _do(clock, what, START + log * SECOND, steady)
        before, reading = reading, clock.now_ns(steady)
        assert before <= reading <= steady


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 300)), min_size=1), st.booleans(), st.integers(1, 20))
def test_what_it_says_of_a_time_to_come_is_so(reads: list[tuple[int, int]], at_end: bool, ahead: int) -> None:
    clock, steady = StreamClock(START), START
    for later, log in reads:
        steady += later * SECOND
        clock.read(log * SECOND, steady)
    if at_end:
        clock.reach_end(steady)

    wanted = clock.now_ns(steady) + ahead
    at = clock.monotonic_ns_at(wanted)

    assert clock.now_ns(at) == wanted if at is not None else clock.now_ns(steady + 10**15) < wanted


def _do(clock: StreamClock, what: str, log_ns: int, steady_ns: int) -> None:
    if what == "read":
        clock.read(log_ns, steady_ns)
    else:
        {"end": clock.reach_end, "stop": clock.stop, "go": clock.go}[what](steady_ns)
