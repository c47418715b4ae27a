"""Conversations with turns in any of several processes: complete if that is known, else marked incomplete."""

import pytest
from tests.pipeline.conversations import S, alone, history, said_in, table, taken, talk, thread, turn

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
