"""A real Phoenix shows a chain's spans with their kinds, the retrieved documents and the tokens written to a cache."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.live import Grounded
from tests.servers.phoenix import Phoenix

from spanscore import OnlineScorer
from spanscore.config import Capture, Outputs

pytestmark = pytest.mark.server

USAGE = {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10, "input_token_details": {"cache_creation": 4}}


class Shelf(BaseRetriever):
    """Finds documents without a score, as most vector stores do."""

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        return [Document("Paris is the capital.", id="doc-1"), Document("Rome is not.")]


def test_kinds_documents_and_cached_tokens_are_shown(phoenix: Phoenix) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=phoenix.traces_endpoint)))
    model = GenericFakeChatModel(messages=iter([AIMessage("Paris.", usage_metadata=USAGE)]))
    chain = Shelf() | RunnableLambda(str) | model
    with OnlineScorer(
        [Grounded()],
        tracer_provider=provider,
        capture=Capture(content=True),
        outputs=Outputs(evaluation_span=False, event=False, instruments=False),
    ) as scorer:
        run_id = uuid4()
        asked = {"callbacks": [scorer.handler], "metadata": {"thread_id": "t-1"}, "run_id": run_id}
        chain.invoke("Which is the capital?", config=asked)
        assert scorer.flush(20)
        unit = scorer.unit_id(run_id)
        assert unit is not None

    spans = {span["name"].split()[0]: span for span in phoenix.spans(unit.trace_id, lambda found: len(found) == 3)}

    kinds = {name: span["span_kind"] for name, span in spans.items()}
    assert kinds == {"invoke_workflow": "CHAIN", "retrieval": "RETRIEVER", "chat": "LLM"}
    found = spans["retrieval"]["attributes"]
    assert found["retrieval.documents.0.document.content"] == "Paris is the capital."
    assert found["retrieval.documents.1.document.content"] == "Rome is not."
    assert spans["chat"]["attributes"]["llm.token_count.prompt_details.cache_write"] == 4
    assert {span["attributes"]["session.id"] for span in spans.values()} == {"t-1"}
