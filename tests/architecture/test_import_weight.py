"""Importing spanscore costs nothing that is not used: no exporter, no SDK metrics or logs, nothing optional."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "grpc",
    "langchain",
    "langchain_openai",
    "langgraph",
    "numpy",
    "openai",
    "opentelemetry.exporter",
    "opentelemetry.sdk._logs",
    "opentelemetry.sdk.metrics",
    "requests",
    "rich",
    "typer",
    "yaml",
)


def test_import_of_spanscore_loads_nothing_heavy() -> None:
    assert _heavy_after("import spanscore") == []


def test_the_package_alone_loads_no_part_of_itself() -> None:
    assert [name for name in _loaded_after("import spanscore") if name.startswith("spanscore.")] == []


@pytest.mark.parametrize("name", ["OnlineScorer"])
def test_public_name_adds_nothing_heavy_to_what_an_application_has_loaded(name: str) -> None:
    application = "import langchain_core.messages, langchain_core.runnables, opentelemetry.sdk.trace"

    assert set(_heavy_after(f"{application}; from spanscore import {name}")) <= set(_heavy_after(application))


def _heavy_after(statement: str) -> list[str]:
    return [
        name for name in _loaded_after(statement) if any(name == top or name.startswith(f"{top}.") for top in HEAVY)
    ]


def _loaded_after(statement: str) -> list[str]:
    script = f"import sys; {statement}; print(*sorted(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.split()


def test_a_scorer_with_a_processor_loads_no_langchain() -> None:
    application = (
        "from spanscore import OnlineScorer, ScoringSpanProcessor; from spanscore.metrics import ExactMatch;"
        "from opentelemetry.sdk.trace import TracerProvider;"
        "provider = TracerProvider(); scorer = OnlineScorer([ExactMatch()]);"
        "provider.add_span_processor(ScoringSpanProcessor(scorer)); scorer.status(); scorer.shutdown()"
    )

    assert [name for name in _loaded_after(application) if name.startswith("langchain")] == []


def test_the_line_loads_no_receiver_of_a_library() -> None:
    assert [name for name in _loaded_after("import spanscore.wiring.build") if name.startswith("langchain")] == []


def test_a_scorer_loads_nothing_of_a_spool_or_of_another_process_that_it_was_not_asked_for() -> None:
    made = "from spanscore import OnlineScorer; from spanscore.metrics import ExactMatch; OnlineScorer([ExactMatch()])"
    beside = {"sqlite3", "spanscore.core.codecs.job", "spanscore.durable.dispatcher"}

    assert beside & {*_loaded_after(made)} == set()
