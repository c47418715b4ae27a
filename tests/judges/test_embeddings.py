"""Texts → vectors: LangChain's, and the offline ones."""

from __future__ import annotations

import asyncio
import json
from math import hypot
from threading import Event
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from tests.judges.langchain.wire import Exchanged, Wire, chat
from tests.judges.models import ProviderError
from tests.servers.openai_api import embedded

from spanscore.config.judging import Budget
from spanscore.core.context import is_judging
from spanscore.core.sample import SingleTurnSample
from spanscore.errors import ConfigurationError, JudgeError, JudgeTimeout, JudgeUnavailable
from spanscore.judges import LangChainEmbedder, LangChainJudge, LexicalEmbedder, embedder
from spanscore.judges.effects.budget_ledger import BudgetLedger
from spanscore.judges.effects.middleware import account_of
from spanscore.judges.embeddings import embedder_name
from spanscore.judges.records import recorded_calls
from spanscore.judges.score_context import ScoreContext, asked_by
from spanscore.metrics import ResponseRelevancy
from spanscore.testing import ScriptedEmbeddings


class Fake(Embeddings):
    """Embeds a text as its length. Records whether it was called inside the suppression."""

    model = "fake-embeddings-1"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.suppressed: list[bool] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.suppressed.append(is_judging())
        if self.error:
            raise self.error
        return [[len(text), 1] for text in texts]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        raise AssertionError

    def embed_query(self, text: str) -> list[float]:
        raise AssertionError


async def test_langchain_embeddings_are_asked_once_for_all_texts_and_unseen() -> None:
    fake = Fake()

    vectors = await embedder(fake).embed(["one", "three"])

    assert vectors == [[3.0, 1.0], [5.0, 1.0]]
    assert fake.suppressed == [True]


async def test_while_a_question_for_vectors_waits_the_clock_of_its_score_stands_still() -> None:
    free, changed = Event(), asyncio.Event()
    score = ScoreContext(metric="m", on_change=changed.set)

    class Slow(Fake):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            free.wait(10)
            return super().embed_documents(texts)

    made = embedder(Slow())  # one at once, as it computes in this process
    first = asyncio.ensure_future(made.embed(["one"]))
    with asked_by(score):
        second = asyncio.ensure_future(made.embed(["three"]))
    await asyncio.wait_for(changed.wait(), 5)

    assert score.is_waiting
    free.set()
    assert await asyncio.gather(first, second) == [[[3.0, 1.0]], [[5.0, 1.0]]]
    assert not score.is_waiting


async def test_a_failing_provider_is_a_judge_s_error_that_quotes_nothing() -> None:
    with pytest.raises(JudgeUnavailable) as raised:
        await embedder(Fake(ProviderError(503)), max_attempts=1).embed(["SECRET"])

    assert "SECRET" not in str(raised.value)


def openai_embeddings(wire: Wire, **settings: Any) -> Any:
    from langchain_openai import OpenAIEmbeddings

    named = {"model": "text-embedding-3-small", "base_url": wire.url, "api_key": "sk-secret"}
    return OpenAIEmbeddings(**named, check_embedding_ctx_length=False, **settings)


async def test_a_request_for_vectors_is_a_call_with_its_tokens_and_cost() -> None:
    with Wire(lambda asked: asked.send(200, embedded(asked.body))) as wire, recorded_calls() as calls:
        made = embedder(openai_embeddings(wire), prices={"text-embedding-3-small": (0.02, 0.0)})
        vectors = await made.embed(["one", "two"])

    assert vectors == [[1.0, 0.0], [1.0, 0.0]]
    assert [(call.step, call.input_tokens, call.estimated) for call in calls] == [("embed", 20, False)]
    assert calls[0].cost_usd == pytest.approx(20 * 0.02 / 1e6)


async def test_a_long_list_of_texts_is_several_requests_and_each_is_a_call() -> None:
    with Wire(lambda asked: asked.send(200, embedded(asked.body))) as wire, recorded_calls() as calls:
        vectors = await embedder(openai_embeddings(wire, chunk_size=1)).embed(["one", "two", "three"])

    assert (len(wire.requests), len(vectors), [call.input_tokens for call in calls]) == (3, 3, [20] * 3)


async def test_requests_that_were_answered_before_one_that_was_refused_are_calls_too() -> None:
    def answer(asked: Exchanged) -> None:
        if len(wire.requests) < 3:
            asked.send(200, embedded(asked.body))
        else:
            asked.refuse(401)

    with Wire(answer) as wire, recorded_calls() as calls, pytest.raises(JudgeError):
        await embedder(openai_embeddings(wire, chunk_size=1)).embed(["one", "two", "three"])

    assert [(call.input_tokens, call.error_type) for call in calls] == [(20, None), (20, None), (0, "not_allowed")]


