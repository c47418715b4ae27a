"""kill -9 at random moments: acknowledged rows are emitted with one value, or counted.

A process puts rows, takes rows, scores them at random and emits them, and writes each action as a line of a journal that
survives it. The random values reveal a row that was scored twice, by its second value.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.durable.asked import Asked, key

from spanscore.durable.rows import PutResult, SpoolRow
from spanscore.durable.spool import inspect_spool

__all__ = ["Crashes", "crashed"]

_PUT_EACH = 40
_LONGEST_S = 0.12
_BODY = b"x" * 6_000


@dataclass(frozen=True, slots=True)
class Crashes:
    """The results.

    Attributes:
        acknowledged: rows that were reported to be on the disk.
        lost: of these, that were neither emitted nor counted.
        counted: that were put aside as dead letters.
        emitted_twice: with the same value.
        differing: rows that were emitted with more than one value.
    """

    acknowledged: int
    lost: int
    counted: int
    emitted_twice: int
    differing: int


def crashed(folder: Path, *, seed: int, processes: int, kills: int = 4) -> Crashes:
    """Let processes work on one spool, kill them repeatedly, and let a last one finish; return the results."""
    rng = random.Random(seed)
    path, journal = folder / f"spool-{seed}.db", folder / f"journal-{seed}"
    for life in range(kills):
        started = [_started(path, journal, 1_000 * life + 100 * n, own=rng.random() < 0.5) for n in range(processes)]
        time.sleep(rng.uniform(0, _LONGEST_S))
        for process in rng.sample(started, processes):
            process.kill()
            process.wait()
            if rng.random() < 0.5:
                time.sleep(rng.uniform(0, _LONGEST_S))
    _started(path, journal, 0, own=False, last=True).wait(60)
    return _counts_in(journal.read_text().splitlines())


def _started(path: Path, journal: Path, start: int, *, own: bool, last: bool = False) -> subprocess.Popen[bytes]:
    """Return a process when it is about to put its first row."""
    arguments = [str(path), str(journal), str(start), "own" if own else "any", "last" if last else "first"]
    process = subprocess.Popen([sys.executable, "-m", "tests.durable.crashes", *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _counts_in(journal: Sequence[str]) -> Crashes:
    by_word: dict[str, list[str]] = defaultdict(list)
    for line in journal:
        word, *rest = line.split()
        by_word[word].append(" ".join(rest))
    values: dict[str, set[str]] = defaultdict(set)
    for emitted in by_word["emitted"]:
        number, value = emitted.split()
        values[number].add(value)
    kept, counted = set(by_word["kept"]), set(by_word["counted"])
    return Crashes(
        acknowledged=len(kept),
        lost=len(kept - set(values) - counted),
        counted=len(counted),
        emitted_twice=len(by_word["emitted"]) - len(set(by_word["emitted"])),
        differing=sum(len(each) > 1 for each in values.values()),
    )


class _Life:
    def __init__(self, path: Path, journal: Path) -> None:
        self._asked = Asked(path)
        self._path = path
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._mine: list[SpoolRow] = []

    def put(self, numbers: range, *, own: bool) -> None:
        for number in numbers:
            self._asked.file.put(key(number), _BODY, partial(self._kept, number, own), own=own)

    def work(self) -> None:
        mine, self._mine = self._mine[:8], self._mine[8:]
        rows = mine or self._asked.take(8)
        self._asked.begin(*(row.key.trace_id for row in rows if row.scores is None))
        emitted = [row.key.trace_id for row in rows if self._emitted(row)]
        self._asked.file.done([row.key for row in rows if row.key.trace_id in emitted])
        for ended in self._asked.take(ended_only=True):
            self._say("counted", ended.key.trace_id)
            self._asked.file.done([ended.key])

    def is_over(self) -> bool:
        return inspect_spool(self._path).state.depth == 0

    def _kept(self, number: int, own: bool, put: PutResult, _: str | None) -> None:
        if put is PutResult.KEPT:
            self._say("kept", number)
            if own:
                self._mine.append(SpoolRow(key(number), _BODY, None, 0))

    def _emitted(self, row: SpoolRow) -> bool:
        scores = row.scores or f"{random.random()}".encode()
        if row.scores is None and not self._asked.keep(row.key.trace_id, scores):
            return False
        self._say("emitted", row.key.trace_id, scores.decode())
        return True

    def _say(self, *words: object) -> None:
        os.write(self._journal, f"{' '.join(map(str, words))}\n".encode())


def _live(path: str, journal: str, start: str, own: str, last: str) -> None:
    life = _Life(Path(path), Path(journal))
    print("begun", flush=True)
    if last == "first":
        threading.Thread(
            target=life.put, args=(range(int(start), int(start) + _PUT_EACH),), kwargs={"own": own == "own"}
        ).start()
    while last == "first" or not life.is_over():
        life.work()


if __name__ == "__main__":
    _live(*sys.argv[1:])
