"""Every code block of the README and of docs/ runs, in the order in which a reader meets them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from opentelemetry import metrics, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util._once import Once
from tests.contracts.found import failing
from tests.docs.page import PAGES, ROOT, Reader, blocks
from tests.live import QUESTION, rag
from tests.servers.openai_api import OpenAIServer, judged

from spanscore import semconv
from spanscore.samples.normalizers.registry import TRANSLATIONS

SHOWN = {"text", "floors", "promql", "traceql", "dockerfile", "toml", "ini", "html"}
"""Languages of blocks that are not run."""


@pytest.mark.parametrize("page", [page for page in PAGES if [*blocks(page)]])
def test_every_block_of_a_page_runs(page: str, desk: None) -> None:
    reader = Reader(page, chain=rag(), question=QUESTION, llm=ChatOpenAI(model="gpt-4o-mini"))

    reader.read()

    assert [scorer for scorer in reader.scorers if not scorer.shutdown()] == []
    assert [name for name, suite in reader.namespace.items() if name.startswith("Test") and failing(suite)] == []


def test_what_another_instrumentation_traces_is_scored_as_the_page_says(
    desk: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_SDK_DISABLED")
    reader = Reader("docs/start/already-traced.md", chain=rag(), question=QUESTION)

    reader.read()
    (scorer,) = reader.scorers
    whole = scorer.shutdown()
    reader.namespace["provider"].shutdown()

    assert whole
    assert scorer.status().outcomes == {"faithfulness": {"scored": 2}}


def test_the_agent_of_the_page_is_its_unit_and_as_a_node_it_is_below_the_graphs(
    desk: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_SDK_DISABLED")
    exported, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    trace.set_tracer_provider(provider)
    reader = Reader("docs/start/langgraph.md")

    reader.read()
    graph = StateGraph(MessagesState).add_node("guide", reader.namespace["agent"]).add_edge(START, "guide")
    state = {"messages": [{"role": "user", "content": "How high is the tower?"}]}
    graph.compile(name="town").invoke(state, config={"callbacks": [reader.namespace["scorer"].handler]})
    assert reader.namespace["scorer"].flush(10)
    assert reader.namespace["scorer"].shutdown()

    spans = exported.get_finished_spans()
    scored = [span.name for span in spans if semconv.VERDICT in (span.attributes or {}) and span.parent is None]
    assert scored == ["invoke_agent guide", "invoke_workflow town"]
    page = (ROOT / "docs/start/langgraph.md").read_text("utf-8")
    assert "`invoke_agent guide`, has the scores" in page


def test_every_instrumentation_whose_spans_are_read_stands_on_the_page() -> None:
    page = (ROOT / "docs/start/already-traced.md").read_text("utf-8")

    assert {*re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)} == {*TRANSLATIONS.built_in}


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is(page: str) -> None:
    assert {language for language, _ in blocks(page)} <= {"python", "yaml", "json", "sh"} | SHOWN


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Enter a temporary folder with a model server and no provider; afterwards undo the page's imports and settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("SLACK_WEBHOOK_URL", "https://hooks.example/services/T0/B0")
    monkeypatch.setenv("WEBHOOK_SECRET", f"whsec_{'A' * 32}")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    for api, name in ((trace, "_TRACER_PROVIDER"), (metrics._internal, "_METER_PROVIDER")):
        monkeypatch.setattr(api, name, None)
        monkeypatch.setattr(api, f"{name}_SET_ONCE", Once())
    before = {*sys.modules}
    with OpenAIServer(judged) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield
    if instrumentation := sys.modules.get("openinference.instrumentation.langchain"):
        instrumentation.LangChainInstrumentor().uninstrument()
    for name in {*sys.modules} - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]
