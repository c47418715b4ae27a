"""Applications with failing judges while they end: a process for each address, forked after all imports.

    python -m tests.judges.faults.application exit|shutdown|fork URL…

Each line of the output is JSON with the ``place`` of the address; the standard input gives the time of the applications' end.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from time import monotonic
from typing import Any

from langchain_openai import ChatOpenAI
from opentelemetry.sdk.trace import TracerProvider

from spanscore import OnlineScorer
from spanscore.core.sample import SingleTurnSample
from spanscore.judges import judge
from spanscore.metrics import AspectCritic

UNITS = 8
SHUTDOWN_S = 2.0
"""Time of a shutdown, which an application with a hanging judge takes in full."""


def main(end: str, *urls: str) -> None:
    go, not_yet = os.pipe()
    pids = []
    for place, url in enumerate(urls):
        pid = os.fork()
        if pid == 0:
            os.close(not_yet)
            application(place, url, end, go)
            return  # and the interpreter ends as it does
        pids.append(pid)
    sys.stdin.readline()
    os.close(not_yet)
    for _ in pids:
        os.wait()


def application(place: int, url: str, end: str, go: int) -> None:
    atexit.register(lambda: say(place=place, gone_s=monotonic()))  # the first to come, and so the last to be called
    model = ChatOpenAI(base_url=url, api_key="none", model="m")  # type: ignore[arg-type]  # a plain key
    critic = AspectCritic(judge(model), name="harmless", definition="Is the response harmless?")
    scorer = OnlineScorer([critic], tracer_provider=TracerProvider(shutdown_on_exit=False))
    submit(scorer)
    say(place=place, begun=True)
    os.read(go, 1)  # nothing comes: it is closed when it is time
    if end == "fork":
        in_a_child(place, scorer)
    if end != "exit":
        say(place=place, **shut_down(scorer))
    say(place=place, last_line_s=monotonic())


def submit(scorer: OnlineScorer) -> None:
    for number in range(UNITS):
        scorer.submit(SingleTurnSample(user_input=f"What is {number}?", response="A number."))


def shut_down(scorer: OnlineScorer) -> dict[str, Any]:
    began_s = monotonic()
    scorer.shutdown(timeout=SHUTDOWN_S)
    status = scorer.status()
    ended = sum(status.outcomes["harmless"].values())
    return {"took_s": monotonic() - began_s, "eligible": status.eligible["harmless"], "ended": ended}


def in_a_child(place: int, scorer: OnlineScorer) -> None:
    """Fork while questions are out; the child asks its own, and ends as a worker does."""
    pid = os.fork()
    if pid == 0:
        submit(scorer)
        say(place=place, **shut_down(scorer))
        os._exit(0)
    os.waitpid(pid, 0)


def say(**what: Any) -> None:
    os.write(1, (json.dumps(what) + "\n").encode())  # one write: several processes write


if __name__ == "__main__":
    main(*sys.argv[1:])
