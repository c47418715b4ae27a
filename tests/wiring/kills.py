"""kill -9 through the whole line: an application, a worker, or both, at random points of a unit's way; and the results.

    python -m tests.wiring.kills FOLDER SEED [SEED …]                 # a line of JSON for each seed

A life is a whole ``OnlineScorer`` in a process of its own. It writes its actions as lines of a journal that survives it: stored
rows, stored scores, emissions, deleted rows. A score is drawn from random numbers of its life alone: a score that was made
twice has two values. Lives are forks of one process that has loaded everything and started no thread.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from tests.live import QUESTION, Grounded, a_trace, rag
from tests.wiring.kill_points import OF_WORKERS, OF_WRITERS, POINTS, End, Journal, named, watch

from spanscore import OnlineScorer
from spanscore.config import Outputs, Spool
from spanscore.core.span import Unit
from spanscore.metrics import Finding
from spanscore.testing import MemorySink

__all__ = ["KILLED", "Kills", "kills"]

KILLED: Final = ("application", "worker", "both")
"""The killed processes, by seed."""
_LONGEST_S: Final = 4.0
"""A life that has not passed its point is killed then."""
_LAST_S: Final = 120.0
"""Time for the remaining rows at the end, in seconds."""
_UNITS: Final = 30
"""Units in one life of an application."""
_IN_SCORE: Final = ("score",)
_LIVES: Final = 4
"""That are killed, at most."""
_SCORING: Final = 10
"""In one of this many seeds, all lives end while they score, so that rows become dead letters."""


@dataclass(slots=True)
class Kills:
    """The results of one seed.

    Attributes:
        seed: seed of the random numbers.
        killed: one of ``KILLED``.
        points: points at which lives ended; ``time`` = at a moment of the clock. If both are killed, one kill includes the
            other process.
        acknowledged: rows that were reported to be on the disk.
        scored: units with a score.
        counted: unscored units, each with its outcome.
        emitted_twice: units with scores that were emitted more than once.
        summed: scores in the sums of all lives, by the last reading of their metrics pages.
        faults: violations, a sentence each.
    """

    seed: int
    killed: str
    points: list[str] = field(default_factory=list)
    acknowledged: int = 0
    scored: int = 0
    counted: int = 0
    emitted_twice: int = 0
    summed: int = 0
    faults: list[str] = field(default_factory=list)


_LAST: Final = End("last", 0)


class _Drawn(Grounded):
    """Takes a moment, and returns a value that no other call returns."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    async def measure(self, sample: Any) -> Finding:
        await asyncio.sleep(0.002)
        self._journal.passes("score")
        return Finding(value=int.from_bytes(os.urandom(6)) / 2**48)


class _JournalSink(MemorySink):
    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def emit(self, unit: Unit, scores: Any) -> None:
        self._journal.passes("emit")
        for score in scores:
            self._journal.say("emitted", named(unit.key), score.id, score.value, score.outcome.value)
        self._journal.passes("emitted")


def _live(folder: Path, *, units: int, scores: bool, end: End, seed: str) -> None:
    """Be an application, if there are units, or else a worker."""
    random.seed(seed)  # of a trace's ids: forks would draw the same
    journal = Journal(folder / "journal", end)
    watch(journal)
    path = folder / "spool.db"
    trace = a_trace()
    scorer = OnlineScorer(
        [_Drawn(journal)],
        spool=Spool(path=path, score_here=scores, lease=10.0),
        outputs=Outputs(sinks=[_JournalSink(journal)]),
        tracer_provider=trace.provider,
    )
    scorer.start_workers()
    page = f"http://127.0.0.1:{scorer.serve_metrics(0)}/metrics"
    for _ in range(units):
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
    while end != _LAST or not (folder / "last").exists() or _left(path):
        time.sleep(0.02)
        urlopen(page).close()
    scorer.shutdown(20)
    status = scorer.status()
    total, outcomes = status.eligible["grounded"], status.outcomes["grounded"]
    if total != sum(outcomes.values()):
        journal.say("unequal", total, status.pending["grounded"], json.dumps(outcomes))


def _left(path: Path) -> int:
    with sqlite3.connect(path, timeout=30) as file:
        return int(file.execute("SELECT count(*) FROM rows WHERE aside < 2").fetchone()[0])


def _begun(folder: Path, **how: Any) -> int:
    """Return the process id of a new life."""
    if pid := os.fork():
        return pid
    try:
        _live(folder, **how)
    finally:
        os._exit(0)


