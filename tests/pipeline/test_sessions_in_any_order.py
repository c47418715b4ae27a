"""Random conversations, turns in any order: each is counted once, each turn is in one place, and no bound is passed."""

from collections import Counter
from random import Random

import pytest
from tests.pipeline.conversations import S, alone, history, said_in, table, talk, thread, turn

from spanscore.core.sample import Samples
from spanscore.core.score import Outcome

BATCHES = range(12)
TALKS = 25  # of a batch
LOST = Samples(outcome=Outcome.QUEUE_FULL, reason="no place")


def short(n):
    return alone(f"q{n}", f"a{n}")


def window(n):
    first = max(1, n - 2)
    return thread(*talk(*(f"{who}{at}" for at in range(first, n + 1) for who in "qa")))


def turns_of(rng, id):
    """Return the turns of a conversation with the times at which they come, not always in their order."""
    brings, clock = rng.choice([short, history, window]), rng.randrange(200 * S)
    lost = 0.2 * (brings is not window and rng.random() < 0.5)
    for n in range(1, rng.choice([1, 3, 8, 20]) + 1):
        clock += rng.choice([S, 10 * S, 40 * S])
        said = LOST if rng.random() < lost else brings(n)
        yield clock + rng.choice([0, 0, 15 * S]), turn(n, said, id=id, name=brings.__name__)


def ended_sessions(subject, rng, turns):
    """Feed turns; return all reports on them, in order. The bounds hold at any time."""
    result, bounds = [], subject.bounds
    for now_ns, one in sorted(turns, key=lambda coming: coming[0]):
        result += subject.due(now_ns)
        result += subject.take(one, now_ns)
        if rng.random() < 0.05:
            result += filter(None, [subject.end(one.id)])
        assert subject.open <= bounds.max_open
        assert subject.bytes <= bounds.max_bytes
        assert (subject.next_due_ns() or now_ns + 1) > now_ns
    return result + subject.close_all()


def a_batch(seed, replicas="one"):
    rng = Random(seed)
    turns = [one for n in range(TALKS) for one in turns_of(rng, f"talk-{n}")]
    subject = table(
        idle_ns=rng.choice([30, 300]) * S,
        max_turns=rng.choice([5, 50]),
        max_open=rng.choice([5, 1_000]),
        max_bytes=rng.choice([30_000, 10_000_000]),
        score_every=rng.choice([0, 4]),
        replicas=replicas,
    )
    report = ended_sessions(subject, rng, turns)
    assert (subject.open, subject.bytes) == (0, 0)
    return [one for _, one in turns], report


@pytest.mark.parametrize("replicas", ["one", "any"])
@pytest.mark.parametrize("seed", BATCHES)
def test_each_conversation_is_counted_once_and_what_follows_are_its_revisions(seed, replicas):
    turns, result = a_batch(seed, replicas)

    ended = Counter((one.id, one.unit.revision) for one in result if one.end != "open")
    assert set(ended.values()) == {1}
    assert {id for id, revision in ended if revision == 0} == {one.id for one in turns}
    assert all((id, revision - 1) in ended for id, revision in ended if revision)


@pytest.mark.parametrize("replicas", ["one", "any"])
@pytest.mark.parametrize("seed", BATCHES)
def test_each_turn_is_of_one_end_of_its_conversation(seed, replicas):
    turns, result = a_batch(seed, replicas)

    linked = Counter((one.id, unit) for one in result if one.end != "open" for unit in one.unit.session.links)
    assert linked == Counter((one.id, one.unit) for one in turns)


@pytest.mark.parametrize("replicas", ["one", "any"])
@pytest.mark.parametrize("seed", BATCHES)
def test_no_message_is_in_a_conversation_twice_and_all_stand_in_order(seed, replicas):
    _, result = a_batch(seed, replicas)

    for one in result:
        said = [int(text[1:]) for text in said_in(one)] if one.samples.multi_turn else []
        assert said == sorted(said)
        assert set(Counter(said).values()) <= {2}


@pytest.mark.parametrize("seed", BATCHES)
def test_what_is_reported_to_be_whole_has_every_turn_from_the_first_on(seed):
    turns, result = a_batch(seed)
    came = {}
    for one in result:
        before = came.setdefault(one.id, set())
        now = before | {unit.span_id for unit in one.unit.session.links}
        came[one.id] = before if one.end == "open" else now
        said = {int(text[1:]) for text in said_in(one)} if one.samples.multi_turn else set()
        lost = {n.unit.span_id for n in turns if n.id == one.id and n.samples.outcome}
        if one.why_incomplete is None:
            assert said >= now
        else:
            assert one.unit.revision or lost & now
