"""An application on the OpenAI SDK, whose spans and log records a scorer in its process reads; it prints the samples.

Run by ``tests/traces/test_event_only.py`` with the switches of the instrumentation in the environment.
"""

from __future__ import annotations

import sys
from typing import Any

from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.trace import TracerProvider
from tests.traces.openai_app import programs

from spanscore import OnlineScorer, ScoringLogRecordProcessor, ScoringSpanProcessor
from spanscore.metrics import BaseMetric, Finding, Scale


class Asked(BaseMetric):
    """1 for every sample; keeps them."""

    name = "asked"
    requires = {"single_turn": ()}  # noqa: RUF012
    scale = Scale(kind="ordinal", range=(0, 1), direction="higher", pass_at=0.5)

    def __init__(self) -> None:
        self.samples: list[str] = []

    async def measure(self, sample: Any) -> Finding:
        self.samples.append(sample.model_dump_json(exclude_none=True))
        return Finding(value=1)


def main(url: str) -> None:
    asked, tracers, loggers = Asked(), TracerProvider(), LoggerProvider()
    scorer = OnlineScorer(metrics=[asked], tracer_provider=tracers)
    tracers.add_span_processor(ScoringSpanProcessor(scorer))
    loggers.add_log_record_processor(ScoringLogRecordProcessor(scorer))
    OpenAIInstrumentor().instrument(tracer_provider=tracers, logger_provider=loggers)
    for program in programs(url).values():
        program()
    scorer.shutdown(30)
    print("\n".join(sorted(asked.samples)))


if __name__ == "__main__":
    main(sys.argv[1])
