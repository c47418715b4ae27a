"""A provider's cache serves the questions of a unit that begin alike."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from tests.judges.langchain.wire import Exchanged, Wire, chat
from tests.servers.prefix_cache import PrefixCache

import spanscore
from spanscore.core.sample import SingleTurnSample
from spanscore.errors import ConfigurationError
from spanscore.judges import judge
from spanscore.metrics import AspectCritic, ContextRelevance, Faithfulness, ResponseGroundedness

CONTEXTS = [f"The bridge number {number} was opened in 1931 by the king. " * 80 for number in range(5)]
LONG = SingleTurnSample(
    user_input="When was it opened?", response="It was opened in 1931.", retrieved_contexts=CONTEXTS
)
SHORT = LONG.model_copy(update={"retrieved_contexts": ["It was opened in 1931."]})
ANSWERS = {
    '{"statements": [string, …]}': {"statements": ["It was opened in 1931."]},
    '{"statements": [{"statement"': {
        "statements": [{"statement": "It was opened in 1931.", "reason": "r", "verdict": 1}]
    },
    '{"first"': {"first": 2, "second": 2},
    '{"reason"': {"reason": "It is so.", "verdict": 1},
}
SHOWN = ["user_input", "response", "retrieved_contexts"]


def encode(text: str) -> list[str]:
    return re.findall(r"\w+|\W", text)


def answer_to(body: dict[str, Any]) -> str:
    content = body["messages"][-1]["content"]
    text = content if isinstance(content, str) else "".join(block["text"] for block in content)
    form = text.rpartition("Answer in JSON: ")[2]
    return json.dumps(next(answer for beginning, answer in ANSWERS.items() if form.startswith(beginning)))


class Caching:
    """A provider that answers at once, and counts the tokens that its cache reads."""

    def __init__(
        self, *, anthropic: bool = False, before: Callable[[dict[str, Any]], object] = lambda body: None
    ) -> None:
        self.cache = PrefixCache(encode)
        self.counted: list[Any] = []
        self._anthropic, self._before = anthropic, before

    def __call__(self, asked: Exchanged) -> None:
        self._before(asked.body)
        count = self.cache.of_anthropic if self._anthropic else self.cache.of_openai
        counted, add = count(asked.body)
        self.counted.append(counted)
        add()
        if self._anthropic:
            asked.send(200, message(answer_to(asked.body), counted))
        else:
            details = {"cached_tokens": counted.read}
            usage = {"prompt_tokens": counted.total, "completion_tokens": 9, "prompt_tokens_details": details}
            asked.say(answer_to(asked.body), usage={**usage, "total_tokens": counted.total + 9})

    @property
    def cached_share(self) -> float:
        return sum(one.read for one in self.counted) / sum(one.total for one in self.counted)


def message(text: str, counted: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": counted.total - counted.read - counted.written,
        "cache_read_input_tokens": counted.read,
        "cache_creation_input_tokens": counted.written,
        "output_tokens": 9,
    }
    about = {"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "stop_sequence": None}
    return {**about, "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "usage": usage}


def claude(wire: Wire) -> Any:
    anthropic = pytest.importorskip("langchain_anthropic")
    return anthropic.ChatAnthropic(model="claude-sonnet-4-5", base_url=wire.url.removesuffix("/v1"), api_key="none")


def metrics(model: Any, **settings: Any) -> list[Any]:
    asked = judge(model, **settings)
    critic = AspectCritic(asked, name="cited", definition="The response cites a context.", fields=SHOWN)
    return [Faithfulness(asked), ContextRelevance(asked), ResponseGroundedness(asked), critic]


def evaluated(answer: Callable[[Exchanged], None], sample: SingleTurnSample = LONG, **settings: Any) -> Wire:
    with Wire(answer) as wire:
        result = spanscore.evaluate_sync([sample], metrics(chat(wire), **settings))
    assert [row.outcome for row in result.rows] == ["scored"] * 4
    return wire


def test_most_of_a_units_tokens_are_read_from_openais_cache() -> None:
    openai = Caching()

    wire = evaluated(openai)

    shared = [body for body in wire.requests if body["messages"][1]["content"].startswith('<evidence>{"retrieved')]
    assert len(shared) == 4
    assert {json.dumps(body["response_format"]) for body in shared} == {'{"type": "json_object"}'}
    assert len({body["prompt_cache_key"] for body in shared}) == 1
    assert openai.cached_share > 0.6


def test_the_key_of_a_unit_is_the_same_in_every_process() -> None:
    assert keys_of(LONG) == {"93b2fc88cb518c22"}


def test_units_with_different_contexts_have_different_keys() -> None:
    others = [[*CONTEXTS[:-1], "It was closed in 1999."], CONTEXTS[::-1]]

    assert len(set().union(*(keys_of(LONG.model_copy(update={"retrieved_contexts": texts})) for texts in others))) == 2


def keys_of(sample: SingleTurnSample) -> set[str]:
    """Return the keys for OpenAI's cache that the questions about a sample have."""
    return {body["prompt_cache_key"] for body in evaluated(Caching(), sample).requests if "prompt_cache_key" in body}


