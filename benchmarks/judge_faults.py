"""Tests of a faulty judge in real time: scores, requests and cost while a judge limits, hangs, fails or answers wrongly.

    python -m benchmarks.judge_faults                       # 15 minutes; --quick for a look, --only 429 for some rows
    python -m benchmarks.judge_faults --table FILE          # writes the table, as Markdown
    python -m benchmarks.judge_faults --record FILE         # instead: status() every 5 s, 20 requests/s → 5 → down 60 s → 20

The rows are those of ``tests/judges/faults/rows.py``, through ``langchain-openai`` against a server on loopback, with
``timeout`` 10 s and 5 units a second. Exits with 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from time import monotonic, sleep

from tests.judges.faults.reports import FULL, SHORT, FaultReport, Pace
from tests.judges.faults.rows import ROWS
from tests.judges.faults.stage import Stage, critic
from tests.servers.faulty_openai import FaultyOpenAI, Limits

from spanscore.wiring.status import Status

_HEAD = """\
| fault | scores | requests per score | units without a score | measured | missed targets | duration, s |
|---|---|---|---|---|---|---|"""
_LOOK_S = 5.0
_PHASES = ((40.0, 20.0), (40.0, 5.0), (60.0, None), (100.0, 20.0))
"""Phases: seconds, and the allowed requests per second; None = the server is down."""
_DEMAND_PER_S = 10.0


def main() -> int:
    options = _options()
    if options.record:
        options.record.write_text("\n".join(_recording()) + "\n")
        return 0
    pace = SHORT if options.quick else FULL
    lines, missed = [_HEAD], 0
    print(_HEAD, flush=True)
    for name in (name for name in ROWS if any(part in name for part in options.only)):
        line, report = _played(name, pace)
        print(line, flush=True)
        lines.append(line)
        missed += bool(report.missed)
    if options.table:
        options.table.write_text(f"{_how(pace)}\n\n" + "\n".join(lines) + "\n")
    print(f"{missed} of {len(lines) - 1} rows miss a target")
    return int(missed > 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="*", default=[""], metavar="PART", help="only rows with one of these in their name"
    )
    parser.add_argument("--quick", action="store_true", help="run at a twentieth of the length")
    parser.add_argument("--table", type=Path, metavar="FILE")
    parser.add_argument("--record", type=Path, metavar="FILE")
    return parser.parse_args()


def _played(name: str, pace: Pace) -> tuple[str, FaultReport]:
    began_s = monotonic()
    report = ROWS[name](pace)
    rest = ", ".join(f"{units} {outcome}" for outcome, units in report.rest.items()) or "–"
    seen = ", ".join(f"{what} {value}" for what, value in report.seen.items())
    missed = "; ".join(report.missed) or "–"
    took_s = monotonic() - began_s
    return f"| {name} | {report.scores} | {report.per_score:.2f} | {rest} | {seen} | {missed} | {took_s:.0f} |", report


def _how(pace: Pace) -> str:
    when = datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC")
    length = "" if pace is FULL else f" at {pace.length:.2f} of the full length, `timeout` {pace.timeout_s:g} s"
    return f"{when}, Python {platform.python_version()}, {platform.system()}, one run of each row{length}."


def _recording() -> Iterator[str]:
    """Yield ``status()`` for every five seconds of the phases."""
    with FaultyOpenAI(latency_s=0.5, keep_bodies=False) as server, Stage(critic(server, timeout=10.0)) as stage:
        stage.begin(server)
        length_s = sum(seconds for seconds, _ in _PHASES)
        asking = Thread(target=stage.submit, args=(round(length_s * _DEMAND_PER_S), _DEMAND_PER_S), daemon=True)
        asking.start()
        for seconds, per_s in _PHASES:
            until_s = stage.now_s() + seconds
            yield f"=== {stage.now_s():.0f} s: " + (
                "nobody listens" if per_s is None else f"{per_s:g} requests/s allowed"
            )
            _turn(server, per_s)
            while stage.now_s() < until_s:
                sleep(min(_LOOK_S, max(0.0, until_s - stage.now_s())))
                yield f"--- {stage.now_s():.0f} s\n{_below_the_tables(stage.scorer.status())}"
        asking.join()
        stage.ended(60)
        yield f"=== {stage.now_s():.0f} s: all {stage.submitted} units have ended\n{stage.scorer.status()}"


def _below_the_tables(status: Status) -> str:
    """Return the changing part of a status: outcomes, pending units, and the account's row."""
    ended = {outcome: units for counted in status.outcomes.values() for outcome, units in counted.items()}
    counts = {**ended, "pending": sum(status.pending.values())}
    text = f"{status}"
    return (
        ", ".join(f"{what} {units}" for what, units in counts.items()) + "\n" + text[text.index("running:") :].rstrip()
    )


def _turn(server: FaultyOpenAI, per_s: float | None) -> None:
    if per_s is None:
        server.refuse()
        return
    server.limit(Limits(requests_per_s=per_s))
    server.accept()


if __name__ == "__main__":
    sys.exit(main())
