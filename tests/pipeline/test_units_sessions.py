"""Conversations: each is gathered whole and ended once."""

from __future__ import annotations

import pytest
from tests.pipeline.conversations import S, alone, history, said_in, table, taken, talk, thread, turn

from spanscore.core.sample import (
    AIMessage,
    HumanMessage,
    Image,
    MultiTurnSample,
    Samples,
    SingleTurnSample,
    ToolDefinition,
)
from spanscore.core.score import Outcome
from spanscore.core.span import Session, UnitKey
from spanscore.pipeline.sessions import SessionIds, session_key

GONE = "the conversation went on after its end, and its turns do not contain the earlier messages"
LOST = Samples(outcome=Outcome.QUEUE_FULL, reason="no place")
WAITS = "the last turn of the conversation was interrupted, and has not been resumed"
INTERRUPTED = Samples(outcome=Outcome.NO_SAMPLE, reason="it waits", interrupted=True)
FILTERED = Samples(outcome=Outcome.FILTERED, reason="the filter returned false")


def short(n):
    return alone(f"q{n}", f"a{n}")


def ends(result):
    return [(one.id, one.end, one.unit.session.turns, one.unit.revision) for one in result]


def test_a_conversation_whose_turns_bring_no_history_is_put_together():
    subject = table()

    taken(subject, turn(1, short(1)), turn(2, short(2)))
    ended = subject.end("talk")

    assert said_in(ended) == ["q1", "a1", "q2", "a2"]
    assert (ended.end, ended.unit.session.turns, ended.unit.revision, ended.why_incomplete) == ("explicit", 2, 0, None)
    assert ended.unit.session == Session(session_key("talk"), 2, "explicit", (UnitKey(1, 1), UnitKey(2, 2)))
    assert (ended.unit.key, ended.unit.ledger_key) == (UnitKey(2, 2), session_key("talk"))
    assert (subject.open, subject.bytes) == (0, 0)


def test_an_unknown_conversation_and_one_that_has_ended_cannot_be_ended():
    subject = table()
    taken(subject, turn(1, short(1)))
    subject.end("talk")

    assert (subject.end("talk"), subject.end("other")) == (None, None)


@pytest.mark.parametrize("said", [short, history])
@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1), (3, 1, 2)])
def test_turns_stand_in_the_order_in_which_they_ended_whenever_they_come(said, order):
    subject = table()

    taken(subject, *(turn(n, said(n)) for n in order))
    ended = subject.end("talk")

    assert said_in(ended) == ["q1", "a1", "q2", "a2", "q3", "a3"]
    assert ended.unit.session.links == (UnitKey(1, 1), UnitKey(2, 2), UnitKey(3, 3))
    assert ended.unit.root.span_id == 3


def test_histories_that_were_shortened_make_one_conversation_in_any_order():
    subject = table()
    windows = {n: thread(*talk(f"q{n - 1}", f"a{n - 1}", f"q{n}", f"a{n}")) for n in (2, 3, 4)}

    taken(subject, turn(3, windows[3]), turn(1, short(1)), turn(4, windows[4]), turn(2, windows[2]))

    assert said_in(subject.end("talk")) == [f"{who}{n}" for n in (1, 2, 3, 4) for who in "qa"]


def test_a_silent_conversation_ends_when_it_is_due():
    subject = table(idle_ns=5 * S)
    subject.take(turn(1, short(1), id="a"), 0)
    subject.take(turn(1, short(1), id="b"), 2 * S)
    subject.take(turn(2, short(2), id="a"), 4 * S)

    assert subject.next_due_ns() == 7 * S
    assert ends(subject.due(7 * S)) == [("b", "idle", 1, 0)]
    assert subject.next_due_ns() == 9 * S
    assert ends(subject.due(9 * S)) == [("a", "idle", 2, 0)]
    assert subject.next_due_ns() is None


def test_a_conversation_that_never_pauses_counts_once_and_is_scored_provisionally_before():
    result = taken(table(max_turns=7, score_every=3), *(turn(n, history(n)) for n in range(1, 8)))

    assert ends(result) == [("talk", "open", 3, 0), ("talk", "open", 6, 0), ("talk", "max_turns", 7, 0)]
    assert [len(said_in(one)) for one in result] == [6, 12, 14]


def test_the_provisional_score_of_a_last_turn_is_its_final_one():
    result = taken(table(max_turns=3, score_every=3), *(turn(n, short(n)) for n in (1, 2, 3)))

    assert ends(result) == [("talk", "max_turns", 3, 0)]