async def test_each_of_several_requests_for_vectors_is_paid_from_a_budget() -> None:
    budget_ledger = BudgetLedger([Budget(calls=10, per="1h")])

    with (
        Wire(lambda asked: asked.send(200, embedded(asked.body))) as wire,
        asked_by(ScoreContext("m", budget_ledger=budget_ledger)),
    ):
        await embedder(openai_embeddings(wire, chunk_size=1)).embed(["one", "two", "three"])

    assert budget_ledger.spent(budget_ledger.budgets[0]) == 3


async def test_tokens_that_nobody_tells_are_estimated_and_said_to_be() -> None:
    with recorded_calls() as calls:
        await embedder(Fake()).embed(["one " * 7])

    assert [(call.input_tokens, call.estimated) for call in calls] == [(8, True)]


async def test_embeddings_that_fail_are_asked_again_by_us_alone_and_each_request_is_a_call() -> None:
    with Wire(lambda asked: asked.refuse(500)) as wire, recorded_calls() as calls, pytest.raises(JudgeUnavailable):
        await embedder(openai_embeddings(wire), max_attempts=2).embed(["one"])

    assert len(wire.requests) == 2
    assert [(call.step, call.error_type) for call in calls] == [("embed", "http_500")] * 2


async def test_embeddings_that_hang_end_at_their_deadline() -> None:
    with Wire(lambda asked: wire.closing.wait(10)) as wire, pytest.raises(JudgeTimeout):
        await embedder(openai_embeddings(wire), timeout=0.2, max_attempts=1).embed(["one"])

    assert len(wire.requests) == 1


async def test_embeddings_that_were_given_up_have_their_estimated_cost_each_time() -> None:
    prices = {"text-embedding-3-small": (1.0, 0.0)}
    with Wire(lambda asked: wire.closing.wait(10)) as wire, recorded_calls() as calls, pytest.raises(JudgeTimeout):
        await embedder(openai_embeddings(wire), timeout=0.2, max_attempts=2, prices=prices).embed(["one"])

    assert len(calls) == 2
    assert all(call.estimated and call.cost_usd == pytest.approx(call.input_tokens / 1e6) for call in calls)


async def test_too_few_vectors_are_no_answer() -> None:
    with Wire(lambda asked: asked.send(200, {**embedded(asked.body), "data": []})) as wire, pytest.raises(JudgeError):
        await embedder(openai_embeddings(wire), max_attempts=1).embed(["one"])


def test_embeddings_and_a_judge_of_one_key_are_distinguished_by_their_model() -> None:
    with Wire(lambda asked: None) as wire:
        made = [LangChainEmbedder(openai_embeddings(wire)) for _ in range(2)]

    assert account_of(made[0]) == account_of(made[1])
    assert account_of(made[0]) != LangChainJudge(chat(wire)).account


async def test_who_made_the_vectors_is_no_judge_of_the_score() -> None:
    def answer(asked: Exchanged) -> None:
        if "messages" in asked.body:
            return asked.say(json.dumps({"question": "Hello?", "noncommittal": 0}))
        return asked.send(200, embedded(asked.body))

    with Wire(answer) as wire:
        metric = ResponseRelevancy(chat(wire), openai_embeddings(wire), strictness=1)
        score = await metric.score(SingleTurnSample(user_input="Hello?", response="Good morning."))

    assert (score.value, score.judge_model) == (1.0, "gpt-4o-mini")
    assert "embed" in {call.step for call in score.usage.calls}


def test_an_embedder_is_returned_as_it_is() -> None:
    own = ScriptedEmbeddings({})

    assert embedder(own) is own
    assert isinstance(embedder("lexical"), LexicalEmbedder)


def test_embeddings_are_distinguished_by_their_model() -> None:
    assert embedder_name(LangChainEmbedder(Fake())) == "fake-embeddings-1"
    assert embedder_name(ScriptedEmbeddings({})) == "ScriptedEmbeddings"


@pytest.mark.parametrize("given", [None, 7, object()])
def test_what_makes_no_embeddings_is_refused(given: object) -> None:
    with pytest.raises(ConfigurationError, match="Give LangChain embeddings"):
        embedder(given)


async def test_offline_vectors_are_alike_for_texts_that_share_words() -> None:
    asked, close, far = await LexicalEmbedder().embed(
        ["When did the Orlo bridge open?", "The Orlo bridge opened in 1931.", "Bees keep warm in winter."]
    )

    assert _cosine(asked, close) > 0.7
    assert _cosine(asked, far) < 0.1


async def test_offline_vectors_are_the_same_in_every_process() -> None:
    (vector,) = await LexicalEmbedder(size=8).embed(["Orlo bridge 1931"])

    assert vector == (await LexicalEmbedder(size=8).embed(["Orlo bridge 1931"]))[0]
    assert sum(vector) == 3.0


def _cosine(one: list[float], other: list[float]) -> float:
    return sum(x * y for x, y in zip(one, other, strict=True)) / hypot(*one) / hypot(*other)


def test_a_name_without_provider_is_answered_with_the_form() -> None:
    with pytest.raises(ConfigurationError, match="provider:model"):
        embedder("text-embedding-3-small")
