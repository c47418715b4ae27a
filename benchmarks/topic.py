"""Endurance test of workers on a Kafka topic: a broker that stops, a minute of rebalances, a judge's limit, a refusing judge.

    python -m benchmarks.topic --markdown benchmarks/topic.md             # 16 minutes; --only storm for one

It uses a real broker on the same machine and the scenes of ``tests/kafka/scenes.py``, here in full length. It counts, and
measures no times, so it may run with other work. Exits with 1 if anything is lost.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.kafka.scenes import Came, broker_away, judge_away, limited, most_within, storm
from tests.servers import kafka
from tests.servers.kafka import Kafka

__all__ = ["main"]

AWAY_S, MEMBERS, EVERY_S = 30.0, 30, 2.0
REFUSED_S, MAX_WAIT_S = 480.0, 600.0
GROWN_MIB = 32
PER_S, WINDOW_S, LIMITED_S = 20.0, 20.0, 60.0
WITHIN = 0.1
INTRODUCTION = """\
# Endurance test of workers on a Kafka topic

This page shows whether workers (`spanscore worker`) lose or repeat scores if a broker stops, members join,
a judge has a limit, or a judge refuses. `python -m benchmarks.topic` runs the tests."""


class SceneResult(NamedTuple):
    """A line of the page, and whether its target is met."""

    text: str
    is_met: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SCENES)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    os.environ.setdefault("OPENAI_API_KEY", "none")
    lines = [
        INTRODUCTION,
        "",
        "| test | result | as required |",
        "|---|---|---|",
    ]
    all_met = True
    for name, scene in SCENES.items():
        if arguments.only in {None, name}:
            with tempfile.TemporaryDirectory() as folder, kafka.running(Path(folder)) as broker:
                verdict = scene(broker, Path(folder))
            lines.append(f"| {name} | {verdict.text} | {'yes' if verdict.is_met else '**no**'} |")
            print(lines[-1], flush=True)
            all_met &= verdict.is_met
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(lines) + "\n")
    sys.exit(0 if all_met else 1)


def _away(broker: Kafka, folder: Path) -> SceneResult:
    came = broker_away(broker, folder, for_s=AWAY_S)
    return SceneResult(f"the broker stopped for {AWAY_S:.0f} s under load: {_counts_text(came)}", _is_whole(came))


def _storm(broker: Kafka, folder: Path) -> SceneResult:
    came = storm(broker, folder, members=MEMBERS, every_s=EVERY_S)
    return SceneResult(f"{MEMBERS} members join, one every {EVERY_S:.0f} s: {_counts_text(came)}", _is_whole(came))


def _refused(broker: Kafka, folder: Path) -> SceneResult:
    came, held = judge_away(broker, folder, for_s=REFUSED_S, max_wait_s=MAX_WAIT_S, per_s=20.0, queue=500)
    grown = (max(held.resident) - held.resident[len(held.resident) // 4]) / 2**20
    text = (
        f"429 for {REFUSED_S:.0f} s, `judge.queue_timeout` {MAX_WAIT_S:.0f} s: lag {held.lag[0]:,} → "
        f"{held.lag[-1]:,}, messages "
        f"read {held.read[0]:,} → {held.read[-1]:,}, resident +{grown:.0f} MiB (with the writing application); "
        f"{_counts_text(came)}"
    )
    is_held = held.lag[-1] > held.lag[0] and held.read[-1] == held.read[len(held.read) // 4] and grown < GROWN_MIB
    return SceneResult(text, is_held and _is_whole(came) and [*came.outcomes[0]] == ["scored"])


def _limited(broker: Kafka, folder: Path) -> SceneResult:
    asked_s = limited(broker, folder, per_s=PER_S, for_s=LIMITED_S)
    most, allowed = most_within(asked_s, WINDOW_S), PER_S * WINDOW_S
    mean = len(asked_s) / (asked_s[-1] - asked_s[0])
    text = (
        f"three workers, one killed, one added, {PER_S * 60:,.0f} judge calls a minute allowed: {len(asked_s):,} in "
        f"{asked_s[-1] - asked_s[0]:.0f} s, {mean:.1f} a second; most in any {WINDOW_S:.0f} s {most:,} of {allowed:,.0f} "
        f"({most / allowed - 1:+.1%})"
    )
    return SceneResult(text, most <= (1 + WITHIN) * allowed)


def _is_whole(came: Came) -> bool:
    return not came.lost and not came.unequal


def _counts_text(came: Came) -> str:
    ended = sum((Counter(each) for each in came.outcomes), Counter[str]())
    outcomes = ", ".join(f"{outcome} {units:,}" for outcome, units in ended.items())
    return (
        f"{len(came.sent):,} traces written, {len(came.lost)} lost, {came.twice} scores emitted twice with the same id, "
        f"{came.dropped:,} open traces left to others; outcomes of {len(came.outcomes)} workers: {outcomes}"
    )


SCENES: Mapping[str, Callable[[Kafka, Path], SceneResult]] = {
    "away": _away,
    "storm": _storm,
    "limit": _limited,
    "refused": _refused,
}


if __name__ == "__main__":
    main()
