"""Snapshots: later changes by the application are not in them, and no code of the application runs."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from enum import StrEnum
from timeit import repeat
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, Generation, LLMResult
from langchain_core.prompt_values import ChatPromptValue, StringPromptValue
from langchain_core.runnables.utils import AddableDict
from langgraph.types import Command
from pydantic import BaseModel

from spanscore.core.codecs.langchain import chat_content, render_value, retriever_content, root_content, tool_content
from spanscore.core.codecs.snapshot import (
    MAX_ITEMS,
    Opaque,
    estimate_size,
    snapshot,
    snapshot_generation,
    snapshot_messages,
    snapshot_tool_output,
)


class State(BaseModel):
    question: str
    docs: list[Any] = []


@dataclass
class Plain:
    question: str
    docs: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Slotted:
    question: str


class OwnDict(dict):  # type: ignore[type-arg]
    """As LangGraph's AddableUpdatesDict."""


class Colour(StrEnum):
    RED = "red"


def documents() -> list[Document]:
    return [Document("b", id="2", metadata={"source": "x"}), Document("a", id="1", metadata={"score": 0.5})]


def talk() -> list[Any]:
    call = {"name": "find", "args": {"q": "x"}, "id": "c1", "type": "tool_call"}
    return [HumanMessage("q"), AIMessage("", tool_calls=[call]), ToolMessage("r", tool_call_id="c1"), AIMessage("a")]


def blocks() -> HumanMessage:
    return HumanMessage([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "u"}}])


def generation() -> LLMResult:
    message = AIMessage("said", response_metadata={"finish_reason": "stop"}, tool_calls=talk()[1].tool_calls)
    return LLMResult(generations=[[ChatGeneration(message=message)]])


def of_root(take: Callable[[Any], Any]) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    return take, lambda taken: root_content(taken, taken)


ROOT = of_root(snapshot)
CHAT = (lambda messages: snapshot_messages([messages]), lambda taken: chat_content(taken, None))
ANSWER = (snapshot_generation, lambda taken: chat_content(None, taken))
FOUND = (snapshot, lambda taken: retriever_content("q", taken))
TOOL = (snapshot_tool_output, lambda taken: tool_content(None, taken))

