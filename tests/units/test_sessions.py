"""Conversations: each is gathered whole and ended once."""

from tests.units.conversations import S, alone, said_in, table, taken, talk, thread, turn

from spanscore.model.span import Session, UnitKey
from spanscore.units.sessions import session_key


def test_a_conversation_whose_turns_bring_no_history_is_put_together():
    subject = table()

    taken(subject, turn(1, alone("q1", "a1")), turn(2, alone("q2", "a2")))
    ended = subject.end("talk", 0)

    assert said_in(ended) == ["q1", "a1", "q2", "a2"]
    assert (ended.end, ended.turns, ended.revision, ended.whole) == ("explicit", 2, 0, None)
    assert ended.unit.session == Session(session_key("talk"), 2, "explicit", (UnitKey(1, 1), UnitKey(2, 2)))
    assert (ended.unit.key, ended.unit.ledger_key) == (UnitKey(2, 2), session_key("talk"))
    assert subject.end("talk", 0) is None
    assert (subject.open, subject.bytes) == (0, 0)


def test_a_turn_that_brings_the_history_replaces_what_was_gathered():
    subject = table()

    taken(subject, turn(1, alone("q1", "a1")), turn(2, thread(*talk("q1", "a1", "q2", "a2"))))

    assert said_in(subject.end("talk", 0)) == ["q1", "a1", "q2", "a2"]


def test_a_silent_conversation_ends_when_it_is_due():
    subject = table(idle_ns=5 * S)
    subject.take(turn(1, alone("q1", "a1"), id="a"), 0)
    subject.take(turn(2, alone("q1", "a1"), id="b"), 2 * S)

    assert subject.next_due_ns() == 5 * S
    assert [(one.id, one.end) for one in subject.due(5 * S)] == [("a", "idle")]
    assert subject.next_due_ns() == 7 * S


def test_a_conversation_that_never_pauses_ends_with_its_last_turn_that_is_allowed():
    subject = table(max_turns=3, score_every=2)

    ended = taken(subject, *(turn(n, alone(f"q{n}", f"a{n}")) for n in range(1, 6)))

    assert [(one.end, one.turns, one.revision) for one in ended] == [("open", 2, 0), ("max_turns", 3, 0)]
