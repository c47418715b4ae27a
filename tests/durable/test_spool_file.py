"""A spool keeps a row until it is done, and one process owns each row at a time."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from tests.durable.asked import key

from spanscore.durable.rows import PutResult, RowKey
from spanscore.durable.spool import inspect_spool
from spanscore.durable.spool_writer import make_tables


def test_what_was_put_is_taken_in_its_order_by_one(spool):
    one, other = spool(), spool()

    assert [one.put(number) for number in (3, 1, 2)] == [PutResult.KEPT] * 3

    assert one.taken(2) == [3, 1]
    assert other.taken() == [2]


def test_a_row_comes_out_as_it_was_put(spool):
    one = spool(wall_ns=lambda: 1_000)
    one.put(7, b"\x00body")

    (row,) = one.take()

    assert row == (key(7), b"\x00body", None, 0, None, "", False, False)


def test_a_key_is_kept_once(spool):
    one = spool()

    assert [one.put(1), one.put(1)] == [PutResult.KEPT, PutResult.KNOWN]
    assert one.taken() == [1]


def test_a_key_survives_its_form_on_the_disk():
    largest = RowKey(2**128 - 1, 2**64 - 1, 2**32 - 1, "copy")

    assert RowKey.from_bytes(largest.to_bytes()) == largest


def test_what_is_put_as_ones_own_is_not_taken_by_another_before_it_is_given_back(spool):
    one, other = spool(), spool()
    one.put(1, own=True)

    before = other.taken()
    one.give_back(1)

    assert (before, other.taken()) == ([], [1])


def test_rows_of_another_kind_are_left_alone(spool):
    one = spool()
    one.put(1)

    assert one.take(kind="copy") == []


def test_a_row_whose_scores_are_exported_is_in_no_figure_and_is_taken_as_such(spool, path):
    one, other = spool(), spool()
    one.put(1, own=True)
    one.keep(1)
    one.mark_sent(1)
    state = inspect_spool(path).state
    one.give_back(1)

    (row,) = other.take()

    assert (state.depth, row.sent, row.counted, row.scores) == (0, True, False, b"scores")


def test_a_file_that_is_half_full_keeps_no_row_whose_scores_are_exported(spool):
    one = spool(max_bytes=200_000)
    for number in (1, 2):
        one.put(number, b"x" * 60_000, own=True)
    one.mark_sent(1)
    one.give_back(1)

    assert (one.taken(), one.put(1)) == ([], PutResult.DONE)


def test_a_file_of_an_earlier_version_is_extended(spool, path):
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        make_tables(file)
        file.execute("DROP INDEX sent")
        file.execute("ALTER TABLE rows DROP COLUMN sent")

    one = spool()

    assert (one.put(1), [row.sent for row in one.take()]) == (PutResult.KEPT, [False])


def test_what_is_done_is_gone(spool):
    one, other = spool(), spool()
    one.put(1, own=True)

    one.done(1)

    one.file.close(10)
    assert other.taken() == []
    assert other.file.state().depth == 0


def test_what_was_not_done_is_there_after_the_process_that_put_it(spool):
    one = spool()
    one.put(1, own=True)
    one.keep(1, b"0.5")

    one.file.close(10)

    assert [(row.key, row.scores) for row in spool().take()] == [(key(1), b"0.5")]


def test_after_its_end_a_spool_says_that_it_is_closed(spool):
    one = spool()
    one.file.close(10)

    assert one.put_result(1) == (PutResult.FAILED, "spool: closed")
    assert one.file.room(1) == "spool: closed"


def test_messages_of_sinks_are_counted_apart_from_units(spool, path):
    spool().put(1)
    for number in (1, 2):
        spool().put(number, kind="webhook")
    state = inspect_spool(path).state

    assert (state.depth, state.messages) == (1, {"webhook": 2})
