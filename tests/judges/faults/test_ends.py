"""Programs end, or fork, while their judges hang, refuse, storm or drip: within their time, and every unit is counted."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from time import sleep

import pytest
from tests.servers import openai_faults as faults
from tests.servers.faulty_openai import FaultyOpenAI
from tests.servers.openai_faults import Fault

ROOT = Path(__file__).parents[3]
EXIT_S = 5.0
"""Time from a program's last line until threads are joined and exit hooks have run; the rest is Python's own."""
STATES = {
    "hangs": faults.hang,
    "refuses connections": None,
    "429": faults.status(429),
    "429, Retry-After": faults.status(429, retry_after=60),
    "drips": faults.drip(0.5),
    "no money": faults.out_of_quota,
}

pytestmark = pytest.mark.flaky(reruns=2)  # whole processes with deadlines, on a machine that others may use too


def in_trouble(stack, play):
    """Open a server in this state; for an unreachable one, open and close it."""
    server = stack.enter_context(FaultyOpenAI(faults=[Fault(play)] if play else []))
    if play is None:
        server.refuse()
    return server


def played(end):
    """Let an application end in each state, all at the same time; return the combined output."""
    with ExitStack() as stack:
        urls = [in_trouble(stack, play).url for play in STATES.values()]
        applications = subprocess.Popen(
            [sys.executable, "-m", "tests.judges.faults.application", end, *urls],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
        )
        stack.callback(applications.kill)
        begun = [applications.stdout.readline() for _ in urls]
        assert all(begun)
        sleep(1)  # whatever is tried first has been tried
        said, _ = applications.communicate("end\n", timeout=60)
        lines = [json.loads(line) for line in said.splitlines()]
        return {state: [line for line in lines if line["place"] == place] for place, state in enumerate(STATES)}


def exits_s(said):
    """Return state → seconds from a program's last line to its end."""
    values = {state: {name: value for line in lines for name, value in line.items()} for state, lines in said.items()}
    return {state: last["gone_s"] - last["last_line_s"] for state, last in values.items()}


def test_a_program_ends_within_its_time_whatever_its_judge_does():
    took_s = exits_s(played("exit"))

    assert [state for state, seconds in took_s.items() if seconds > EXIT_S] == [], took_s
