"""Next to our handler, every other handler gets the same events as alone, in the same order; ours gets all events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.agents import AgentAction, AgentFinish
from langchain_core.callbacks import (
    AsyncCallbackHandler,
    BaseCallbackHandler,
    adispatch_custom_event,
    dispatch_custom_event,
)
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel, BaseLLM
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import (
    ChatGeneration,
    ChatGenerationChunk,
    ChatResult,
    Generation,
    GenerationChunk,
    LLMResult,
)
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langchain_core.tracers import BaseTracer
from tests.capture.callback.tree import Captured, captured

METHODS = sorted(name for name in dir(BaseCallbackHandler) if name.startswith("on_"))
FAILS = "fail"

# --- an application that causes every event there is --------------------------------------------------------------


def _refuse(question: Any) -> None:
    if FAILS in str(question):
        raise ValueError(FAILS)


class Completion(BaseLLM):
    """A completion model, for which LangChain has ``AsyncCallbackManager.on_llm_start``."""

    @property
    def _llm_type(self) -> str:
        return "words"

    def _generate(self, prompts: list[str], stop: Any = None, run_manager: Any = None, **_: Any) -> LLMResult:
        _refuse(prompts)
        if hasattr(run_manager, "on_stream_event"):
            run_manager.on_stream_event({"event": "message-start"})
        return LLMResult(generations=[[Generation(text="one two")] for _ in prompts])

    def _stream(self, prompt: str, stop: Any = None, run_manager: Any = None, **_: Any) -> Iterator[GenerationChunk]:
        _refuse(prompt)
        for word in ("one ", "two"):
            yield GenerationChunk(text=word)


class Chat(BaseChatModel):
    """A chat model with the same answers."""

    @property
    def _llm_type(self) -> str:
        return "words"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        _refuse(messages)
        return ChatResult(generations=[ChatGeneration(message=AIMessage("one two", id="same"))])

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> Any:
        _refuse(messages)
        for word in ("one ", "two"):
            yield ChatGenerationChunk(message=AIMessageChunk(word, id="same"))


class Shelf(BaseRetriever):
    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        _refuse(query)
        return [Document("found")]


@tool
def measure(question: str) -> str:
    """Measure."""
    _refuse(question)
    return "62 metres"


STEP = RunnableLambda(lambda question: _refuse(question) or question, name="step")
ACTION, FINISH = AgentAction("measure", "x", "log"), AgentFinish({"answer": "x"}, "log")


def plain_work(question: Any, run_manager: Any, config: Any) -> str:
    """Cause the events of a run's own manager, then of a retriever, a tool and a step that work and that fail."""
    run_manager.on_text("text")
    run_manager.on_retry(SimpleNamespace(attempt_number=1))
    run_manager.on_agent_action(ACTION)
    run_manager.on_agent_finish(FINISH)
    dispatch_custom_event("progress", 1, config=config)
    for part in (Shelf(), measure, STEP):
        part.invoke("x", config)
        with pytest.raises(ValueError, match=FAILS):
            part.invoke(FAILS, config)
    return "asked"


async def async_work(question: Any, run_manager: Any, config: Any) -> str:
    await run_manager.on_text("text")
    await run_manager.on_retry(SimpleNamespace(attempt_number=1))
    await run_manager.on_agent_action(ACTION)
    await run_manager.on_agent_finish(FINISH)
    await adispatch_custom_event("progress", 1, config=config)
    for part in (Shelf(), measure, STEP):
        await part.ainvoke("x", config)
        with pytest.raises(ValueError, match=FAILS):
            await part.ainvoke(FAILS, config)
    return "asked"


def application(model: Any) -> Any:
    """A chain in which the model answers, then another fails."""
    failing = (RunnableLambda(lambda _: FAILS) | model()).with_fallbacks([RunnableLambda(lambda _: "made up")])
    return RunnableLambda(plain_work, async_work, name="work") | model() | failing


async def _read(stream: Any) -> list[Any]:
    return [part async for part in stream]


async def _events(chain: Any, config: Any) -> list[Any]:
    return [(event["event"], event["name"]) async for event in chain.astream_events("q", config, version="v2")]


async def _in_a_loop(chain: Any, config: Any) -> Any:
    return chain.invoke("q", config)


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "invoke": lambda chain, config: chain.invoke("q", config),
    "stream": lambda chain, config: list(chain.stream("q", config)),
    "batch": lambda chain, config: chain.batch(["q", "q"], config),
    "ainvoke": lambda chain, config: asyncio.run(chain.ainvoke("q", config)),
    "astream": lambda chain, config: asyncio.run(_read(chain.astream("q", config))),
    "abatch": lambda chain, config: asyncio.run(chain.abatch(["q", "q"], config)),
    "astream_events": lambda chain, config: asyncio.run(_events(chain, config)),
    "inside a loop": lambda chain, config: asyncio.run(_in_a_loop(chain, config)),
    "model alone": lambda chain, config: asyncio.run(chain.steps[1].ainvoke("q", config)),
    "prompts": lambda chain, config: asyncio.run(chain.steps[1].abatch(["q", "q"], config)),
}
MODELS = {"chat": Chat, "completion": Completion}