@pytest.mark.parametrize("settings", [{"prompt_cache": False}, {"structured": "schema"}])
def test_with_schemas_in_front_little_is_read_from_the_cache(settings: dict[str, Any]) -> None:
    openai = Caching()

    evaluated(openai, **settings)

    assert openai.cached_share < 0.3  # the two questions with equal schemas


def test_short_samples_are_asked_with_their_schemas_and_without_a_key() -> None:
    wire = evaluated(Caching(), SHORT)

    assert {body["response_format"]["type"] for body in wire.requests} == {"json_schema"}
    assert not any("prompt_cache_key" in body for body in wire.requests)


def test_the_only_question_about_the_contexts_is_asked_with_its_schema() -> None:
    with Wire(Caching()) as wire:
        spanscore.evaluate_sync([LONG], [Faithfulness(judge(chat(wire)))])

    assert {body["response_format"]["type"] for body in wire.requests} == {"json_schema"}


def test_questions_that_begin_alike_wait_for_the_answer_to_the_first() -> None:
    arrived, alone = list[str](), threading.Event()

    def before(body: dict[str, Any]) -> None:
        if "retrieved_contexts" in body["messages"][1]["content"][:40]:
            arrived.append("question")
            if len(arrived) == 1:
                alone.wait(0.3)
                arrived.append("first answered")

    evaluated(Caching(before=before))

    assert arrived[:2] == ["question", "first answered"]
    assert arrived.count("question") == 4


@pytest.mark.parametrize("wait_s", [0, 0.01])
def test_no_question_waits_for_the_first_for_longer_than_the_wait(wait_s: float) -> None:
    together = threading.Barrier(3)  # relevance, groundedness and the critic, of which one is the first

    def before(body: dict[str, Any]) -> None:
        if "retrieved_contexts" in body["messages"][1]["content"][:40] and not together.broken:
            together.wait(20)
            together.abort()

    evaluated(Caching(before=before), prompt_cache_wait=wait_s)


def test_anthropics_mark_is_on_the_contexts_alone_and_no_tool_stands_in_front() -> None:
    provider = Caching(anthropic=True)
    with Wire(provider) as wire:
        result = spanscore.evaluate_sync([LONG], metrics(claude(wire)))

    contents = [body["messages"][0]["content"] for body in wire.requests]
    marked = [content for content in contents if isinstance(content, list)]
    assert [row.outcome for row in result.rows] == ["scored"] * 4
    assert len(marked) == 4
    assert {content[0]["text"] for content in marked} == {f'<evidence>{{"retrieved_contexts":{compact(CONTEXTS)}'}
    assert all("cache_control" in content[0] and "cache_control" not in content[1] for content in marked)
    assert not any("tools" in body for body in wire.requests if isinstance(body["messages"][0]["content"], list))
    assert [bool(counted.written) for counted in provider.counted].count(True) == 1
    assert provider.cached_share > 0.6


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def test_tokens_written_to_the_cache_are_billed_at_their_own_price() -> None:
    provider = Caching(anthropic=True)
    prices = {"claude-sonnet-4-5": (3.0, 15.0, 0.3, 0.5, 3.75)}
    with Wire(provider) as wire:
        result = spanscore.evaluate_sync([LONG], metrics(claude(wire), prices=prices))

    plain = [one.total - one.read - one.written for one in provider.counted]
    bill = sum(
        3.0 * rest + 0.3 * one.read + 3.75 * one.written + 15.0 * 9
        for rest, one in zip(plain, provider.counted, strict=True)
    )
    assert sum(row.cost_usd or 0.0 for row in result.rows) == pytest.approx(bill / 1e6)


def test_a_single_question_about_the_contexts_is_not_written_to_anthropics_cache() -> None:
    provider = Caching(anthropic=True)
    with Wire(provider) as wire:
        spanscore.evaluate_sync([LONG], [Faithfulness(judge(claude(wire)))])

    assert [counted.written for counted in provider.counted] == [0, 0]


def test_a_provider_that_does_not_know_the_mark_is_asked_without_it() -> None:
    provider = Caching(anthropic=True)

    def answer(asked: Exchanged) -> None:
        if "cache_control" in json.dumps(asked.body):
            error = {
                "type": "invalid_request_error",
                "message": "messages.0.content.0.cache_control: Extra inputs are not permitted",
            }
            return asked.send(400, {"type": "error", "error": error})
        return provider(asked)

    with Wire(answer) as wire:
        result = spanscore.evaluate_sync([LONG], metrics(claude(wire)))

    assert [row.outcome for row in result.rows] == ["scored"] * 4


@pytest.mark.parametrize("wrong", [-1, float("nan")])
def test_a_wait_is_a_number_of_seconds(wrong: float) -> None:
    with pytest.raises(ConfigurationError, match="prompt_cache_wait is"):
        judge(FakeListChatModel(responses=[]), prompt_cache_wait=wrong)
