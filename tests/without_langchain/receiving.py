"""A scorer that gets an application's spans as bytes only, in a process of its own.

    python -m tests.without_langchain.receiving

Prints one JSON object: how many answers were scored, and whether LangChain was imported.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider

from spanscore import OnlineScorer
from spanscore.config import Units
from spanscore.core.codecs.otlp_request import from_json, parse_request
from spanscore.metrics import ResponseRelevancy
from spanscore.scorer import receivers_of

RECORDED = Path(__file__).parents[1] / "traces" / "recorded"


def main() -> None:
    program = max(RECORDED.glob("chain.openllmetry-openai-*.jsonl"))  # any will do
    metric = ResponseRelevancy("lexical", embeddings="lexical")
    with OnlineScorer([metric], tracer_provider=TracerProvider()) as scorer:
        receiver = receivers_of(scorer).otlp_spans(Units(idle_timeout=0))
        for line in program.read_bytes().splitlines():
            receiver.accept(parse_request(from_json(line)))
        assert scorer.flush(20)
        outcomes = scorer.status().outcomes["response_relevancy"]
    print(json.dumps({**outcomes, "langchain": "langchain_core" in sys.modules}))


if __name__ == "__main__":
    main()