# --- the others ---------------------------------------------------------------------------------------------------


def _recording(name: str) -> Callable[..., None]:
    def method(self: Any, *_: Any, run_id: Any, parent_run_id: Any = None, **__: Any) -> None:
        self.events.append((name, run_id, parent_run_id))

    return method


def _recording_async(name: str) -> Callable[..., Any]:
    async def method(self: Any, *_: Any, run_id: Any, parent_run_id: Any = None, **__: Any) -> None:
        await asyncio.sleep(0)
        self.events.append((name, run_id, parent_run_id))

    return method


class Tracer(BaseTracer):
    """As LangSmith's: a tracer that runs inline."""

    run_inline = True

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def _persist_run(self, run: Any) -> None: ...

    def _start_trace(self, run: Any) -> None:
        super()._start_trace(run)
        self.events.append((f"start {run.run_type}", run.id, run.parent_run_id))

    def _end_trace(self, run: Any) -> None:
        self.events.append((f"end {run.run_type}", run.id, run.parent_run_id))
        super()._end_trace(run)


def _kind(base: type, recording: Callable[[str], Any], *, inline: bool) -> Callable[[], Any]:
    made = type("Other", (base,), {**{name: recording(name) for name in METHODS}, "run_inline": inline})

    def one() -> Any:
        handler = made()
        handler.events = []
        return handler

    return one


KINDS: dict[str, Callable[[], Any]] = {
    "plain": _kind(BaseCallbackHandler, _recording, inline=False),
    "inline": _kind(BaseCallbackHandler, _recording, inline=True),
    "async": _kind(AsyncCallbackHandler, _recording_async, inline=False),
    "async inline": _kind(AsyncCallbackHandler, _recording_async, inline=True),
    "tracer": Tracer,
}
CROWDS = {
    **{name: (name,) for name in KINDS},
    "two that are not inline": ("plain", "async"),
    "beside a tracer": ("plain", "tracer", "async"),
}


def _numbered_events(handler: Any) -> list[list[tuple[str, int]]]:
    """Return the events of a handler, per root and in order, each with its run's position among the root's."""
    root_of: dict[Any, Any] = {}
    per_root: dict[Any, list[Any]] = {}
    for name, run_id, parent in handler.events:
        root = root_of.setdefault(run_id, root_of.get(parent, run_id))
        per_root.setdefault(root, []).append((name, run_id))
    return sorted(_numbered(events) for events in per_root.values())


def _numbered(events: list[Any]) -> list[tuple[str, int]]:
    numbers: dict[Any, int] = {}
    return [(name, numbers.setdefault(run_id, len(numbers))) for name, run_id in events]


def _run(way: str, model: str, crowd: tuple[str, ...], ours: list[Any]) -> tuple[Any, list[Any]]:
    """Run the application with these handlers; return its result, and the events of each handler."""
    others = [KINDS[kind]() for kind in crowd]
    config = {"callbacks": [*ours, *others], "max_concurrency": 1}
    return WAYS[way](application(MODELS[model]), config), [_numbered_events(other) for other in others]


@cache
def _alone(way: str, model: str, crowd: tuple[str, ...]) -> tuple[Any, list[Any]]:
    return _run(way, model, crowd, [])


@cache
def _our_tree(way: str, model: str) -> list[str]:
    with captured() as run:
        _run(way, model, (), [run.scorer.handler])
    return sorted(run.trees())


def _attached(run: Captured, attach: str) -> list[Any]:
    if attach == "install":
        run.scorer.install()
    return [run.scorer.handler] if attach == "callbacks" else []


# --- the promises -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attach", ["callbacks", "install"])
@pytest.mark.parametrize("crowd", CROWDS.values(), ids=CROWDS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("way", WAYS)
def test_others_hear_what_they_hear_without_us_and_we_hear_everything(way, model, crowd, attach):
    with captured() as run:
        events = _run(way, model, crowd, _attached(run, attach))

    assert events == _alone(way, model, crowd)
    assert sorted(run.trees()) == _our_tree(way, model)


@pytest.mark.parametrize("crowd", CROWDS.values(), ids=CROWDS)
def test_two_scorers_silence_neither_each_other_nor_the_others(crowd):
    with captured() as first, captured() as second:
        result = _run("model alone", "completion", crowd, [first.scorer.handler, second.scorer.handler])

    assert result == _alone("model alone", "completion", crowd)
    assert (first.trees(), second.trees()) == (_our_tree("model alone", "completion"), [])


def test_the_application_causes_every_event_of_a_handler():
    caused = {
        name
        for model in MODELS
        for way in ("invoke", "stream", "ainvoke", "astream")
        for root in _alone(way, model, ("plain",))[1][0]
        for name, _ in root
    }

    assert caused == set(METHODS)
