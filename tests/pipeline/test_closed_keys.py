"""Units that are over are remembered by a hash, and forgotten in their order."""

from spanscore.pipeline.trace_index import ClosedKeys


def key(n):
    return n.to_bytes(16, "big")


def test_a_unit_is_remembered_by_its_trace_and_its_root():
    closed = ClosedKeys(10)
    closed.add(key(1), b"root")

    assert (closed.has_trace(key(1)), closed.has(key(1), b"root")) == (True, True)
    assert (closed.has(key(1), b"else"), closed.has(key(2), b"root"), closed.has_trace(key(2))) == (False, False, False)


def test_a_trace_may_have_many_units():
    closed = ClosedKeys(100)
    roots = [bytes([n]) for n in range(50)]
    for root in roots * 2:
        closed.add(key(1), root)

    assert all(closed.has(key(1), root) for root in roots)
    assert len(closed) == 50


def test_the_oldest_are_forgotten_first_and_never_more_than_an_eighth_above_the_bound_is_kept():
    closed = ClosedKeys(80)
    for n in range(1_000):
        closed.add(key(n), b"root")
        assert len(closed) <= 90

    remembered = [closed.has(key(n), b"root") for n in range(1_000)]
    assert remembered == sorted(remembered)
    assert 80 <= sum(remembered) <= 90


def test_a_trace_is_remembered_as_long_as_its_latest_unit():
    closed = ClosedKeys(80)
    for n in range(1_000):
        closed.add(key(n), b"root")
        closed.add(key(5_000), bytes([n % 256, n // 256]))

    assert closed.has(key(5_000), bytes([999 % 256, 999 // 256]))


def test_what_is_taken_back_is_no_longer_remembered_but_its_trace_is():
    closed = ClosedKeys(10)
    for root in (b"first", b"second"):
        closed.add(key(1), root)
        closed.discard(key(1), root)

        assert (closed.has(key(1), root), closed.has_trace(key(1))) == (False, True)
