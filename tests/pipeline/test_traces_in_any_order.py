"""A thousand random traces, in any order: no span is lost or reported twice."""

from collections import Counter
from random import Random

import pytest
from tests.pipeline.wire_spans import wire_span

from spanscore.pipeline.trace_index import Bounds
from spanscore.pipeline.traces import TraceTable

S = 1_000_000_000
BATCHES = range(20)
TRACES = 50  # of a batch


def spans_of(rng, trace):
    """Return a trace as it happened: each span below one before it, or a root; and which of them are claimed."""
    ids = rng.sample(range(1, 10_000), rng.randint(1, 15))
    above = [None, *(rng.choice([*ids[:n]] * 4 + [None]) for n in range(1, len(ids)))]
    spans = [
        wire_span(
            span_id,
            parent or rng.choice([None, 99_999]),
            trace=trace,
            remote=parent is None,
            size=rng.randint(1, 500),
        )
        for span_id, parent in zip(ids, above, strict=True)
    ]
    return [(one, rng.random() < 0.7) for one in spans]


def units_in(spans):
    """Return the units of whole traces: topmost claimed span → all claimed spans below it."""
    of = {(one.trace_id, one.span_id): (one, claimed) for one, claimed in spans}
    units = {}
    for one, claimed in spans:
        top, at = one, (one, claimed)
        while at is not None:
            top = at[0] if at[1] else top
            at = None if at[0].parent_is_remote else of.get((at[0].trace_id, at[0].parent_id))
        if claimed:
            units.setdefault((top.trace_id, top.span_id), set()).add(one.span_id)
    return units


def plain_units(closed):
    return {(unit.root.trace_id, unit.root.span_id): {one.span_id for one in unit.spans} for unit in closed}


def table(**bounds):
    return TraceTable(Bounds(**bounds), follows=lambda root: True, is_unit_root=lambda top: top.span_id[-1] % 2 == 0)


def damaged(rng, spans):
    """Lose some, cut some off, close circles, send some twice."""
    for one, claimed in spans:
        fate = rng.random()
        parents = {0.05: one.span_id, 0.15: rng.choice(spans)[0].span_id, 0.2: rng.randbytes(8)}
        parent_id = next((parent_id for below, parent_id in parents.items() if fate < below), None)
        sent = one if parent_id is None else one._replace(parent_id=parent_id, parent_is_remote=False)
        yield from [(sent, claimed)] * (0 if 0.2 < fate < 0.3 else 2 if fate > 0.9 else 1)


def fed(subject, spans, *, rng, spread_ns, step_ns=S):
    """Feed spans at random times; return the closed units in order."""
    arrivals = sorted((rng.randrange(spread_ns), n) for n in range(len(spans)))
    closed, tick = [], 0
    for at, n in arrivals:
        while tick < at:
            closed += subject.due(tick)
            tick += step_ns
        subject.add(spans[n][0], claimed=spans[n][1], now_ns=at)
    return closed


@pytest.mark.parametrize("seed", BATCHES)
def test_whole_traces_make_the_same_units_in_any_order(seed):
    rng = Random(seed)
    spans = [one for trace in range(1, TRACES + 1) for one in spans_of(rng, trace)]
    subject = table()

    closed = fed(subject, spans, rng=rng, spread_ns=2 * S) + subject.due(4 * S)

    assert plain_units(closed) == units_in(spans)
    assert {unit.outcome for unit in closed} == {None}
    assert (subject.open, subject.bytes, subject.late, subject.orphans) == (0, 0, 0, 0)


@pytest.mark.parametrize("late", ["count", "rescore"])
@pytest.mark.parametrize("seed", BATCHES)
def test_whatever_comes_each_unit_is_reported_once_per_revision(seed, late):
    rng = Random(seed)
    subject = table(late=late, max_spans=12, max_age_ns=120 * S)

    closed = fed_with_damage(subject, rng)

    counts = Counter((unit.key, unit.revision) for unit in closed)
    assert set(counts.values()) == {1}
    assert all((key, revision - 1) in counts for key, revision in counts if revision)
    assert (subject.open, subject.bytes, subject.waiting_for_root, subject.unreturned_keys()) == (0, 0, 0, set())


@pytest.mark.parametrize("seed", BATCHES)
def test_each_claimed_span_is_of_a_unit_an_orphan_late_or_a_duplicate(seed):
    rng = Random(seed)
    subject = table(max_spans=12, max_age_ns=120 * S)

    closed = fed_with_damage(subject, rng, all_claimed=True)

    in_units = sum(len(unit.spans) for unit in closed)
    assert in_units + subject.orphans + subject.late + subject.duplicates == subject.added
    assert len({one for unit in closed for one in unit.spans}) == in_units


def fed_with_damage(subject, rng, *, all_claimed=False):
    spans = [one for trace in range(1, TRACES + 1) for one in damaged(rng, spans_of(rng, trace))]
    spans = [(one, claimed or all_claimed) for one, claimed in spans]
    subject.added = len(spans)
    closed = fed(subject, spans, rng=rng, spread_ns=rng.choice([3 * S, 30 * S, 300 * S]))
    return closed + rng.choice([subject.close_all, subject.due])(1_000 * S)