def test_of_too_many_conversations_those_end_that_were_silent_for_longest():
    subject = table(max_open=2)

    result = taken(subject, *(turn(n, short(n), id=id) for n, id in enumerate("abac")))

    assert ends(result) == [("b", "evicted", 1, 0)]
    assert subject.open == 2


def test_of_too_much_that_is_kept_the_oldest_goes():
    subject = table(max_bytes=30_000)

    result = taken(subject, *(turn(n, alone("q", "a" * 10_000), id=id) for n, id in enumerate("abc")))

    assert ends(result) == [("a", "evicted", 1, 0)]
    assert subject.bytes <= 30_000


def test_what_is_alone_too_much_ends_at_once():
    subject = table(max_bytes=30_000)

    result = taken(subject, turn(1, short(1), id="a"), turn(2, alone("q", "a" * 40_000), id="b"))

    assert ends(result) == [("a", "evicted", 1, 0), ("b", "evicted", 1, 0)]
    assert (subject.open, subject.bytes) == (0, 0)


def test_the_end_of_the_scorer_ends_every_conversation():
    subject = table()
    taken(subject, turn(1, short(1), id="a"), turn(2, short(1), id="b"))

    assert ends(subject.close_all()) == [("a", "shutdown", 1, 0), ("b", "shutdown", 1, 0)]
    assert (subject.open, subject.bytes) == (0, 0)


def test_a_conversation_that_goes_on_after_its_end_is_a_revision():
    subject = table()
    taken(subject, turn(1, short(1)), turn(2, history(2)))
    subject.end("talk")

    taken(subject, turn(3, history(3)))
    again = subject.end("talk")

    assert (again.unit.session.turns, again.unit.revision, again.why_incomplete) == (3, 1, None)
    assert (len(said_in(again)), again.unit.session.links) == (6, (UnitKey(3, 3),))


@pytest.mark.parametrize(
    "goes_on", [short(3), thread(*talk("q2", "a2", "q3", "a3")), thread(*talk("q1", "a1", "q3", "a3"))]
)
def test_a_revision_that_is_without_what_was_said_before_is_not_whole(goes_on):
    subject = table(score_every=1, max_turns=2)
    taken(subject, turn(1, short(1)), turn(2, short(2)))

    assert taken(subject, turn(3, goes_on)) == []
    assert subject.end("talk").why_incomplete == GONE


def test_a_revision_ends_after_as_many_turns_again():
    result = taken(table(max_turns=3, score_every=0), *(turn(n, history(n)) for n in range(1, 8)))

    assert ends(result) == [("talk", "max_turns", 3, 0), ("talk", "max_turns", 6, 1)]


def test_a_conversation_that_was_over_before_it_was_first_seen_is_not_counted_as_whole():
    result = taken(table(max_turns=3), turn(5, history(5)))

    assert ends(result) == [("talk", "max_turns", 5, 0)]
    assert "ended before" in result[0].why_incomplete


def test_a_turn_without_a_sample_is_missed():
    subject = table(score_every=3)

    result = taken(subject, turn(1, short(1)), turn(2, LOST), turn(3, short(3)))
    ended = subject.end("talk")

    assert (result, ended.why_incomplete, ended.unit.session.turns) == (
        [],
        "a turn of the conversation has no sample: queue_full",
        3,
    )


@pytest.mark.parametrize("order", [(1, 2, 3), (1, 3, 2), (3, 2, 1)])
def test_a_later_turn_that_brings_the_history_makes_up_for_one_without_a_sample(order):
    subject = table()
    said = {1: short(1), 2: LOST, 3: history(3)}

    taken(subject, *(turn(n, said[n]) for n in order))
    ended = subject.end("talk")

    assert (ended.why_incomplete, said_in(ended)) == (None, ["q1", "a1", "q2", "a2", "q3", "a3"])


@pytest.mark.parametrize("later", [history(2), LOST])
def test_an_earlier_history_does_not(later):
    subject = table()

    taken(subject, turn(1, short(1)), turn(2, later), turn(3, LOST))

    assert subject.end("talk").why_incomplete == "a turn of the conversation has no sample: queue_full"


def test_a_conversation_of_which_nothing_is_there_says_so():
    subject = table()

    taken(subject, turn(1, LOST))
    ended = subject.end("talk")

    assert (ended.samples.outcome, ended.why_incomplete is None) == (Outcome.INCOMPLETE, False)


def test_a_turn_that_was_interrupted_is_missed_until_it_is_resumed():
    subject = table()

    for id, said in (
        ("waits", [short(1), INTERRUPTED]),
        ("goes on", [INTERRUPTED, short(1)]),
        ("begins", [INTERRUPTED]),
    ):
        taken(subject, *(turn(n, one, id=id) for n, one in enumerate(said)))

    values = {one.id: (one.why_incomplete, one.samples.outcome) for one in subject.close_all()}
    assert values == {"waits": (WAITS, None), "goes on": (None, None), "begins": (WAITS, Outcome.INCOMPLETE)}


