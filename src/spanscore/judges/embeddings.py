"""Embedders: any LangChain embeddings with the limits of their account, and an offline embedder that counts words."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import inf
from typing import Any, TypedDict, Unpack

from pydantic import BaseModel

from spanscore.core.log import type_name
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.score import JudgeCall
from spanscore.errors import ConfigurationError, JudgeUnparseable
from spanscore.judges.ask import call_judge
from spanscore.judges.effects.cost import Priced, budgeted
from spanscore.judges.effects.limited import RateLimited
from spanscore.judges.langchain.client import BlockingCalls, own_client
from spanscore.judges.langchain.errors import judge_error
from spanscore.judges.langchain.message import Exchange, Tokens, use_exchange
from spanscore.judges.langchain.models import account_of_model, is_in_process, model_name, named_embeddings
from spanscore.judges.lexical.words import words
from spanscore.judges.records import EMBED_STEP, record, transcribe_vectors, with_names
from spanscore.judges.rendering import estimate
from spanscore.protocols import Embedder

_BYTES, _BYTES_PER_TEXT = 2_000_000, 200_000
"""Most bytes of a response: a constant, and the bytes of each vector. 8,000 numbers take some 170 kB as digits."""


class EmbedderLimits(TypedDict, total=False):
    """Keywords of ``embedder()``, with the meaning of ``judge()``'s."""

    max_attempts: int | None
    max_concurrency: int | None
    timeout: float | None
    queue_timeout: float | None
    requests_per_minute: float | None
    tokens_per_minute: float | None


class LangChainEmbedder:
    """An embedder that uses a copy of LangChain ``Embeddings`` without retries, and the shared limiter of the account.

    No instrumentation traces its requests; each request is a recorded call.

    Args:
        embeddings: the LangChain embeddings. The object is not changed.
        prices: model → USD per million tokens, as in ``judge()``.
        limits: keywords of ``judge()`` for attempts, places, deadlines and rates.

    Attributes:
        asked: the embeddings as a judge, with a judge's middleware; its answers are vectors.
        model: the model's configured name, or the name of the class.
    """

    def __init__(
        self,
        embeddings: Any,
        *,
        prices: Mapping[str, Sequence[float]] | None = None,
        **limits: Unpack[EmbedderLimits],
    ) -> None:
        client = _EmbeddingsClient(embeddings, limits.get("timeout") or 30.0)
        self.account = client.account
        self.model = client.model
        self.asked = budgeted(RateLimited(Priced(client, prices or {}), **limits))

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text; all texts are embedded in one question.

        Raises:
            JudgeError: a failure of the request, as in a judge; its message quotes no text.
        """
        question = Prompt(step=EMBED_STEP, instruction="", evidence={"texts": list(texts)}, output=_Vectors)
        reply = await call_judge(self.asked, question)
        assert isinstance(reply, _VectorsReply)
        took_s = reply.duration_s or 0.0
        call = _call(reply.model, reply.input_tokens, took_s, estimated=reply.is_estimated, cost_usd=reply.cost_usd)
        record(with_names(self, call))
        return reply.vectors


class _Vectors(BaseModel):
    """The shape of an embedding answer, which is not parsed from a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _VectorsReply(Reply):
    """An answer with vectors.

    Attributes:
        vectors: one vector per text, in the order of the texts.
        is_estimated: whether the number of its tokens is an estimate.
    """

    vectors: list[list[float]]
    is_estimated: bool