EDITS: dict[str, tuple[Any, Callable[[], Any], Callable[[Any], Any]]] = {
    "a key is popped": (ROOT, lambda: {"context": documents(), "answer": "a"}, lambda v: v.pop("context")),
    "a key is added": (ROOT, lambda: {"answer": "a"}, lambda v: v.update(more=1)),
    "the input dict is used again": (ROOT, lambda: {"question": "q"}, lambda v: v.update(question="other")),
    "the dict is cleared": (ROOT, lambda: {"question": "q"}, lambda v: v.clear()),
    "documents are sorted": (ROOT, lambda: {"docs": documents()}, lambda v: v["docs"].sort(key=lambda d: d.id)),
    "documents are reversed": (FOUND, documents, lambda v: v.reverse()),
    "a document is removed": (FOUND, documents, lambda v: v.pop()),
    "a document's text is edited": (FOUND, documents, lambda v: setattr(v[0], "page_content", "edited")),
    "a document's metadata is edited": (FOUND, documents, lambda v: v[1].metadata.update(score=0.9)),
    "a document's metadata is replaced": (FOUND, documents, lambda v: setattr(v[1], "metadata", {})),
    "a document in a state is edited": (
        ROOT,
        lambda: {"docs": documents()},
        lambda v: setattr(v["docs"][0], "page_content", "edited"),
    ),
    "messages are appended": (ROOT, lambda: {"messages": talk()}, lambda v: v["messages"].append(AIMessage("late"))),
    "messages are cleared": (ROOT, talk, lambda v: v.clear()),
    "a message is replaced": (ROOT, talk, lambda v: v.__setitem__(-1, AIMessage("late"))),
    "a message's text is edited": (ROOT, talk, lambda v: setattr(v[0], "content", "edited")),
    "the answer's text is edited": (ROOT, lambda: AIMessage("a"), lambda v: setattr(v, "content", "edited")),
    "a block is appended": (ROOT, blocks, lambda v: v.content.append({"type": "text", "text": "more"})),
    "a block's text is edited": (ROOT, blocks, lambda v: v.content[0].update(text="edited")),
    "a block in a list of messages is edited": (
        CHAT,
        lambda: [blocks(), AIMessage("a")],
        lambda v: v[0].content[0].update(text="edited"),
    ),
    "a tool call is appended": (CHAT, talk, lambda v: v[1].tool_calls.append({"name": "x", "args": {}, "id": "c2"})),
    "a tool call's argument is edited": (CHAT, talk, lambda v: v[1].tool_calls[0]["args"].update(q="edited")),
    "tool calls are replaced": (CHAT, talk, lambda v: setattr(v[1], "tool_calls", [])),
    "a tool's answer is edited": (CHAT, talk, lambda v: setattr(v[2], "content", "edited")),
    "the prompt's messages are edited": (
        ROOT,
        lambda: ChatPromptValue(messages=talk()),
        lambda v: v.messages.append(AIMessage("late")),
    ),
    "the generated text is edited": (
        ANSWER,
        generation,
        lambda v: setattr(v.generations[0][0].message, "content", "edited"),
    ),
    "the generated call is edited": (
        ANSWER,
        generation,
        lambda v: v.generations[0][0].message.tool_calls[0]["args"].update(q="edited"),
    ),
    "the reported metadata is edited": (
        ANSWER,
        generation,
        lambda v: v.generations[0][0].message.response_metadata.update(finish_reason="edited"),
    ),
    "the generations are dropped": (ANSWER, generation, lambda v: v.generations.clear()),
    "the artifact is sorted": (
        TOOL,
        lambda: ToolMessage("r", tool_call_id="1", artifact=documents()),
        lambda v: v.artifact.sort(key=lambda d: d.id),
    ),
    "a document of the artifact is edited": (
        TOOL,
        lambda: ToolMessage("r", tool_call_id="1", artifact={"documents": documents()}),
        lambda v: setattr(v.artifact["documents"][0], "page_content", "edited"),
    ),
    "a tool's dict is edited": (TOOL, lambda: {"rows": [1, 2]}, lambda v: v["rows"].append(3)),
    "a command's update is edited": (
        TOOL,
        lambda: Command(update={"messages": [ToolMessage("r", tool_call_id="1")], "n": 1}),
        lambda v: v.update["messages"].clear(),
    ),
    "a list of lists is edited": (ROOT, lambda: [["a"], ["b"]], lambda v: v[0].append("x")),
    "a message as dict is edited": (
        ROOT,
        lambda: {"messages": [{"role": "user", "content": "q"}]},
        lambda v: v["messages"][0].update(content="edited"),
    ),
    "a nested dict is edited": (ROOT, lambda: {"user": {"name": "n"}}, lambda v: v["user"].update(name="edited")),
    "a set grows": (ROOT, lambda: {"tags": {"a"}}, lambda v: v["tags"].add("b")),
    "a deque is drained": (ROOT, lambda: {"last": deque(["a"])}, lambda v: v["last"].pop()),
    "a subclass of dict is edited": (ROOT, lambda: AddableDict(answer="a"), lambda v: v.update(answer="edited")),
    "an ordered dict is emptied": (ROOT, lambda: OrderedDict(a=1, b=2), lambda v: v.popitem()),
    "a pydantic state is edited": (ROOT, lambda: State(question="q"), lambda v: setattr(v, "question", "edited")),
    "a list of a pydantic state grows": (ROOT, lambda: State(question="q"), lambda v: v.docs.append("late")),
    "a dataclass is edited": (ROOT, lambda: Plain("q", documents()), lambda v: v.docs.clear()),
    "a dataclass with slots is edited": (ROOT, lambda: Slotted("q"), lambda v: setattr(v, "question", "edited")),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_snapshot_shows_what_was_there_before(edit: str) -> None:
    (take, render), make, change = EDITS[edit]
    value = make()

    taken = take(value)
    change(value)

    assert render(taken) == render(take(make()))
    assert render(taken) != render(take(value))


def test_the_table_of_edits_covers_what_applications_do() -> None:
    assert len(EDITS) >= 20


class Hostile:
    """Fails, loudly, whatever it is asked."""

    asked: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        raise RuntimeError(name)

    def __iter__(self) -> Any:
        self.asked.append("__iter__")
        raise RuntimeError

    def __repr__(self) -> str:
        self.asked.append("__repr__")
        raise RuntimeError

    def __len__(self) -> int:
        self.asked.append("__len__")
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        self.asked.append("__eq__")
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


class HostileDict(dict):  # type: ignore[type-arg]
    def items(self) -> Any:
        raise RuntimeError

    keys = values = __iter__ = copy = items  # type: ignore[assignment]


class HostileList(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        raise RuntimeError

    copy = __iter__


def test_nothing_of_an_unknown_object_runs() -> None:
    Hostile.asked.clear()

    rendered = render_value(snapshot({"a": Hostile(), "b": [Hostile()], "c": {"d": Hostile()}}))

    assert rendered == {"a": {"type": "Hostile"}, "b": [{"type": "Hostile"}], "c": {"d": {"type": "Hostile"}}}
    assert Hostile.asked == []


def test_an_unknown_object_is_let_go() -> None:
    class Connection:
        pass

    connection = Connection()
    gone = weakref.ref(connection)

    taken = snapshot({"connection": connection, "all": [connection]})
    del connection
    gc.collect()

    assert gone() is None
    assert taken == {"connection": Opaque(("Connection",)), "all": [Opaque(("Connection",))]}


def test_a_generator_is_not_consumed() -> None:
    stream = (n for n in range(3))

    snapshot({"stream": stream})

    assert list(stream) == [0, 1, 2]


@pytest.mark.parametrize("value", [HostileDict(a=[1]), {"x": HostileDict(a=[1])}])
def test_overridden_methods_of_a_dict_do_not_run(value: Any) -> None:
    assert "{'a': [1]}" in str(render_value(snapshot(value)))


def test_a_field_that_is_loaded_when_it_is_asked_for_is_not_loaded() -> None:
    class Lazy:
        def __get__(self, row: Any, kind: Any = None) -> Any:
            if row is None:
                return self
            raise SystemExit("asked the database")

    row = make_dataclass("Row", [("question", str), ("orders", Any, field(init=False, repr=False))])("q")
    type(row).orders = Lazy()

    assert render_value(snapshot({"row": row})) == {"row": {"question": "q"}}


def test_fields_are_taken_from_slots_and_from_the_class_too() -> None:
    class Own:
        pass

    bases = (Own, make_dataclass("Base", [("kind", str, field(init=False, default="row"))]))
    row = make_dataclass("Row", [("question", str)], bases=bases, slots=True)("q")

    assert render_value(snapshot(row)) == {"kind": "row", "question": "q"}


def test_overridden_methods_of_a_list_do_not_run() -> None:
    assert render_value(snapshot({"x": HostileList([1, 2])})) == {"x": [1, 2]}


@pytest.mark.parametrize(
    "broken", [HumanMessage.model_construct(), Document.model_construct(), AIMessage.model_construct()]
)
@pytest.mark.parametrize(
    "take",
    [
        snapshot,
        snapshot_tool_output,
        snapshot_generation,
        lambda v: snapshot([v]),
        lambda v: snapshot_messages([[v]]),
        snapshot_messages,
    ],
)
def test_a_half_built_object_raises_nothing(take: Callable[[Any], Any], broken: Any) -> None:
    taken = take(broken)

    assert render_value(taken) is not None
    assert isinstance(root_content(taken, taken), dict)
    assert isinstance(chat_content(taken, taken), dict)
    assert isinstance(tool_content(taken, taken), dict)


def test_texts_are_shared_not_copied() -> None:
    text = "x" * 20_000
    document = Document(text)

    ((content, *_),) = snapshot([document])

    assert content is document.page_content


def test_a_plain_tuple_stays_a_tuple() -> None:
    assert snapshot(("user", "hi")) == ("user", "hi")
    assert type(snapshot(("user", "hi"))) is tuple


@pytest.mark.parametrize("value", ["text", 1, 1.5, True, None, b"x", Colour.RED])
def test_what_cannot_change_is_taken_as_it_is(value: Any) -> None:
    assert snapshot(value) is value


@pytest.mark.parametrize("value", [[0.1] * 50_000, ["x"] * 50_000, dict.fromkeys(range(50_000), "x")])
def test_a_long_container_is_copied_in_one_step(value: Any) -> None:
    taken = snapshot({"vector": value})["vector"]
    before = len(taken)

    value.clear()

    assert len(value) < MAX_ITEMS < before == len(taken)


def test_a_chunk_is_a_message() -> None:
    assert root_content(None, snapshot(AIMessageChunk("part"))) == root_content(None, snapshot(AIMessage("part")))


def test_a_subclass_of_a_message_is_a_message() -> None:
    class Own(SystemMessage):
        pass

    assert root_content(snapshot([Own("be brief")]), None) == root_content(snapshot([SystemMessage("be brief")]), None)


def test_without_content_a_generation_keeps_its_metadata_and_no_text() -> None:
    taken = snapshot_generation(generation(), content=False)

    assert chat_content(None, taken) == {}
    assert "said" not in str(taken)
    assert taken[0][0][3] == {"finish_reason": "stop"}


def test_a_text_generation_is_taken() -> None:
    taken = snapshot_generation(LLMResult(generations=[[Generation(text="said")]], llm_output={"model_name": "m"}))

    (said,) = chat_content(None, taken)["gen_ai.output.messages"]
    assert said["parts"] == [{"type": "text", "content": "said"}]


def test_a_text_prompt_is_one_user_message() -> None:
    assert root_content(snapshot(StringPromptValue(text="q")), None) == root_content(
        snapshot([HumanMessage("q")]), None
    )


def test_a_thread_of_messages_costs_no_more_than_a_row_each() -> None:
    """Relative to the least that could be done, best of many: holds on any machine, and on a busy one."""
    messages = [HumanMessage("q") if n % 2 else AIMessage("a") for n in range(60)]
    row = type("Row", (tuple,), {"__slots__": ()})

    least = min(repeat(lambda: [row((m, m.content, m.id)) for m in messages], number=50, repeat=30))
    ours = min(repeat(lambda: snapshot({"messages": messages}), number=50, repeat=30))

    assert ours < 2 * least


KB = "x" * 1_000
IMAGE = {"type": "image_url", "image_url": {"url": "y" * 50_000}}

SNAPSHOTS = {
    "a text": (lambda: KB, 1_000),
    "a state": (lambda: snapshot({"question": KB, "notes": [KB, KB]}), 3_000),
    "messages": (lambda: snapshot_messages([[HumanMessage(KB), AIMessage(KB)]]), 2_000),
    "an image": (lambda: snapshot_messages([[HumanMessage([{"type": "text", "text": KB}, IMAGE])]]), 51_000),
    "documents": (lambda: snapshot([Document(page_content="x" * (2_000 + n)) for n in range(40)]), 80_000),
    "an answer": (lambda: snapshot_generation(LLMResult(generations=[[ChatGeneration(message=AIMessage(KB))]])), 1_000),
    "a number": (lambda: 7, 0),
}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_snapshot_is_about_as_large_as_its_texts(name):
    snapshot_of, size = SNAPSHOTS[name]

    assert estimate_size(snapshot_of(), set()) == pytest.approx(size, rel=0.05)


def test_a_long_text_is_counted_once_for_all_that_share_a_memory():
    text, counted = "x" * 10_000, set()

    assert [estimate_size(snapshot([text, text]), counted), estimate_size(snapshot({"again": text}), counted)] == [
        10_000,
        0,
    ]


def test_a_value_that_holds_itself_is_looked_at_for_a_while():
    inner = [KB]
    inner.append(inner)

    assert 1_000 <= estimate_size(inner, set()) <= 10_000
