"""A function as a cloud runs it: it may stop for any time between two calls.

    python -m tests.durable.function ENDPOINT TOKEN_FILE

A line on its stdin is how many runs it is called for; it answers with a line of JSON: whether all was flushed, and its counts.
"""

from __future__ import annotations

import json
import sys

from tests.durable.application import application, run

from spanscore.config import RemoteScoring, Sampling


def main(endpoint: str, token_file: str) -> None:
    """Serve calls until stdin ends."""
    where = RemoteScoring(endpoint=endpoint, token_file=token_file, timeout=2.0)
    with application(where, seed=7, sampling=Sampling()) as (scorer, _):
        for line in sys.stdin:
            run(scorer, int(line))
            flushed = scorer.flush(60)
            status = scorer.status()
            values = {"flushed": flushed, "eligible": status.eligible, "outcomes": status.outcomes}
            print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
