"""``spanscore spool``: the waiting jobs, their owners, and the dead letters; never their content."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from time import time_ns

from tests.durable.asked import Asked, key
from tests.durable.other import other
from typer.testing import CliRunner, Result

from spanscore.cli.main import app


def shown(path: Path, *options: str) -> Result:
    return CliRunner().invoke(app("spool"), ["spool", str(path), *options])


def test_it_tells_what_waits_and_who_holds_it_and_no_content(tmp_path: Path) -> None:
    one = Asked(tmp_path / "spool.db")
    for number in range(3):
        one.put(number, b"a secret question", own=number == 0)
    one.begin(0)

    document, page = json.loads(shown(one.file.path, "--json").stdout), shown(one.file.path).stdout
    one.file.close(10)

    (owner,) = document["owners"]
    assert (document["depth"], document["dead_letters"]) == (3, [])
    assert (owner["pid"], owner["rows"], owner["in_work"], owner["has_ended"]) == (os.getpid(), 1, 1, False)
    assert page.startswith("3 wait or are being scored, the oldest for ")
    assert "secret" not in page


def test_waiting_units_are_shown_by_metric_with_their_age(tmp_path: Path) -> None:
    now = [time_ns() - 7_200 * 10**9]
    one = Asked(tmp_path / "spool.db", wall_ns=lambda: now[0])
    one.put(1, metrics='["polite", "tone"]')
    now[0] += 3_600 * 10**9
    one.put(2, metrics='["polite"]')
    one.put(3, metrics='["tone"]', own=True)

    rows, page = json.loads(shown(one.file.path, "--json").stdout)["waiting"], shown(one.file.path).stdout
    one.file.close(10)

    assert [(row["metric"], row["units"], round(row["oldest_s"], -1)) for row in rows] == [
        ("polite", 2, 7_200),
        ("tone", 1, 7_200),
    ]
    assert re.search(r"polite\W+2\W+2 h", page)


def test_dead_letters_is_reported_by_its_ids_and_tried_again_when_asked_to(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    poisoned(path)

    before = json.loads(shown(path, "--json").stdout)["dead_letters"]
    page, again = shown(path).stdout, shown(path, "--retry-dead-letters").stdout

    assert [(row["trace_id"], row["span_id"], row["crashes"]) for row in before] == [(f"{1:032x}", f"{2:016x}", 3)]
    assert re.search(f"trace {1:032x}  span {2:016x}  .* old  3 crashes", page)
    assert again.startswith("1 will be tried again\n1 wait or are being scored")
    assert Asked(path).taken() == [1]


def test_what_cannot_be_read_is_reported_as_that(tmp_path: Path) -> None:
    one = Asked(tmp_path / "spool.db")
    one.put(1, own=True)
    one.file.put_aside([key(1)])
    one.file.close(10)

    output = shown(one.file.path).stdout

    assert "1 dead letters" in output
    assert "could not be read" in output


def test_a_row_that_cannot_be_read_after_a_crash_is_not_reported_as_crashes_alone(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    Asked(path).put(1)
    with other(path) as crashing:
        crashing.ask("taken")
        crashing.ask("begin", 1)
    one = Asked(path)
    one.take()
    one.file.put_aside([key(1)])
    one.file.close(10)

    assert re.search(r"old  could not be read \(crashes: 1\)", shown(path).stdout)


def test_what_is_older_is_deleted_unless_a_running_process_holds_it(tmp_path: Path) -> None:
    now = [0]
    one = Asked(tmp_path / "spool.db", wall_ns=lambda: now[0])
    one.put(1)
    one.put(2, own=True)

    result = shown(one.file.path, "--drop-older-than", "7d")
    document = json.loads(shown(one.file.path, "--drop-older-than", "7d", "--json").stdout)
    held = one.keep(2)
    one.file.close(10)

    assert result.stdout.startswith("1 older than 7 d deleted\n1 wait or are being scored")
    assert (document["depth"], document["notes"]) == (1, ["0 older than 7 d deleted"])
    assert held is True


def test_where_there_is_no_spool_nothing_is_made(tmp_path: Path) -> None:
    result = shown(tmp_path / "spool.db")

    assert str(result.exception) == f"{tmp_path / 'spool.db'} is not a spool: there is no such file"
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_spool_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    path.write_text("something else, and longer than the header of a database is: " * 10)

    result = shown(path, "--drop-older-than", "1s")

    assert str(result.exception) == f"{path} cannot be read: it is not a spool, or it is damaged"
    assert path.read_text().startswith("something else")


def poisoned(path: Path) -> None:
    Asked(path).put(1)
    for _ in range(3):
        with other(path) as crashing:
            crashing.ask("taken")
            crashing.ask("begin", 1)
    last = Asked(path)
    last.take(ended_only=True)
    last.done(1)
    last.file.close(10)
