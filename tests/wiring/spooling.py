"""A process with a spool, for tests that end it: its command line gives its task, and it prints a line for each step.

python -m tests.wiring.spooling FILE write|score UNITS [SCORES_BEFORE_IT_WAITS]
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.live import QUESTION, Grounded, a_trace, rag

from spanscore import OnlineScorer
from spanscore.config import Outputs, Spool
from spanscore.core.span import Unit
from spanscore.metrics import Finding
from spanscore.testing import MemorySink


class Noted(Grounded):
    """Takes a moment for each; after so many it waits until a file is there."""

    def __init__(self, most: int, go_on: Path) -> None:
        super().__init__()
        self._left = most
        self._go_on = go_on

    async def measure(self, sample: Any) -> Finding:
        self._left -= 1
        may_go_on = self._left >= 0
        await asyncio.sleep(0.002)
        while not may_go_on and not self._go_on.exists():  # noqa: ASYNC110  (the test's process makes it)
            await asyncio.sleep(0.05)
        return await super().measure(sample)


class JournalSink(MemorySink):
    """Prints the emitted scores."""

    def emit(self, unit: Unit, scores: Any) -> None:
        for score in scores:
            say("emitted", score.id)


def say(*words: Any) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def main() -> None:
    path, what, units, *rest = sys.argv[1:]
    scores = what == "score"
    scorer = OnlineScorer(
        [Noted(int(rest[0]) if rest else 1_000_000, Path(path).with_name("go_on"))],
        spool=Spool(path=Path(path), score_here=scores, lease=3.0),
        outputs=Outputs(sinks=[JournalSink()]),
        tracer_provider=a_trace().provider,
    )
    scorer.start_workers()
    say("begun")
    for _ in range(int(units)):
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
    while True:
        status = scorer.status()
        say("counted", status.eligible["grounded"], status.pending["grounded"], status.outcomes["grounded"])
        time.sleep(0.05)


if __name__ == "__main__":
    main()
