"""Comparison of clients of a judge that limits, fails or is down: share of possible answers, and waste. In virtual time.

    python -m benchmarks.judges --markdown benchmarks/judges.md      # all rows, about half an hour
    python -m benchmarks.judges --only "8 at once" --asker spanscore --seeds 11 12
    python -m benchmarks.judges --real                               # three rows in real time, 200 s

64 callers with an endless backlog use one judge for 200 s. Share: answers relative to an oracle that uses the limits,
computed.
Wasted: calls without an answer, per answer. Lost: questions that ended without an answer. Recovery: seconds from the end of a
fault until the first 5 s at 90 % of the oracle's rate. The rows on cost are in ``benchmarks/budget.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from pydantic import BaseModel
from tests.pipeline.virtual_time import run as in_virtual_time

from benchmarks.judge_peers import ASKERS, AtOnce, Earlier
from benchmarks.judge_servers import SECONDS, TOKENS_PER_QUESTION, Limits, Server
from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import JudgeError
from spanscore.judges import RateLimited
from spanscore.protocols import Judge

N_ASKERS = 64
TUNED_ON_SEEDS = (1, 2, 3)
"""Seeds on which spanscore was tuned, with the rows of ``LIMITS`` and ``OUTAGES``."""
REPORTED_SEEDS = (11, 12, 13, 14, 15)
"""Seeds, and rows of ``UNSEEN``, on which spanscore was not tuned."""
PEERS_SEEDS = 2
"""Number of these seeds for the other clients, which vary far less than they differ; they are not measured on ``UNSEEN``."""
ABOUT = """\
This page compares clients of a judge that limits its callers, fails or is down. `python -m benchmarks.judges` writes the
page. 64 callers with an endless backlog use one judge for 200 s of virtual time. Rows of spanscore are means over {seeds}
seeds that were not used for tuning; rows of the other clients are means over {peers} of these seeds.

