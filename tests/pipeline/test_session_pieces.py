"""Conversations with turns in other processes: complete if that is known, else marked incomplete; others are whole."""

from __future__ import annotations

import pytest
from tests.pipeline.conversations import S, alone, history, said_in, table, taken, talk, thread, turn

from spanscore.pipeline.sessions import WHY_MOVED, WHY_RESUMED

SHARED = "other workers read it"


def from_stream(n, stream, samples=None, **more):
    return turn(n, samples or alone(f"q{n}", f"a{n}"), **more)._replace(stream=stream)


def whole(subject, id="talk"):
    return subject.end(id).why_incomplete


def test_while_turns_are_shared_and_for_the_idle_time_after_every_conversation_is_a_piece():
    subject = table(idle_ns=10 * S)
    taken(subject, turn(1, alone("q1", "a1"), id="before"))
    subject.mark_shared(SHARED, 2 * S)
    taken(subject, turn(3, alone("q1", "a1"), id="during"))
    subject.mark_shared("", 4 * S)
    taken(subject, turn(13, alone("q1", "a1"), id="soon"), turn(15, alone("q1", "a1"), id="later"))

    assert [whole(subject, id) is None for id in ("before", "during", "soon", "later")] == [False] * 3 + [True]


def test_a_conversation_is_a_piece_where_its_partition_was_another_workers_and_whole_in_the_others():
    subject = table(idle_ns=10 * S)
    subject.mark_read_elsewhere(1, 5 * S)
    taken(subject, from_stream(14, 1, id="taken over"), from_stream(14, 2, id="ours"), from_stream(16, 1, id="later"))

    assert [whole(subject, id) is None for id in ("taken over", "ours", "later")] == [False, True, True]


def test_what_a_turn_shows_holds_whatever_the_order_in_which_turns_come():
    subject = table(idle_ns=10 * S)
    subject.mark_read_elsewhere(1, 5 * S)
    taken(subject, from_stream(16, 1), from_stream(14, 1))

    assert whole(subject) is not None


def test_an_open_conversation_of_a_partition_that_goes_is_a_piece_and_no_other():
    subject = table()
    taken(subject, from_stream(1, 1, id="goes"), from_stream(1, 2, id="stays"))
    subject.mark_moved(1)

    assert (whole(subject, "goes"), whole(subject, "stays")) == (WHY_MOVED, None)


def test_a_history_that_was_not_read_here_shows_a_piece_if_conversations_begin_without():
    subject = table(idle_ns=S)
    subject.mark_read_elsewhere(1, 0)
    taken(subject, from_stream(11, 1, history(1), id="empty"), from_stream(12, 1, history(2), id="empty"))

    assert whole(subject, "empty") is None
    taken(subject, from_stream(13, 1, history(3), id="resumed"))
    taken(subject, from_stream(13, 2, history(3), id="alone"))
    assert (whole(subject, "resumed"), whole(subject, "alone")) == (WHY_RESUMED, None)


def test_examples_before_every_first_question_are_no_turns_of_others():
    subject = table(idle_ns=S)
    subject.mark_read_elsewhere(1, 0)
    for id in "ab":
        taken(subject, from_stream(13, 1, history(3), id=id))

    assert [whole(subject, id) for id in "ab"] == [None, None]


def test_a_piece_gets_no_provisional_score():
    subject = table(score_every=1)
    subject.mark_shared(SHARED, 0)

    assert taken(subject, turn(1, alone("q1", "a1")), turn(2, alone("q2", "a2"))) == []


def test_where_replicas_are_any_a_brought_history_counts_as_before():
    subject = table(replicas="any")
    taken(subject, turn(2, history(2), id="other"))
    subject.mark_read_elsewhere(None, 100 * S)

    taken(subject, turn(2, history(2)))

    assert whole(subject) is None


LEFT = "turns go to several replicas: only end_session or max_turns ends a whole conversation"
PART = "turns go to several replicas, and the last one here did not contain the whole conversation"