def test_a_turn_that_the_filter_left_out_is_not_missed():
    subject = table()

    taken(subject, turn(1, short(1)), turn(2, FILTERED), turn(3, short(3)))
    ended = subject.end("talk")

    assert (said_in(ended), ended.unit.session.turns, ended.why_incomplete) == (["q1", "a1", "q3", "a3"], 3, None)


def test_a_conversation_of_which_the_filter_left_out_each_turn_is_filtered():
    subject = table()

    taken(subject, turn(1, FILTERED))
    ended = subject.end("talk")

    assert (ended.samples.outcome, ended.why_incomplete) == (Outcome.FILTERED, None)


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1)])
def test_of_references_the_last_turn_that_gives_one_is_believed(order):
    subject = table()
    given = {
        1: Samples(
            single_turn=SingleTurnSample(user_input="q1", response="a1", reference="booked", rubrics={"1": "bad"})
        ),
        2: Samples(
            multi_turn=MultiTurnSample(user_input=talk("q2", "a2"), reference="paid", reference_topics=["travel"])
        ),
        3: short(3),
    }

    taken(subject, *(turn(n, given[n]) for n in order))
    whole = subject.end("talk").samples.multi_turn

    assert (whole.reference, whole.reference_topics, whole.rubrics) == ("paid", ["travel"], {"1": "bad"})


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_a_conversation_has_the_tools_of_all_turns_and_the_last_definition_of_each(order):
    subject = table()
    offered = {1: ["book v1", "search v1"], 2: ["book v2", "cancel v2"]}
    tools = {
        n: [ToolDefinition(name=name, description=version) for name, version in map(str.split, given)]
        for n, given in offered.items()
    }
    given = {n: MultiTurnSample(user_input=talk(f"q{n}", f"a{n}"), tools=tools[n]) for n in tools}

    taken(subject, *(turn(n, Samples(multi_turn=given[n])) for n in order))
    whole = subject.end("talk").samples.multi_turn

    found = {tool.name: tool.description for tool in whole.tools}
    assert found == {"book": "v2", "search": "v1", "cancel": "v2"}


def test_a_hundred_turns_at_most_are_linked():
    subject = table(max_turns=1_000)
    taken(subject, *(turn(n, short(n)) for n in range(1, 151)))

    ended = subject.end("talk")

    assert (ended.unit.session.turns, ended.unit.session.links) == (150, tuple(UnitKey(n, n) for n in range(51, 151)))


def test_the_key_of_a_conversation_is_the_same_in_every_process():
    assert session_key("talk") == UnitKey(0xCE7611E7481E75F085F6902050B40918, 0xB0E8374634EEB803)
    assert len({session_key(id) for id in ("a", "b", "ü", "\ud800")}) == 4


CAT, DOG = (Image(url=f"https://example.org/{name}.png") for name in ("cat", "dog"))


def asked(text: str, answer: str, *images: Image) -> Samples:
    return Samples.of(SingleTurnSample(user_input=text, response=answer, images=list(images) or None))


def test_turns_are_joined_with_their_images_under_new_numbers() -> None:
    turns = [
        turn(1, asked("What is [image 1]?", "A cat.", CAT)),
        turn(2, asked("And [image 1] as [image 2]?", "A dog.", DOG, CAT)),
    ]
    sessions = table()

    (ended,) = [*taken(sessions, *turns), *sessions.close_all()]

    assert said_in(ended) == ["What is [image 1]?", "A cat.", "And [image 2] as [image 1]?", "A dog."]
    assert ended.samples.multi_turn.images == [CAT, DOG]


def test_a_history_with_the_same_image_replaces_the_earlier_turn() -> None:
    messages = [
        HumanMessage(content="What is [image 2]?"),
        AIMessage(content="A cat."),
        HumanMessage(content="And [image 1]?"),
        AIMessage(content="A dog."),
    ]
    whole = Samples.of(MultiTurnSample(user_input=messages, images=[DOG, CAT]))
    sessions = table()

    (ended,) = [
        *taken(sessions, turn(1, asked("What is [image 1]?", "A cat.", CAT)), turn(2, whole)),
        *sessions.close_all(),
    ]

    assert said_in(ended) == ["What is [image 1]?", "A cat.", "And [image 2]?", "A dog."]
    assert ended.samples.multi_turn.images == [CAT, DOG]


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