- *share*: answers, relative to a client that has the limits and uses them fully (computed).
- *wasted*: calls without an answer, per answer.
- *lost*: questions that ended without an answer.
- *recovery*: time from the end of a fault until the first 5 s at 90 % of the possible rate.
- *target*: the least share, the most wasted calls and the longest recovery.
- *tuned on*: spanscore was tuned on this server. *never met before*: spanscore was not tuned on it, and only spanscore was
  measured."""
IN_REAL_TIME = ("8 at once", "10 requests/s", "30 s storm of 429")


@dataclass(frozen=True, slots=True)
class Row:
    """One server, and the targets for it.

    Attributes:
        share: lowest share.
        wasted: highest waste.
        recovery_s: longest recovery.
        lost: highest number of lost questions.
    """

    name: str
    limits: Limits
    share: float
    wasted: float
    recovery_s: float | None = None
    lost: int | None = None


def alternating(high: float, low: float, every_s: float) -> tuple[tuple[float, float], ...]:
    """Return a rate that alternates for ever."""
    changes = range(int(SECONDS // every_s) + 1)
    return tuple((change * every_s, low if change % 2 else high) for change in changes)


def per_second(rate: float, **others: object) -> Limits:
    return Limits(per_second=((0.0, rate),), **others)  # type: ignore[arg-type]  # fields of it


LIMITS = (
    Row("8 at once", Limits(at_once=8), 0.98, 0.03),
    Row("40 at once", Limits(at_once=40), 0.96, 0.02),
    Row("20 at once", Limits(at_once=20), 0.98, 0.02),
    Row("2 at once", Limits(at_once=2), 0.98, 0.10),
    Row("5 at once, slow", Limits(at_once=5, latency_s=2.0), 0.98, 0.06),
    Row("8 at once, freed 20 ms late", Limits(at_once=8, lag_s=0.02), 0.95, 0.10),
    Row("8 places and a queue", Limits(at_once=8, queue=8), 0.99, 0.03),
    Row("10 requests/s", per_second(10), 0.95, 0.06),
    Row("10 requests/s, headers", per_second(10, headers=True), 0.98, 0.01),
    Row("50 requests/s", per_second(50), 0.97, 0.02),
    Row("30 requests/s", per_second(30), 0.95, 0.02),
    Row("3 requests/s", per_second(3), 0.90, 0.20),
    Row("1 request/s", per_second(1), 0.87, 0.31),
    Row("0.5 requests/s", per_second(0.5), 0.90, 0.48),
    Row("5,000 tokens/s", Limits(tokens_per_second=5000), 0.94, 0.06),
    Row("1,500 tokens/s", Limits(tokens_per_second=1500), 0.90, 0.10),
    Row("5,000 tokens/s, headers", Limits(tokens_per_second=5000, headers=True), 0.98, 0.01),
    Row("20 → 5 → 20 requests/s", Limits(per_second=((0, 20), (60, 5), (130, 20))), 0.97, 0.05),
    Row("10 ↔ 5 every 20 s", Limits(per_second=alternating(10, 5, 20)), 0.87, 0.10),
    Row("30 ↔ 15 every 12 s", Limits(per_second=alternating(30, 15, 12)), 0.85, 0.05),
)
OUTAGES = (
    Row("30 s storm of 429", Limits(at_once=20, storm=(60, 90)), 0.95, 0.04, recovery_s=5),
    Row("15 s storm of 429", Limits(at_once=20, storm=(60, 75)), 0.95, 0.04, recovery_s=5),
    Row("60 s down", Limits(at_once=20, down=(60, 120)), 0.93, 0.04, recovery_s=13, lost=0),
    Row("25 s down", Limits(at_once=20, down=(60, 85)), 0.96, 0.04, recovery_s=13, lost=0),
)


UNSEEN = (
    Row("12 at once", Limits(at_once=12), 0.98, 0.03),
    Row("3 at once, slow", Limits(at_once=3, latency_s=1.5), 0.98, 0.10),
    Row("6 requests/s", per_second(6), 0.93, 0.10),
    Row("0.7 requests/s", per_second(0.7), 0.87, 0.40),
    Row("20 requests/s, headers", per_second(20, headers=True), 0.98, 0.01),
    Row("2,500 tokens/s", Limits(tokens_per_second=2500), 0.92, 0.08),
    Row("24 ↔ 8 every 15 s", Limits(per_second=alternating(24, 8, 15)), 0.85, 0.08),
    Row("20 s storm of 429, 30 at once", Limits(at_once=30, storm=(70, 90)), 0.95, 0.04, recovery_s=5),
    Row("40 s down, 10 at once", Limits(at_once=10, down=(70, 110)), 0.94, 0.04, recovery_s=13, lost=0),
)


class Verdict(BaseModel):
    verdict: int


@dataclass(frozen=True, slots=True)
class Measured:
    share: float
    wasted: float
    lost: float
    recovery_s: float | None


def measured(row: Row, asker: str, seed: int) -> Measured:
    """Let 64 callers use one server for 200 s."""
    gc.collect()  # a judge without an account is identified by its id, which must not be that of an earlier server
    return in_virtual_time(_measured(row, asker, seed))


async def _measured(row: Row, asker: str, seed: int) -> Measured:
    random.seed(seed)
    server = Server(row.limits, random.Random(seed))
    judge = ASKERS[asker](server, random.Random(seed + 1))
    lost: list[str] = []
    tasks = [asyncio.create_task(_asks(judge, random.Random(f"{seed} {place}"), lost)) for place in range(N_ASKERS)]
    await asyncio.sleep(SECONDS)
    answered, calls, lost_then = len(server.answered_s), server.calls, len(lost)
    out = min(calls - answered, server.at_work)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return Measured(
        answered / row.limits.oracle(askers=N_ASKERS),
        (calls - answered - out) / max(1, answered),
        lost_then,
        _recovery_s(row.limits, server.answered_s),
    )


async def _asks(judge: Judge, rng: random.Random, lost: list[str]) -> None:
    while True:
        tokens = TOKENS_PER_QUESTION * rng.uniform(0.4, 1.6)
        question = Prompt(step="s", instruction="", evidence={"response": "x" * int(3.5 * tokens)}, output=Verdict)
        try:
            await judge.ask(question)
        except JudgeError as error:
            lost.append(error.error_type)


def _recovery_s(limits: Limits, answered_s: Sequence[float]) -> float | None:
    if limits.fault is None:
        return None
    end_s, window_s = limits.fault[1], 5.0
    for tenths in range(int((SECONDS - end_s - window_s) * 10)):
        since_s = end_s + tenths / 10
        got = sum(since_s <= one < since_s + window_s for one in answered_s)
        if got >= 0.9 * limits.oracle(since_s, since_s + window_s):
            return tenths / 10
    return SECONDS - end_s


def mean(runs: Sequence[Measured]) -> Measured:
    """Return the mean of several runs."""
    recoveries = [run.recovery_s for run in runs if run.recovery_s is not None]
    return Measured(
        fmean(run.share for run in runs),
        fmean(run.wasted for run in runs),
        fmean(run.lost for run in runs),
        fmean(recoveries) if recoveries else None,
    )


def missed(row: Row, got: Measured) -> list[str]:
    """Return the missed targets of a row."""
    aims = {
        "share": round(got.share, 2) < row.share,
        "wasted": round(got.wasted, 2) > row.wasted,
        "recovery": row.recovery_s is not None and (got.recovery_s or 0) > row.recovery_s,
        "lost": row.lost is not None and got.lost > row.lost,
    }
    return [name for name, fails in aims.items() if fails]


async def cpu_us(judge: Judge, questions: int = 20_000) -> float:
    """Return the microseconds of CPU per question with an immediate answer."""
    prompt = Prompt(step="s", instruction="", evidence={"response": "x" * 500}, output=Verdict)
    began_s = time.process_time()
    for _ in range(questions):
        await judge.ask(prompt)
    return (time.process_time() - began_s) / questions * 1e6


async def healthy_path() -> tuple[float, float]:
    """Return the microseconds of CPU per question, now and in the earlier version: medians of five turns each."""
    now, before = RateLimited(Instant()), Earlier(AtOnce(Instant()), random.Random(0))
    turns = [(await cpu_us(now), await cpu_us(before)) for _ in range(5)]
    return median(turn[0] for turn in turns), median(turn[1] for turn in turns)


class Instant:
    model = "instant"

    async def ask(self, prompt: Prompt) -> Reply:
        return Reply(text="{}")


async def in_real_time(rows: Sequence[Row], seed: int) -> list[tuple[Row, Measured]]:
    """Let spanscore use several servers concurrently, for 200 s in real time."""
    return list(zip(rows, await asyncio.gather(*(_measured(row, "spanscore", seed) for row in rows)), strict=True))


def cells_of(row: Row, asker: str, got: Measured) -> list[str]:
    """Return a line of the table."""
    recovery = "–" if got.recovery_s is None else f"{got.recovery_s:.1f} s"
    aim = f"≥ {row.share:.2f}, ≤ {row.wasted:.2f}" + (f", ≤ {row.recovery_s} s" if row.recovery_s else "")
    bad = missed(row, got) if asker == "spanscore" else None
    met = "" if bad is None else f"missed: {', '.join(bad)}" if bad else "met"
    return [
        row.name,
        asker,
        f"{got.share:.2f}",
        f"{got.wasted:.2f}",
        f"{got.lost:.0f}",
        recovery,
        aim if met else "",
        met,
    ]


def chosen_rows(only: str) -> list[tuple[str, Row]]:
    sections = {"tuned on": (*LIMITS, *OUTAGES), "never met before": UNSEEN}
    return [(section, row) for section, rows in sections.items() for row in rows if only in row.name]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--asker", choices=ASKERS, action="append")
    parser.add_argument("--seeds", type=int, nargs="*", default=REPORTED_SEEDS)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args(arguments)
    lines: list[list[str]] = []
    if given.real:
        rows = [row for _, row in chosen_rows(given.only) if row.name in IN_REAL_TIME]
        lines = [["real time", *cells_of(row, "spanscore", got)] for row, got in asyncio.run(in_real_time(rows, 11))]
    for section, row in [] if given.real else chosen_rows(given.only):
        for asker in given.asker or (ASKERS if row not in UNSEEN else ["spanscore"]):
            seeds = given.seeds if asker == "spanscore" else given.seeds[:PEERS_SEEDS]
            got = mean([measured(row, asker, seed) for seed in seeds])
            lines.append([section, *cells_of(row, asker, got)])
            print(" | ".join(lines[-1]), flush=True)
    now_us, before_us = asyncio.run(healthy_path())
    healthy = (
        f"A question that is answered at once costs {now_us:.0f} µs of CPU; in the earlier version {before_us:.0f} µs."
    )
    print(healthy if not given.real else "\n".join(" | ".join(line) for line in lines))
    if given.markdown is not None:
        given.markdown.write_text(page(lines, healthy))
    return int(any(line[-1].startswith("missed") for line in lines) or now_us > before_us + 30)


def page(lines: Sequence[Sequence[str]], healthy: str) -> str:
    """Return the text of the committed page."""
    head = ["rows", "server", "client", "share", "wasted", "lost", "recovery", "target", "result"]
    table = [head, ["---"] * len(head), *lines]
    text = "\n".join(f"| {' | '.join(line)} |" for line in table)
    about = ABOUT.format(seeds=len(REPORTED_SEEDS), peers=PEERS_SEEDS)
    return f"# Judges that limit, storm and go away\n\n{about}\n\n{text}\n\n{healthy}\n"


if __name__ == "__main__":
    sys.exit(main())