def one_of_several(**bounds):
    """Return a table that has seen another conversation, with turns that brought their history along."""
    subject = table(replicas="any", **bounds)
    taken(subject, turn(2, history(2), id="other"))
    subject.end("other")
    return subject


def short(n):
    return alone(f"q{n}", f"a{n}")


def window(n):
    return thread(*talk(f"q{n - 1}", f"a{n - 1}", f"q{n}", f"a{n}"))


@pytest.mark.parametrize("seen", [(1, 2, 3), (1, 3), (2, 3), (3,), (3, 1)])
def test_a_conversation_ends_whole_where_its_last_turn_brought_it_along(seen):
    subject = one_of_several()

    taken(subject, *(turn(n, history(n)) for n in seen))
    ended = subject.end("talk")

    assert (ended.why_incomplete, ended.unit.session.turns, len(said_in(ended))) == (None, 3, 6)


def test_a_conversation_of_one_turn_is_whole_where_the_application_brings_histories():
    subject, knows_nothing = one_of_several(), table(replicas="any")

    for one in (subject, knows_nothing):
        taken(one, turn(1, history(1)))

    assert (subject.end("talk").why_incomplete, knows_nothing.end("talk").why_incomplete) == (None, PART)


def test_without_histories_no_conversation_is_whole():
    subject = table(replicas="any")

    taken(subject, turn(1, short(1)), turn(4, short(4)))

    assert subject.end("talk").why_incomplete == PART


def test_an_application_that_once_shortened_a_history_is_not_believed():
    subject = table(replicas="any")
    taken(subject, turn(1, short(1), id="a"), turn(2, window(2), id="a"), turn(3, window(3), id="a"))

    taken(subject, turn(9, window(9)))

    assert subject.end("talk").why_incomplete == PART


def test_a_history_with_another_answer_says_nothing_of_other_conversations():
    subject = one_of_several()
    edited = thread(*talk("q1", "something else", "q2", "a2"))
    taken(subject, turn(1, short(1), id="a"), turn(2, edited, id="a"))

    taken(subject, turn(2, history(2)))

    assert (subject.end("a").why_incomplete, subject.end("talk").why_incomplete) == (PART, None)


def test_no_silence_ends_a_conversation_and_no_score_is_provisional():
    subject = one_of_several(idle_ns=S, score_every=1)

    assert taken(subject, turn(2, history(2))) == []
    assert (subject.next_due_ns(), subject.due(1_000 * S)) == (None, [])


def test_the_process_that_gets_the_last_turn_allowed_ends_the_conversation_and_the_others_do_not():
    first, second = one_of_several(max_turns=3), one_of_several(max_turns=3)

    result = taken(first, turn(1, history(1)), turn(3, history(3)))
    remote_scoring = taken(second, turn(2, history(2)), turn(4, history(4)))

    assert [(one.end, one.why_incomplete) for one in result] == [("max_turns", None)]
    assert [one.end for one in remote_scoring] == ["max_turns"]
    assert "ended before" in remote_scoring[0].why_incomplete


def test_turns_that_bring_no_history_end_too_but_not_whole():
    result = taken(one_of_several(max_turns=3), *(turn(n, short(n)) for n in (1, 4, 6)))

    assert [(one.end, one.unit.session.turns, one.why_incomplete) for one in result] == [("max_turns", 3, PART)]


def test_what_is_left_over_is_incomplete():
    subject = one_of_several(max_open=1)

    evicted = taken(subject, turn(2, history(2), id="a"), turn(2, history(2), id="b"))

    assert [(one.end, one.why_incomplete) for one in [*evicted, *subject.close_all()]] == [
        ("evicted", LEFT),
        ("shutdown", LEFT),
    ]


def test_with_sticky_routing_all_is_as_with_one_process():
    subject = table(replicas="sticky", idle_ns=S)
    taken(subject, turn(1, short(1)), turn(2, short(2)))

    assert [(one.end, one.why_incomplete) for one in subject.due(S)] == [("idle", None)]
