"""A judge asks through a copy of the user's client: no retries of its own, a deadline for the whole answer, a bound to it."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import pytest
from langchain_core.runnables import ConfigurableField, RunnableLambda
from openai import DefaultHttpxClient
from tests.judges.langchain.wire import Exchanged, Wire, chat
from tests.judges.models import CRITIQUE_JSON, QUESTION, PlainModel

from spanscore.errors import JudgeError, JudgeTimeout, JudgeUnavailable
from spanscore.judges import LangChainJudge, judge
from spanscore.judges.effects.limited import RateLimited
from spanscore.judges.effects.middleware import layers


async def refused(judge: LangChainJudge) -> JudgeError:
    with pytest.raises(JudgeError) as raised:
        await judge.ask(QUESTION)
    return raised.value


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_one_attempt_is_one_request(status: int) -> None:
    with Wire(lambda asked: asked.refuse(status, headers={"retry_after": "1"})) as wire:
        error = await refused(LangChainJudge(chat(wire)))

    assert isinstance(error, JudgeUnavailable)
    assert len(wire.requests) == 1


COMPOSED: dict[str, Callable[[Any], Any]] = {
    "bound": lambda model: model.bind(stop=["x"]),
    "in a sequence": lambda model: RunnableLambda(lambda messages: messages) | model,
    "with a fallback": lambda model: model.with_fallbacks([model], exceptions_to_handle=(KeyError,)),
    "configurable": lambda model: model.configurable_fields(temperature=ConfigurableField("temperature")),
}


@pytest.mark.parametrize("how", COMPOSED)
async def test_one_attempt_is_one_request_wherever_the_model_is_inside(how: str) -> None:
    with Wire(lambda asked: asked.refuse(500)) as wire:
        await refused(LangChainJudge(COMPOSED[how](chat(wire))))

    assert len(wire.requests) == 1


async def test_a_redirect_loop_is_followed_three_times() -> None:
    with Wire(lambda asked: asked.send(307, b"", location=f"{wire.url}/chat/completions")) as wire:
        error = await refused(LangChainJudge(chat(wire)))

    assert error.error_type == "http_307"
    assert len(wire.requests) == 4


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("to", ["http://localhost:{port}", "http://127.0.0.1:{other}", "https://127.0.0.1:{port}"])
async def test_a_redirect_to_another_scheme_host_or_port_is_not_followed(status: int, to: str) -> None:
    with Wire(lambda asked: asked.say(CRITIQUE_JSON)) as remote_scoring:
        ports = {"other": urlsplit(remote_scoring.url).port}

        def away(asked: Exchanged) -> None:
            asked.send(status, b"", location=f"{to.format(port=urlsplit(wire.url).port, **ports)}/v1/chat/completions")

        with Wire(away) as wire:
            error = await refused(LangChainJudge(chat(wire)))

    assert error.error_type == f"http_{status}"
    assert (len(wire.requests), remote_scoring.requests) == (1, [])


async def test_a_redirect_within_the_same_origin_is_followed() -> None:
    def moved(asked: Exchanged) -> None:
        if asked.path.endswith("/moved"):
            asked.say(CRITIQUE_JSON)
        else:
            asked.send(307, b"", location=f"{wire.url}/moved")

    with Wire(moved) as wire:
        assert (await LangChainJudge(chat(wire)).ask(QUESTION)).text == CRITIQUE_JSON


async def test_an_answer_is_read_no_further_than_its_bound_inflated() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)

    with Wire(lambda asked: asked.send(200, bomb, content_encoding="gzip")) as wire:
        error = await refused(LangChainJudge(chat(wire), max_answer_bytes=100_000))

    assert error.error_type == "too_big"


async def test_an_endless_answer_is_hung_up_on() -> None:
    sent: list[int] = []

    def endless(asked: Exchanged) -> None:
        asked.send_response(200)
        asked.send_header("content-type", "application/json")
        asked.end_headers()
        while not wire.closing.is_set():
            sent.append(asked.wfile.write(b" " * 65_536))

    with Wire(endless) as wire:
        error = await refused(LangChainJudge(chat(wire), max_answer_bytes=100_000))

    assert error.error_type == "too_big"
    assert sum(sent) < 20_000_000  # data in the sockets' buffers


@pytest.mark.parametrize("where", ["headers", "body"])
async def test_a_drip_ends_with_the_attempt(where: str) -> None:
    drips: list[int] = []

    def drip(asked: Exchanged) -> None:
        asked.wfile.write(b"HTTP/1.1 200 OK\r\nx-a: " if where == "headers" else b"HTTP/1.1 200 OK\r\n\r\n")
        while not wire.closing.wait(0.1):
            drips.append(asked.wfile.write(b" "))
            asked.wfile.flush()

    with Wire(drip) as wire:
        error = await refused(LangChainJudge(chat(wire), timeout=0.5))

    assert isinstance(error, JudgeTimeout)
    assert len(drips) < 10


async def test_the_user_s_model_is_as_it_was() -> None:
    with Wire(lambda asked: asked.say(CRITIQUE_JSON)) as wire:
        model = chat(wire, max_retries=5, timeout=7)
        before = everything(model)
        await LangChainJudge(model, timeout=3).ask(QUESTION)

    assert everything(model) == before


async def test_a_client_of_the_user_s_own_is_kept_with_all_that_is_set_on_it() -> None:
    with Wire(lambda asked: asked.say(CRITIQUE_JSON)) as wire:
        own = http_client(headers={"x-tenant": "seven"})
        model = chat(wire, http_client=own)
        before = dict(vars(own))
        reply = await LangChainJudge(model).ask(QUESTION)

    assert (reply.text, wire.headers[0]["x-tenant"]) == (CRITIQUE_JSON, "seven")
    assert vars(own) == before
    assert not own.is_closed


async def test_a_transport_of_the_user_s_own_is_asked_and_bounded() -> None:
    class Counting(httpx().HTTPTransport):  # type: ignore[misc]
        asked = 0

        def handle_request(self, request: Any) -> Any:
            Counting.asked += 1
            return super().handle_request(request)

    with Wire(lambda asked: asked.say("x" * 5_000)) as wire:
        judge = LangChainJudge(chat(wire, http_client=http_client(transport=Counting())), max_answer_bytes=1_000)
        error = await refused(judge)

    assert (error.error_type, Counting.asked) == ("too_big", 1)


def azure(wire: Wire) -> Any:
    from langchain_openai import AzureChatOpenAI

    where = wire.url.removesuffix("/v1")
    return AzureChatOpenAI(azure_endpoint=where, azure_deployment="m", api_version="2024-10-21", api_key="none")


def anthropic(wire: Wire) -> Any:
    made = pytest.importorskip("langchain_anthropic").ChatAnthropic
    return made(model="claude-haiku-4-5", base_url=wire.url.removesuffix("/v1"), api_key="none")


def google(wire: Wire) -> Any:
    made = pytest.importorskip("langchain_google_genai").ChatGoogleGenerativeAI
    return made(model="gemini-2.0-flash", base_url=wire.url.removesuffix("/v1"), api_key="none")


@pytest.mark.parametrize("made", [azure, anthropic, google])
async def test_the_own_retries_of_every_client_that_is_known_are_off(made: Callable[[Wire], Any]) -> None:
    with Wire(lambda asked: asked.refuse(500)) as wire:
        judge = LangChainJudge(made(wire))
        error = await refused(judge)

    assert isinstance(error, JudgeUnavailable)
    assert (len(wire.requests), judge.own_attempts, judge.notes) == (1, 1, ())


def test_a_client_whose_retries_cannot_be_switched_off_says_so_and_the_attempts_are_divided() -> None:
    class Stubborn(PlainModel):
        max_retries: int = 3

    made = LangChainJudge(Stubborn())
    (limited,) = (layer for layer in layers(judge(Stubborn(), max_attempts=4)) if isinstance(layer, RateLimited))

    assert (made.own_attempts, limited.max_attempts) == (4, 1)
    assert made.notes == ("the own retries of Stubborn could not be switched off: an attempt may be 4 requests",)


async def test_what_is_bound_to_a_model_stays_bound() -> None:
    with Wire(lambda asked: asked.refuse(500)) as wire:
        await refused(LangChainJudge(chat(wire).bind(temperature=0.5)))

    assert [body["temperature"] for body in wire.requests] == [0.5]


async def test_a_judge_asks_on_connections_of_its_own() -> None:
    with Wire(lambda asked: asked.say(CRITIQUE_JSON)) as wire:
        model = chat(wire)
        await LangChainJudge(model).ask(QUESTION)

        assert model.root_client._client._transport._pool.connections == []


def test_a_forked_child_asks_on_no_connection_of_its_parent() -> None:
    callers: list[int] = []

    def answer(asked: Exchanged) -> None:
        callers.append(asked.client_address[1])
        asked.say(CRITIQUE_JSON)

    with Wire(answer) as wire:
        made = LangChainJudge(chat(wire))
        for _ in range(2):
            asyncio.run(made.ask(QUESTION))
        if not (child := os.fork()):
            asyncio.run(asyncio.wait_for(made.ask(QUESTION), 20))
            os._exit(0)
        os.waitpid(child, 0)

    assert callers[0] == callers[1] != callers[2]


def everything(model: Any) -> dict[str, Any]:
    """All that can be seen of a model and its clients."""
    clients = {"root": model.root_client, "http": model.root_client._client}
    seen = {f"{name}.{key}": value for name, client in clients.items() for key, value in vars(client).items()}
    seen.pop("http._state")  # httpx's own: whether it was used, which langchain's shared client may be by others
    return {**vars(model), **seen}


def httpx() -> Any:
    """The one of httpx and httpx2 that the installed client is built on."""
    return import_module(DefaultHttpxClient.__mro__[1].__module__.partition(".")[0])


def http_client(**settings: Any) -> Any:
    return httpx().Client(**settings)
