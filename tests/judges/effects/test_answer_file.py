"""Answers outlive the process, several processes share them, and whatever becomes of the file costs no score."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.judges.models import QUESTION, Answers
from tests.pipeline.virtual_time import now_s, run

from spanscore.core.prompt import Reply
from spanscore.errors import ConfigurationError
from spanscore.judges import judge
from spanscore.judges.effects.cache import FileAnswers, file_answers

GOOD = '{"verdict": 1}'
PAID = Reply(text=GOOD, model="m-1", input_tokens=9, cost_usd=0.5, finish="stop")
KEPT = Reply(text=GOOD, model="m-1", duration_s=0.0, cost_usd=0.0, finish="stop", cached=True)


def patient(path: Path) -> FileAnswers:
    return FileAnswers(path, looking_s=60.0)


async def found(store: FileAnswers, key: bytes = b"") -> Reply | None:
    """Return the stored answers after all writes: at the first or the second look."""
    await store.find(key)
    return await store.find(key)


async def test_an_answer_is_there_when_the_file_is_opened_again(tmp_path: Path) -> None:
    store = patient(tmp_path / "a.sqlite")
    store.keep(b"key", PAID)
    await found(store)

    assert await patient(tmp_path / "a.sqlite").find(b"key") == KEPT


async def test_a_price_that_was_not_known_stays_unknown(tmp_path: Path) -> None:
    store = patient(tmp_path / "a.sqlite")

    store.keep(b"key", replace(PAID, cost_usd=None))

    assert await found(store, b"key") == replace(KEPT, cost_usd=None)


async def test_a_judge_with_a_file_asks_what_is_not_in_it(tmp_path: Path) -> None:
    inner, store = Answers(GOOD), patient(tmp_path / "a.sqlite")
    cached = judge(inner, cache=store)

    await cached.ask(QUESTION)
    await found(store)
    replies = [await cached.ask(QUESTION), await cached.ask(replace(QUESTION, vote_index=1))]

    assert ([reply.cached for reply in replies], len(inner.asked)) == ([True, False], 2)


async def test_an_answer_is_on_the_disk_before_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"

    await judge(Answers(GOOD), cache=patient(path)).ask(QUESTION)

    assert sqlite3.connect(path).execute("SELECT count(*) FROM answers").fetchone() == (1,)


def test_judges_with_one_path_share_what_is_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert file_answers("a.sqlite") is file_answers(tmp_path / "a.sqlite")


async def test_what_is_looked_up_in_one_turn_of_the_loop_is_reported_in_one(tmp_path: Path) -> None:
    store, turns = patient(tmp_path / "a.sqlite"), list[int]()
    turn = 0

    async def look(key: bytes) -> None:
        await store.find(key)
        turns.append(turn)

    tasks = [asyncio.ensure_future(look(bytes([key]))) for key in range(3)]
    while not all(task.done() for task in tasks):
        turn += 1
        await asyncio.sleep(0)

    assert len(set(turns)) == 1


async def test_the_file_is_its_owners_alone_and_holds_no_question(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.touch(0o644)
    store = patient(path)

    await judge(Answers(GOOD), cache=store).ask(QUESTION)
    await found(store)

    files = sorted(tmp_path.iterdir())  # noqa: ASYNC240  (a test's own)
    assert [file.name for file in files] == ["a.sqlite", "a.sqlite-shm", "a.sqlite-wal"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert b"Good morning" not in b"".join(file.read_bytes() for file in files)


def test_several_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    script = (
        "import asyncio, sys; from pathlib import Path; from spanscore.judges.effects.cache import FileAnswers\n"
        "from spanscore.core.prompt import Reply\n"
        "async def main():\n"
        "    store = FileAnswers(Path(sys.argv[1]), looking_s=60.0)\n"
        "    for number in range(50):\n"
        "        store.keep(f'{sys.argv[2]}/{number}'.encode(), Reply(text='said'))\n"
        "        while await store.find(f'{sys.argv[2]}/{number}'.encode()) is None: pass\n"
        "asyncio.run(main())"
    )
    children = [subprocess.Popen([sys.executable, "-c", script, str(path), name]) for name in "abcd"]

    assert [child.wait(60) for child in children] == [0] * 4
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM answers").fetchone() == (200,)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none/a.sqlite", "^cache: .* cannot be written: No such file"),
        ("", "^cache: .* cannot be written"),
        ("text", "is not a database"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "text").write_text("These are my notes of the day." * 100)

    with pytest.raises(ConfigurationError, match=why):
        judge(Answers(GOOD), cache=str(tmp_path / name))


@pytest.mark.parametrize(
    ("statement", "why"),
    [("PRAGMA user_version=2", "of a newer version of spanscore"), ("PRAGMA application_id=1", "of another program")],
)
def test_a_file_of_another_version_or_program_is_refused_and_left_alone(
    tmp_path: Path, statement: str, why: str
) -> None:
    path = tmp_path / "a.sqlite"
    FileAnswers(path)
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.close()
    path.chmod(0o640)

    with pytest.raises(ConfigurationError, match=why):
        FileAnswers(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("damage", ["gone", "rubbish", "locked"])
async def test_whatever_becomes_of_the_file_every_question_is_answered(tmp_path: Path, damage: str) -> None:
    path, inner = tmp_path / "a.sqlite", Answers(GOOD)
    cached = judge(inner, cache=path)
    holder = sqlite3.connect(path, isolation_level=None)
    if damage == "gone":
        path.unlink()
        (path.parent / "a.sqlite").mkdir()
    elif damage == "rubbish":
        path.write_bytes(b"rubbish" * 10_000)
    else:
        holder.execute("PRAGMA locking_mode=EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")

    replies = [await cached.ask(replace(QUESTION, vote_index=vote)) for vote in range(3)]
    holder.close()

    assert [reply.text for reply in replies] == [GOOD] * 3


def test_a_disk_that_hangs_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, released = FileAnswers(tmp_path / "a.sqlite", looking_s=0.5), threading.Event()
    monkeypatch.setattr(sqlite3, "connect", lambda *_, **__: released.wait(10))

    async def look() -> tuple[list[Any], float]:
        return [await store.find(b"key") for _ in range(100)], now_s()

    assert run(look()) == ([None] * 100, 0.5)
    released.set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_a_thread_and_a_connection_of_its_own(tmp_path: Path) -> None:
    store = patient(tmp_path / "a.sqlite")

    async def keeps(key: bytes) -> bool:
        store.keep(key, PAID)
        return await found(store, key) == KEPT

    assert asyncio.run(keeps(b"parent"))
    child = os.fork()
    if child == 0:
        os._exit(0 if asyncio.run(keeps(b"child")) else 1)

    assert os.waitpid(child, 0)[1] == 0
    assert asyncio.run(found(store, b"child")) == KEPT


def test_what_is_no_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o644)

    with pytest.raises(ConfigurationError, match="pipe cannot be written: it is no file"):
        FileAnswers(pipe)

    assert stat.S_IMODE(pipe.stat().st_mode) == 0o644
