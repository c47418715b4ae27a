"""The five programs under several instrumentations at once, in a process of its own.

    python -m tests.entry_points.mixed scored openllmetry openinference-openai

With ``served`` instead of ``scored`` the spans are sent over the network. Prints one JSON object: the samples and scores of
each program's requests.
"""

from __future__ import annotations

import json
import sys

from tests.entry_points.application import seen_of_program
from tests.entry_points.ways import Instrumented
from tests.servers.openai_api import OpenAIServer
from tests.traces.langchain_app import programs
from tests.traces.said import answer


def main(place: str, *ways: str) -> None:
    instrumented = Instrumented(*ways)
    scored = getattr(instrumented, place)
    with OpenAIServer(answer) as server:
        seen = {name: seen_of_program(scored, run) for name, run in programs(server.url).items()}
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
