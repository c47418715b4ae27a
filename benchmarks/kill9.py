"""Crash test: applications and workers on one spool are killed with kill -9, over many seeds; it counts losses and duplicates.

    python -m benchmarks.kill9 --markdown benchmarks/kill9.md             # 100 seeds: eight minutes; --seeds 6 for a look

Processes are killed at random points of a unit's path, one or both kinds at once, up to four times a seed, as described in
``tests/wiring/kills.py``. It counts and measures no times, so it may run with other work. Exits with 1 if anything is lost.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.wiring.kills import KILLED, Kills, kills

__all__ = ["main"]

AT_ONCE = 3
"""Seeds that run concurrently, because a process mostly waits."""
_ABOVE = """\
# Crash test with `kill -9`

This page shows whether scores are lost or made twice if processes on a spool (a file of waiting units) are
killed. The command is `python -m benchmarks.kill9 --seeds {seeds}`. Applications and workers share a spool; each is a whole
scorer in a process of its own. The named processes are killed up to four times a seed, at the moments in the second table.
The running processes, or a last worker, score the remaining units. A score is a random number, so a score that was made
twice would have two values.

| killed | seeds | ends | acknowledged | scored | in sums | counted as `metric_error` | emitted twice | lost | with two values |
|---|---|---|---|---|---|---|---|---|---|"""
_BELOW = """
- *ends*: the number of kills. A kill of both kinds at the same time counts once.
- *acknowledged*: units that were reported to be on the disk. If a process was killed between the commit and its
  acknowledgement, more units are scored and counted than acknowledged.
- *in sums*: scores in the sums of all processes, as their pages of metrics were read last. A score that is in the sums
  twice was read in the milliseconds before a kill.
- *counted as `metric_error`*: units for which three processes in a row had ended while scoring them. Every tenth seed does
  this on purpose.
- *emitted twice*: scores that were sent twice with the same id and value. The kill then came between *its scores are on the
  disk* and *their export is on the disk*, which is a second.

The second table counts the kills by moment; `time` is a moment of the clock:
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as at_once:
        parts = [range(first, arguments.seeds, AT_ONCE) for first in range(AT_ONCE)]
        played = [*at_once.map(lambda part: _played(Path(folder) / str(part.start), part), parts)]
    found = sorted((one for part in played for one in part), key=lambda one: one.seed)
    page = "\n".join([*_page(found), *_faults(found)])
    print(page)
    if arguments.markdown:
        arguments.markdown.write_text(page + "\n")
    sys.exit(1 if any(one.faults for one in found) else 0)


def _played(folder: Path, seeds: Sequence[int]) -> list[Kills]:
    played = list[Kills]()
    for one in kills(folder, seeds):
        print(one, file=sys.stderr, flush=True)
        played.append(one)
    return played


def _page(found: Sequence[Kills]) -> Iterator[str]:
    yield _ABOVE.format(seeds=len(found))
    for who in KILLED:
        yield _row(who, [one for one in found if one.killed == who])
    yield _row("all", found)
    yield _BELOW
    points = Counter(point for one in found for point in one.points)
    yield f"| {' | '.join(points)} |"
    yield f"|{'---|' * len(points)}"
    yield f"| {' | '.join(map(str, points.values()))} |"


def _row(who: str, found: Sequence[Kills]) -> str:
    lives = sum(len(one.points) for one in found)
    sums = [
        sum(each)
        for each in zip(
            *((one.acknowledged, one.scored, one.summed, one.counted, one.emitted_twice) for one in found), strict=True
        )
    ]
    lost, twice = (sum(word in fault for one in found for fault in one.faults) for word in ("is gone", "scores:"))
    cells = [who, len(found), lives, *(f"{one:,}" for one in sums or [0] * 5), lost, twice]
    return f"| {' | '.join(map(str, cells))} |"


def _faults(found: Sequence[Kills]) -> Iterator[str]:
    """Yield the violations."""
    yield ""
    faults = [f"- seed {one.seed}: {fault}" for one in found for fault in one.faults]
    yield from faults or [
        "No row was left in the spool. In each process that was not killed, the eligible units are the sum of its outcomes."
    ]


if __name__ == "__main__":
    main()
