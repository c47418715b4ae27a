"""Conversations with turns in other processes, according to the source of turns: each is incomplete, others are whole."""

from tests.pipeline.conversations import S, alone, history, table, taken, turn

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
