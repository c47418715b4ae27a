"""An application with the bare OpenAI SDK, without LangChain: OpenLLMetry traces its calls, and their spans get scores.

    python examples/openai_sdk_app.py

No key, no network: a test server answers on loopback. An application omits ``base_url``.
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

try:
    from openai import OpenAI
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor

    from spanscore import OnlineScorer, ScoringSpanProcessor
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"{missing.name} is not installed: pip install -e . openai opentelemetry-instrumentation-openai"
    ) from None
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from spanscore.metrics import ResponseRelevancy

ANSWERS = {
    "What does a ferry ticket cost?": "A ferry ticket costs 4 euros.",
    "When does the museum open?": "I like trams.",
}


def one_line(span: ReadableSpan) -> str:
    """Return a span in one line: its scope, its name, and the score on it."""
    scope = span.instrumentation_scope.name if span.instrumentation_scope else ""
    score = (span.attributes or {}).get("spanscore.score.response_relevancy", "")
    return f"{scope:40} {span.name:34} {score}\n"


class StandIn(BaseHTTPRequestHandler):
    """Answers as the API does."""

    def do_POST(self) -> None:
        """Answer the last message."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", "content": ANSWERS[request["messages"][-1]["content"]]}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        reply = {"id": "1", "object": "chat.completion", "created": 1, "model": "offline", "choices": [choice]}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(reply).encode())

    def log_message(self, *_: object) -> None:
        """Do not log requests."""


def address() -> str:
    """Start the test server, and return its address."""
    server = HTTPServer(("127.0.0.1", 0), StandIn)
    Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"


def main() -> None:
    """Ask two questions."""
    scorer = OnlineScorer([ResponseRelevancy("lexical", "lexical", pass_at=0.5)])
    exporter = BatchSpanProcessor(ConsoleSpanExporter(formatter=one_line))
    provider = TracerProvider(resource=Resource.create({"service.name": "guide"}))
    provider.add_span_processor(ScoringSpanProcessor(scorer, exporter))
    OpenAIInstrumentor().instrument(tracer_provider=provider)

    client = OpenAI(api_key="none", base_url=address())
    for question in ANSWERS:
        client.chat.completions.create(model="offline", messages=[{"role": "user", "content": question}])
    scorer.flush(timeout=10)
    provider.shutdown()
    scorer.shutdown()
    print(
        "In Jaeger, search the tag spanscore.verdict=fail; in Tempo { span.spanscore.score.response_relevancy < 0.5 }."
    )


if __name__ == "__main__":
    main()