class _EmbeddingsClient:
    """The embeddings as a judge whose question is the texts, so that a judge's middleware can wrap them."""

    reads_instructions = False

    def __init__(self, embeddings: Any, timeout_s: float) -> None:
        self._embeddings = embeddings  # kept alive: accounts identify it by its id
        self.account = account_of_model(embeddings)
        self.in_process = is_in_process(embeddings)
        self._own, self.own_attempts, self.notes = own_client(embeddings, timeout_s)
        self._timeout_s = timeout_s
        self._calls = BlockingCalls()

    @property
    def model(self) -> str:
        """The model's configured name, or the name of the class."""
        return model_name(self._embeddings)

    @property
    def drawing(self) -> dict[str, Any]:
        """Settings that distinguish embeddings without a model's name from others of their class; otherwise empty."""
        if self.model != type_name(self._embeddings):
            return {}
        attributes = getattr(self._embeddings, "__dict__", {})
        return {
            name: value for name, value in attributes.items() if isinstance(value, str | int | float | list | tuple)
        }

    async def ask(self, prompt: Prompt) -> Reply:
        """Return the vectors of the question's texts."""
        texts: list[str] = prompt.evidence["texts"]
        exchange = Exchange(time.monotonic() + self._timeout_s, _BYTES + _BYTES_PER_TEXT * len(texts), inf)
        started_s = time.perf_counter()
        try:
            vectors = await self._embed(texts, exchange)
        except Exception as error:
            failure = judge_error(error, prompt.step, exchange)
            if not failure.input_tokens:  # otherwise the error has the tokens of all requests
                self._record(exchange.usages, time.perf_counter() - started_s, estimated=False)
            raise failure from error
        if len(vectors) != len(texts):
            raise JudgeUnparseable(f"{prompt.step}: {len(vectors)} vectors for {len(texts)} texts")
        has_usage = exchange.is_counted and exchange.tokens.input > 0
        # A client splits many texts into several requests, of equal duration here, because the durations are not known.
        usages = exchange.usages if has_usage else _divide(estimate("".join(texts)), max(1, len(exchange.usages)))
        *earlier, last = usages
        took_s = (time.perf_counter() - started_s) / len(usages)
        self._record(earlier, took_s * len(earlier), estimated=not has_usage)
        return _VectorsReply(
            text="",
            model=str(exchange.json_body.get("model") or self.model),
            input_tokens=last.input,
            duration_s=took_s,
            headers=exchange.headers,
            vectors=[[float(number) for number in vector] for vector in vectors],
            is_estimated=not has_usage,
        )

    def _record(self, requests: Sequence[Tokens], took_s: float, *, estimated: bool) -> None:
        """Record requests as calls, which together took ``took_s`` seconds."""
        for tokens in requests:
            record(_call(self.model, tokens.input, took_s / len(requests), estimated=estimated))

    async def _embed(self, texts: list[str], exchange: Exchange) -> list[list[float]]:
        client = self._own

        def call() -> list[list[float]]:
            with use_exchange(exchange):
                vectors: list[list[float]] = client.embed_documents(texts)
                return vectors

        return await self._calls.run(call, lambda: client.aembed_documents(texts))


def _call(model: str, tokens: int, took_s: float, *, estimated: bool, cost_usd: float | None = None) -> JudgeCall:
    return JudgeCall(
        step=EMBED_STEP,
        model=model,
        input_tokens=tokens,
        cost_usd=cost_usd,
        duration_s=took_s,
        estimated=estimated,
        transcript=transcribe_vectors(),
    )


def _divide(tokens: int, requests: int) -> list[Tokens]:
    return [Tokens(tokens // requests + (index < tokens % requests)) for index in range(requests)]


def embedder(
    embeddings: Any, *, prices: Mapping[str, Sequence[float]] | None = None, **limits: Unpack[EmbedderLimits]
) -> Embedder:
    """Return an embedder.

    Args:
        embeddings: LangChain embeddings; the name of a model in the syntax of ``init_embeddings``
            (``"openai:text-embedding-3-small"``); ``"lexical"`` for the offline embedder; or an Embedder, returned unchanged.
        prices: model → USD per million tokens, as in ``judge()``; for LangChain embeddings.
        limits: ``max_attempts``, ``max_concurrency``, ``timeout`` and so on, as in ``judge()``; for LangChain embeddings.

    Raises:
        ConfigurationError: ``embeddings`` is of another type, or its library is missing.
    """
    if embeddings == "lexical":
        return LexicalEmbedder()
    if isinstance(embeddings, str):
        embeddings = named_embeddings(embeddings)
    if callable(getattr(embeddings, "embed", None)):
        embedder: Embedder = embeddings
        return embedder
    if callable(getattr(embeddings, "aembed_documents", None)):
        return LangChainEmbedder(embeddings, prices=prices, **limits)
    raise ConfigurationError(
        f"embeddings is a {type(embeddings).__name__}. Give LangChain embeddings (OpenAIEmbeddings() …) or 'lexical'"
    )


def embedder_name(embedder: Embedder) -> str:
    """Return an embedder's name for a metric's version: the name of its model, or of its class without a model."""
    return str(getattr(embedder, "model", None) or type(embedder).__name__)


class LexicalEmbedder:
    """An embedder that counts word stems, hashed into ``size`` dimensions; deterministic, offline, for English.

    Texts with common words are similar. Meaning has no effect: "cheap" and "inexpensive" are unrelated. A text that has only
    function words is the zero vector.
    """

    model = "lexical-1"

    def __init__(self, size: int = 512) -> None:
        self._size = size

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector of counts per text."""
        return [self._counts(text) for text in texts]

    def _counts(self, text: str) -> list[float]:
        vector = [0.0] * self._size
        text_words = words(text)
        for stem in (*text_words.content, *sorted(text_words.numbers)):
            vector[int.from_bytes(blake2b(stem[:5].encode(), digest_size=4).digest()) % self._size] += 1.0
        return vector
