"""An application with retrieval that can break: a real chain, a real scorer, three metrics of three kinds."""

from __future__ import annotations

import itertools
import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnablePassthrough
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from spanscore import OnlineScorer
from spanscore.core.score import Scale
from spanscore.metrics import BaseMetric, Faithfulness, ResponseRelevancy
from spanscore.protocols import Metric

RIVERS = {"Elder": 212, "Wend": 97, "Arrow": 340, "Mill": 58, "Tarn": 126, "Isk": 71, "Loam": 183, "Fenn": 264}
FILLER = "Ask the harbour office, which moved to the customs hall."
EMBELLISHED = 0.25
"""Half of such an answer is unsupported: the mean quality of every metric is 0.875 to 0.9."""
METRICS = ("faithfulness", "response_relevancy", "invention")


class Invention(BaseMetric):
    """Which share of the answer's sentences has no number of the contexts in it? Lower is better."""

    name = "invention"
    scale = Scale(direction="lower")
    requires = {"single_turn": ("response", "retrieved_contexts")}  # noqa: RUF012

    async def measure(self, sample: Any) -> float:
        known = set(re.findall(r"\d+", " ".join(sample.retrieved_contexts)))
        sentences = re.findall(r"[^.]+", sample.response)
        return sum(not known & set(re.findall(r"\d+", one)) for one in sentences) / len(sentences)


class Direction(Embeddings):
    """Embeddings: texts on kilometres point one way, all others away from it, some of them half."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        if not re.search(r"long|kilomet", text):
            return [-0.6, 0.8]
        return [0.6, 0.8] if "named after" in text else [1.0, 0.0]


class Library(BaseRetriever):
    """Finds the passage about a river; broken, it finds the town hall."""

    broken: threading.Event

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        if self.broken.is_set():
            return [Document(page_content="The town hall opens at nine o'clock.", id="hall")]
        name = next(river for river in RIVERS if river in query)
        return [Document(page_content=f"The river {name} is {RIVERS[name]} kilometres long.", id=name)]


class Guide(BaseChatModel):
    """Repeats the passage, and in a quarter of the cases adds more; without a river it does not answer the question."""

    rng: random.Random

    @property
    def _llm_type(self) -> str:
        return "guide"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        found = re.search(r"The river \w+ is \d+ kilometres long\.", str(messages[-1].content))
        said = found.group() if found else FILLER
        if found and self.rng.random() < EMBELLISHED:
            said += " The river was named after a poet."
        return ChatResult(generations=[ChatGeneration(message=AIMessage(said))])


class Application:
    """One service: a chain with its own scorer and scrape endpoint. ``broken`` breaks its retrieval.

    Attributes:
        port: of the scrape endpoint.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.broken = threading.Event()
        provider = TracerProvider(resource=Resource.create({"service.name": name}))
        self.scorer = OnlineScorer(metrics(), tracer_provider=provider, service_name=name)
        self.port = self.scorer.serve_metrics(0)
        prompt = ChatPromptTemplate.from_template("Answer from the passage.\n{passage}\n{question}")
        passage = Library(broken=self.broken) | (lambda found: found[0].page_content)
        self._chain = (
            {"passage": passage, "question": RunnablePassthrough()}
            | prompt
            | Guide(rng=random.Random(7))
            | StrOutputParser()
        )
        self._questions = itertools.cycle(f"How long is the river {river}?" for river in RIVERS)

    def ask(self) -> str:
        """Answer the next question."""
        return str(self._chain.invoke(next(self._questions), {"callbacks": [self.scorer.handler]}))


class Traffic:
    """Asks every application again and again, in step, until the block ends."""

    def __init__(self, *applications: Application, pause_s: float = 0.04) -> None:
        self._applications = applications
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._round = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._pause_s):
            with self._round:
                for application in self._applications:
                    application.ask()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Ask nothing meanwhile: every application was asked equally often."""
        with self._round:
            yield


def metrics() -> list[Metric]:
    """Return one metric in [0, 1], one that can be negative, and one with lower values as the better ones."""
    return [Faithfulness("lexical"), ResponseRelevancy("lexical", Direction()), Invention()]
