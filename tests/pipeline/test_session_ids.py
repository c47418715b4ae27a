"""Which conversations are open, as the application's threads know it."""

from __future__ import annotations

from spanscore.pipeline.sessions import SessionIds


def ids(most: int = 10) -> SessionIds:
    known = SessionIds(most)
    known.record_start("a", 1)
    return known


def test_one_is_ended_once() -> None:
    known = ids()

    assert [known.end("a"), known.end("a"), known.end("b")] == [True, False, False]


def test_a_turn_that_is_in_late_does_not_open_what_is_about_to_end() -> None:
    known = ids()
    known.end("a")
    known.record_arrival("a", 1)

    assert not known.end("a")


def test_a_turn_that_began_after_the_last_of_an_ended_one_is_of_the_next() -> None:
    known = ids()
    known.record_start("a", 5)
    known.record_end("a", 1)

    assert known.end("a")


def test_what_has_been_silent_for_too_long_is_open_no_more_until_a_turn_of_it_is_seen() -> None:
    known = ids()
    known.record_end("a", 1)
    was_open = known.end("a")
    known.record_arrival("a", 2)

    assert (was_open, known.end("a")) == (False, True)


def test_past_the_bound_the_oldest_is_forgotten() -> None:
    known = ids(most=2)
    known.record_start("b", 2)
    known.record_start("c", 3)

    assert [known.end(one) for one in "abc"] == [False, True, True]


def test_past_the_bound_a_conversation_with_a_new_turn_is_kept() -> None:
    known = ids(most=2)
    known.record_start("b", 2)
    known.record_start("a", 3)
    known.record_start("c", 4)

    assert [known.end(one) for one in "abc"] == [True, False, True]