def _kills(folder: Path, seed: int) -> Kills:
    rng, killed = random.Random(seed), KILLED[seed % len(KILLED)]
    reported, last = Kills(seed, killed), list[int]()
    folder.mkdir()
    has_worker = killed != "application" or rng.random() < 0.5
    if killed == "worker":
        last.append(_begun(folder, units=2 * _UNITS, scores=False, end=_LAST, seed=f"{seed} writes"))
    elif killed == "application" and has_worker:
        last.append(_begun(folder, units=0, scores=True, end=_LAST, seed=f"{seed} scores"))
    of_score = seed % _SCORING == _SCORING - 1
    for life in range(_LIVES if of_score else rng.randint(1, _LIVES)):
        _end_all(dict(_to_be_killed(folder, killed, rng, f"{seed} {life}", of_score=of_score)), reported)
    if killed != "application" or not has_worker:
        last.append(_begun(folder, units=0, scores=True, end=_LAST, seed=f"{seed} last"))
    (folder / "last").touch()
    if late := [pid for pid in last if not _is_over(pid, _LAST_S)]:
        reported.faults.append(f"{_left(folder / 'spool.db')} rows were left")
        _kill(late)
    return _read(reported, (folder / "journal").read_text().splitlines())


def _to_be_killed(
    folder: Path, killed: str, rng: random.Random, name: str, *, of_score: bool
) -> Iterator[tuple[int, End]]:
    """Begin a life of each process to kill; yield its process id and its end; ``of_score``: in the middle of scoring."""
    if killed != "worker":
        scores = of_score or rng.random() < 0.5
        end = _end(rng, _IN_SCORE if of_score else tuple(POINTS) if scores else OF_WRITERS)
        yield _begun(folder, units=_UNITS, scores=scores, end=end, seed=f"{name} application"), end
    if killed != "application":
        end = _end(rng, _IN_SCORE if of_score else OF_WORKERS)
        yield _begun(folder, units=0, scores=True, end=end, seed=f"{name} worker"), end


def _end(rng: random.Random, points: Sequence[str]) -> End:
    if len(points) > 1 and rng.random() < 0.25:
        return End("time", rng.randrange(10, int(_LONGEST_S * 1e3)))
    point = rng.choice(points)
    return End(point, rng.randint(1, POINTS[point]))


def _end_all(lives: dict[int, End], counts: Kills) -> None:
    """Wait until the first life ends, or has to; then end the others at once."""
    began = time.monotonic()
    until = began + min(end.passing / 1e3 if end.point == "time" else _LONGEST_S for end in lives.values())
    over = set[int]()
    while not over and time.monotonic() < until:
        over = {pid for pid in lives if os.waitpid(pid, os.WNOHANG)[0]}
        time.sleep(0.001)
    _kill(lives.keys() - over)
    counts.points += ["time"] * (not over)


def _kill(lives: Iterable[int]) -> None:
    for pid in lives:
        os.kill(pid, signal.SIGKILL)
    for pid in lives:
        os.waitpid(pid, 0)


def _is_over(pid: int, most_s: float) -> bool:
    until = time.monotonic() + most_s
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return True
        time.sleep(0.01)
    return False


def _read(counts: Kills, journal: Sequence[str]) -> Kills:
    """Read the journals of all lives, in order."""
    kept, written, deleted, sums = set[str](), set[str](), set[str](), dict[str, int]()
    emitted: dict[str, list[str]] = defaultdict(list)
    for line in journal:
        word, *rest = line.split(" ", 2)
        name = rest[0] if rest else ""
        match word:
            case "died":
                counts.points.append(name)
            case "kept":
                kept.add(name)
            case "written":
                written.add(name)
            case "deleted":
                deleted.add(name)
            case "emitted":
                counts.faults += _wrong(name, emitted[name], name in written, name in deleted)
                emitted[name].append(rest[1])
            case "sums":
                sums[name] = int(rest[1])
            case "unequal":
                counts.faults.append(f"eligible is not the sum of outcomes: {' '.join(rest)}")
    counts.faults += [f"{name} was acknowledged and is gone" for name in kept - emitted.keys()]
    counts.faults += [f"{name} has {len({*each})} scores: {each}" for name, each in emitted.items() if len({*each}) > 1]
    counts.acknowledged = len(kept)
    counts.scored = sum(each[0].endswith(" scored") for each in emitted.values())
    counts.counted = len(emitted) - counts.scored
    counts.emitted_twice = sum(len(each) > 1 for each in emitted.values())
    counts.summed = sum(sums.values())
    counts.faults += [f"{counts.summed} scores are in the sums, of {counts.scored}"] * (counts.summed < counts.scored)
    return counts


def _wrong(name: str, before: Sequence[str], is_written: bool, is_deleted: bool) -> Iterator[str]:
    if not is_written:
        yield f"{name} was emitted before its scores were written"
    if before and is_deleted:
        yield f"{name} was emitted again after its export was on the disk"


def kills(folder: Path, seeds: Sequence[int]) -> Iterator[Kills]:
    """Yield the results of each seed, one after the other, from a process of its own."""
    command = [sys.executable, "-m", "tests.wiring.kills", str(folder), *map(str, seeds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                yield Kills(**json.loads(line))
            assert process.wait(60) == 0
        finally:
            process.kill()


def main() -> None:
    """Play seeds."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for seed in map(int, sys.argv[2:]):
        assert len(os.listdir("/proc/self/task")) == 1, "a fork of threads has their locks"
        print(json.dumps(asdict(_kills(folder / str(seed), seed))), flush=True)


if __name__ == "__main__":
    main()
