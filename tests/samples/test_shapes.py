"""Every shape of payload has a defined sample, or an outcome with a reason; and keeps it over the network."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompt_values import ChatPromptValue, StringPromptValue
from langgraph.types import Command
from pydantic import BaseModel
from tests.samples.builders import Run, chat, retriever, root, through_the_sdk, tool, unit

from spanscore.config import Extract
from spanscore.core import sample as ours
from spanscore.core.sample import MultiTurnSample, SingleTurnSample
from spanscore.core.score import Outcome
from spanscore.samples.genai import GenAIExtractor

Q, A, C = "Capital of France?", "Paris.", "Paris has been the capital since 987."


class Answer(BaseModel):
    capital: str


def docs(*texts: str, ids: bool = False) -> list[Document]:
    return [Document(text, id=f"id-{n}" if ids else None) for n, text in enumerate(texts)]


def call(name: str = "retrieve", identity: str = "c1", **args: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args or {"q": "x"}, "id": identity}])


def result(text: str = C, identity: str = "c1", artifact: Any = None) -> ToolMessage:
    return ToolMessage(text, tool_call_id=identity, artifact=artifact)


def human(text: str) -> HumanMessage:
    return HumanMessage(text)


SAY_WHERE = "give the place: extract=Extract(user_input='input.<key>', response='output.<key>')"
HISTORY = [human("Hello"), AIMessage("Hi.")]
CALLED = [
    ours.HumanMessage(content=Q),
    ours.AIMessage(tool_calls=[ours.ToolCall(name="retrieve", args={"q": "x"}, id="c1")]),
    ours.ToolMessage(content=C, tool_call_id="c1"),
    ours.AIMessage(content=A),
]
GREETING = [ours.HumanMessage(content="Hello"), ours.AIMessage(content="Hi.")]


@dataclass(frozen=True)
class Row:
    """A unit's runs and the result: question, answer, contexts, ids; the conversation; or the reason."""

    runs: list[Run]
    single_turn: tuple[Any, ...] | None = (Q, A)
    multi_turn: list[Any] | None = None
    reason: str | None = None
    dialect: GenAIExtractor = field(default_factory=GenAIExtractor)


SHAPES: dict[str, Row] = {
    # --- question and answer ---
    "texts": Row([root(Q, A)]),
    "a question and a message": Row([root(Q, AIMessage(A))]),
    "messages": Row([root([SystemMessage("brief"), human(Q)], AIMessage(A))]),
    "messages as pairs": Row([root([("system", "brief"), ("user", Q)], AIMessage(A))]),
    "messages as dicts": Row([root({"messages": [{"role": "user", "content": Q}]}, {"messages": [("ai", A)]})]),
    "one text as messages": Row([root({"messages": Q}, AIMessage(A))]),
    "a prompt of messages": Row([root(ChatPromptValue(messages=[human(Q)]), A)]),
    "a prompt of text": Row([root(StringPromptValue(text=Q), A)]),
    "content blocks": Row(
        [
            root(
                [HumanMessage([{"type": "text", "text": Q}, {"type": "image_url", "image_url": {"url": "data:x"}}])],
                AIMessage([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": A}]),
            )
        ],
        (f"{Q}\n[image left out: not recorded]", A),
    ),
    "an image without words": Row(
        [root([HumanMessage([{"type": "image", "url": "http://a.b/c.png"}])], AIMessage(A))], ("[image 1]", A)
    ),
    "an audio without words": Row(
        [root([HumanMessage([{"type": "audio", "base64": "xx", "mime_type": "audio/wav"}])], AIMessage(A))],
        ("[audio]", A),
    ),
    "keys question and answer": Row([root({"question": Q}, {"answer": A})]),
    "keys query and result": Row([root({"query": Q}, {"query": Q, "result": A})]),
    "keys input and output": Row([root({"input": Q, "chat_history": []}, {"input": Q, "output": A})]),
    "a key that holds messages": Row([root({"input": [human(Q)]}, {"output": [AIMessage(A)]})]),
    "a key that holds a message": Row([root({"input": human(Q)}, {"output": AIMessage(A)})]),
    "a key that holds blocks": Row([root({"input": [{"type": "text", "text": Q}]}, {"output": A})]),
    "a key within a key": Row([root({"input": {"question": Q}}, {"output": {"answer": A}})]),
    "a key that holds a structure": Row(
        [root({"question": Q}, {"answer": {"city": "Paris"}})], (Q, '{"city":"Paris"}')
    ),
    "a key that holds a number": Row([root({"question": Q}, {"answer": 42})], (Q, "42")),
    "a number": Row([root(Q, 42)], (Q, "42")),
    "keys before their order in the dict": Row([root({"query": "no", "question": Q}, {"result": "no", "answer": A})]),
    "an answer that is None": Row([root({"question": Q}, {"answer": None, "result": A})]),
    "an empty answer": Row([root(Q, "")], (Q, "")),
    "an empty message": Row([root([human(Q)], AIMessage(""))], (Q, "")),
    "an answer that is missing": Row([root(Q, None)], (Q, None)),
    "a question under a key of its own": Row([root({"topic": "x"}, A)], ("x", A)),
    "a question that is missing": Row([root({"n": 3}, A)], (None, A)),
    "a question of a stream that came late": Row([root({"input": ""}, {"input": Q, "answer": A})]),
    "text that looks like JSON": Row([root('{"a":1}', '["b"]')], ('{"a":1}', '["b"]')),
    "a lone surrogate": Row([root("\ud800?", A)], ("??", A)),
    "a pydantic state": Row([root(Answer(capital="x"), {"answer": A})], ("x", A)),
    # --- model runs below an empty root ---
    "a chain over a topic": Row([root({"topic": "x"}, {"joke": A}), chat([human(Q)], A)], ("x", A)),
    "several model runs: the first is asked, the last answers": Row(
        [root({"n": 1}, {"state": 1}), chat([human(Q)], "draft"), chat([human("Improve: draft")], A)]
    ),
    "a prompt never becomes the question": Row([root(Q, A), chat([human(f"Use {C} to answer {Q}")], "other")]),
    "a model alone": Row([Run("chat", chat([human(Q)], A).content)]),
    "a model that was asked for several answers": Row([Run("chat", chat([human(Q)], "no", A).content)]),
    "a parsed structure": Row(
        [root({"question": Q}, Answer(capital="Paris")), chat([human(Q)], call("Answer", capital="Paris"))],
        (Q, "Paris"),
    ),
    "a parsed structure of several fields": Row(
        [
            root({"question": Q}, {"capital": "Paris", "since": 987}),
            chat([human(Q)], call("Answer", capital="Paris", since=987)),
        ],
        (Q, '{"capital":"Paris","since":987}'),
    ),
    "a parsed structure with the raw answer": Row(
        [
            root(Q, {"raw": call("Answer", capital="Paris"), "parsed": Answer(capital="Paris"), "parsing_error": None}),
            chat([human(Q)], call("Answer", capital="Paris")),
        ],
        (Q, "Paris"),
    ),
    "a structure that could not be parsed": Row(
        [root(Q, {"raw": call("Answer"), "parsed": None, "parsing_error": "no"}), chat([human(Q)], call("Answer"))],
        (Q, None),
    ),
    "a failed run is not answered by its model": Row(
        [root(Q, None, failed=True), chat([human(Q)], A)], None, reason="the run failed before it answered"
    ),
    # --- contexts ---
    "no retrieval": Row([root(Q, A)], (Q, A, None, None)),
    "one retrieval": Row([root(Q, A), retriever(Q, docs(C, ids=True))], (Q, A, [C], ["id-0"])),
    "a retrieval that found nothing": Row([root(Q, A), retriever(Q, [])], (Q, A, [], [])),
    "a retrieval that failed": Row([root(Q, A), retriever(Q, None)], (Q, A, None, None)),
    "several retrievals": Row(
        [root(Q, A), retriever(Q, docs("a", "b")), retriever(Q, docs("c"))], (Q, A, ["a", "b", "c"], None)
    ),
    "a retriever over retrievers": Row(
        [root(Q, A), retriever(Q, docs("best")), retriever(Q, docs("a"), under=1), retriever(Q, docs("b"), under=1)],
        (Q, A, ["best"], None),
    ),
    "a failed retriever over one that found something": Row(
        [root(Q, A), retriever(Q, None), retriever(Q, docs("a"), under=1)], (Q, A, ["a"], None)
    ),
    "ids only when every document has one": Row(
        [root(Q, A), retriever(Q, [*docs("a", ids=True), *docs("b")])], (Q, A, ["a", "b"], None)
    ),
    "a retriever alone": Row([Run("retrieval", retriever(Q, docs(C)).content)], (Q, None, [C], None)),
    "retriever runs before the state": Row(
        [root({"question": Q}, {"answer": A, "context": "other"}), retriever(Q, docs(C))], (Q, A, [C], None)
    ),
    "a retrieval chain": Row(
        [root({"input": Q}, {"input": Q, "context": docs(C, ids=True), "answer": A})], (Q, A, [C], ["id-0"])
    ),
    "a context that is one text": Row([root({"question": Q, "context": C}, A)], (Q, A, [C], None)),
    "a context that is an empty text": Row([root({"question": Q, "context": ""}, A)], (Q, A, [], [])),
    "contexts that are texts": Row(
        [root({"question": Q}, {"answer": A, "contexts": ["a", "b"]})], (Q, A, ["a", "b"], None)
    ),
    "documents as dicts": Row(
        [root({"question": Q}, {"answer": A, "documents": [{"text": "a", "id": 7}, {"content": "b", "id": "8"}]})],
        (Q, A, ["a", "b"], [7, "8"]),
    ),
    "documents with scores": Row([root({"query": Q}, {"result": A, "docs": [(docs(C)[0], 0.5)]})], (Q, A, [C], None)),
    "source documents": Row([root({"query": Q}, {"result": A, "source_documents": docs(C)})], (Q, A, [C], None)),
    "a state that comes in empty": Row(
        [root({"question": Q, "docs": [], "answer": ""}, {"question": Q, "docs": docs(C), "answer": A})],
        (Q, A, [C], None),
    ),
    "a state that stays empty": Row([root({"question": Q, "docs": []}, {"docs": [], "answer": A})], (Q, A, [], [])),
    "a state key that holds no documents": Row([root({"question": Q, "context": 7}, A)], (Q, A, None, None)),
    # --- conversations ---
    "a graph's state with question, docs and answer": Row(
        [root({"question": Q}, {"question": Q, "docs": docs(C), "answer": A})], (Q, A, [C], None)
    ),
    "a thread's second turn": Row(
        [root({"messages": [human(Q)]}, {"messages": [*HISTORY, human(Q), AIMessage(A)]})],
        (Q, A),
        [*GREETING, ours.HumanMessage(content=Q), ours.AIMessage(content=A)],
    ),
    "a history that comes in": Row(
        [root([*HISTORY, human(Q)], AIMessage(A))],
        (Q, A),
        [*GREETING, ours.HumanMessage(content=Q), ours.AIMessage(content=A)],
    ),
    "an agent with a retrieval tool": Row(
        [
            root({"messages": [human(Q)]}, {"messages": [human(Q), call(), result(), AIMessage(A)]}),
            chat([human(Q)], call()),
            tool("retrieve", {"q": "x"}, result(artifact=docs(C, ids=True)), call_id="c1"),
            chat([human(Q), call(), result()], A),
        ],
        (Q, A, [C], ["id-0"]),
        CALLED,
    ),
    "an agent with a retriever tool": Row(
        [
            root({"messages": [human(Q)]}, {"messages": [human(Q), call(), result(), AIMessage(A)]}),
            tool("retrieve", {"q": "x"}, result(), call_id="c1"),
            retriever("x", docs(C), under=1),
        ],
        (Q, A, [C], None),
        CALLED,
    ),
    "an agent with a named retrieval tool": Row(
        [
            root({"messages": [human(Q)]}, {"messages": [human(Q), call(), result(), AIMessage(A)]}),
            tool("retrieve", {"q": "x"}, result(), call_id="c1"),
            tool("clock", {}, "12:00"),
        ],
        (Q, A, [C], None),
        CALLED,
        dialect=GenAIExtractor(Extract(retrieval_tools=("retrieve",))),
    ),
    "a named retrieval tool that has no span": Row(
        [root({"messages": [human(Q)]}, {"messages": [human(Q), call(), result(), AIMessage(A)]})],
        (Q, A, [C], None),
        CALLED,
        dialect=GenAIExtractor(Extract(retrieval_tools=["retrieve"])),
    ),
    "an agent whose prompt brings the contexts": Row(
        [
            root({"messages": [human(Q)]}, {"messages": [human(Q), AIMessage(A)]}),
            chat([SystemMessage(f"Use {C}"), human(Q)], A),
        ],
        (Q, A, None, None),
    ),
    "contexts of an earlier turn are not this one's": Row(
        [
            root(
                {"messages": [human(Q)]},
                {"messages": [human("x"), call(), result(artifact=docs("old")), human(Q), AIMessage(A)]},
            )
        ],
        (Q, A, None, None),
        [
            ours.HumanMessage(content="x"),
            *CALLED[1:3],
            ours.HumanMessage(content=Q),
            ours.AIMessage(content=A),
        ],
    ),
    "an answer that is a tool call": Row(
        [root([human(Q)], call())],
        (Q, None),
        CALLED[:2],
    ),
    "an answer that is a tool call, of a question that is a text": Row([root(Q, call())], (Q, None), CALLED[:2]),
    "examples that the prompt template brought are nobody's turns": Row(
        [root({"question": Q}, {"answer": A}), chat([*HISTORY, human(Q)], A)], (Q, A)
    ),
    "a history beside the question": Row(
        [
            root({"question": Q, "history": HISTORY}, {"answer": A}),
            chat([human("example"), AIMessage("shown"), *HISTORY, human(f"Answer briefly: {Q}")], A),
        ],
        (Q, A),
        [*GREETING, ours.HumanMessage(content=Q), ours.AIMessage(content=A)],
    ),
    "tools that only the model saw": Row(
        [root({"question": Q}, {"answer": A}), chat([human(Q), call(), result()], A)], (Q, A), CALLED
    ),
    "a tool that answers for the agent": Row(
        [root({"messages": [human(Q)]}, {"messages": [human(Q), call(), result(A)]})],
        (Q, A),
        [*CALLED[:2], ours.ToolMessage(content=A, tool_call_id="c1")],
    ),
    "an agent with a response format": Row(
        [
            root(
                {"messages": [human(Q)]},
                {
                    "messages": [human(Q), call(), result("Returning structured response")],
                    "structured_response": Answer(capital="Paris"),
                },
            )
        ],
        (Q, '{"capital":"Paris"}'),
        [*CALLED[:2], ours.ToolMessage(content="Returning structured response", tool_call_id="c1")],
    ),
    "an agent of keys, rebuilt from its model's runs": Row(
        [
            root({"input": Q}, {"input": Q, "output": A}),
            chat([SystemMessage("brief"), human(Q)], call()),
            tool("retrieve", {"q": "x"}, result(), call_id="c1"),
            chat([SystemMessage("brief"), human(Q), call(), result()], A),
        ],
        (Q, A),
        CALLED,
    ),
    "an agent whose last call was answered without the model": Row(
        [
            root({"input": Q}, {"output": A}),
            chat([human(Q)], call()),
            tool("retrieve", {"q": "x"}, result(), call_id="c1"),
        ],
        (Q, A),
        CALLED,
    ),
    "tools that no model called": Row(
        [root({"question": Q}, {"answer": A}), tool("retrieve", {"q": "x"}, C)],
        (Q, A),
        [
            ours.HumanMessage(content=Q),
            ours.AIMessage(tool_calls=[ours.ToolCall(name="retrieve", args={"q": "x"})]),
            ours.ToolMessage(content=C),
            ours.AIMessage(content=A),
        ],
    ),
    "tool calls that the root's messages hide": Row(
        [
            root({"messages": [human(Q)]}, {"messages": [human(Q), AIMessage(A)]}),
            chat([human(Q)], call()),
            tool("retrieve", {"q": "x"}, result(), call_id="c1"),
            chat([human(Q), call(), result()], A),
        ],
        (Q, A),
        CALLED,
    ),
    "an agent within a tool has its calls seen too": Row(
        [
            root({"messages": [human(Q)]}, {"messages": [human(Q), call(), result(), AIMessage(A)]}),
            tool("retrieve", {"q": "x"}, result(), call_id="c1"),
            chat([human("sub")], call("inner", "c7"), under=1),
            tool("inner", {}, "x", call_id="c7", under=1),
            chat([human(Q), call(), result()], A),
        ],
        (Q, A),
        [
            *CALLED[:3],
            ours.AIMessage(tool_calls=[ours.ToolCall(name="inner", args={"q": "x"}, id="c7")]),
            ours.ToolMessage(content="x", tool_call_id="c7"),
            CALLED[3],
        ],
    ),
    "a tool alone is no conversation": Row(
        [Run("execute_tool", tool("search", {"query": Q}, A).content, plain={"gen_ai.tool.name": "search"})]
    ),
    "a conversation that begins with a tool's answer": Row(
        [
            root(
                {"messages": [human(Q)]},
                {"messages": [result(identity="c0"), human("x"), AIMessage("y"), human(Q), AIMessage(A)]},
            )
        ],
        (Q, A),
        multi_turn=[ours.HumanMessage(content="x"), ours.AIMessage(content="y"), *CALLED[::3]],
        reason="left out of the conversation: 1 tool results that no message before them asked for",
    ),
    "a resumed turn": Row(
        [root(Command(resume="yes"), {"messages": [human(Q), AIMessage(A)]})],
    ),
    "a resumed turn of a state": Row([root(Command(resume="yes"), {"question": Q, "answer": A})]),
    "a resumed turn of a long thread": Row(
        [root(Command(resume="yes"), {"messages": [*HISTORY, human(Q), call(), result(), AIMessage(A)]})],
        (Q, A),
        [*GREETING, *CALLED],
    ),
    # --- outcomes ---
    "an unknown shape": Row(
        [root({"a": 1}, {"b": 2})],
        None,
        reason=f"neither a question nor an answer was found; its input has a; its output has b; {SAY_WHERE}",
    ),
    "several texts of which none is told": Row(
        [root({"a": "x", "b": "y"}, {"c": "z"})],
        None,
        reason=f"several of the root's texts may be the question; its input has a, b; its output has c; {SAY_WHERE}",
    ),
    "nothing at all": Row(
        [root()], None, reason=f"neither a question nor an answer was found; its root has no text: {SAY_WHERE}"
    ),
    "unknown objects": Row(
        [root(object(), object())],
        None,
        reason=f"neither a question nor an answer was found; its input has type; its output has type; {SAY_WHERE}",
    ),
    "an error without an answer": Row([root(Q, None, failed=True)], None, reason="the run failed before it answered"),
    "an error with an answer": Row([root(Q, A, failed=True)]),
    "an abandoned stream": Row(
        [root(Q, "Par", end="abandoned")], None, reason="the stream was abandoned before its end"
    ),
    "an abandoned stream that is wanted": Row(
        [root(Q, "Par", end="abandoned")], (Q, "Par"), dialect=GenAIExtractor(score_abandoned=True)
    ),
    "an abandoned stream whose model said a part": Row(
        [root(Q, None, end="abandoned"), chat([human(Q)], "Par")],
        (Q, "Par"),
        dialect=GenAIExtractor(score_abandoned=True),
    ),
    "a cancelled run": Row(
        [root(Q, None, end="cancelled")],
        None,
        reason="the run was cancelled",
        dialect=GenAIExtractor(score_abandoned=True),
    ),
    "an interrupted turn": Row(
        [root([human(Q)], {"messages": [human(Q)]}, end="interrupted")],
        None,
        reason="the turn was interrupted and waits to be resumed",
    ),
    "an interrupted turn that says so in its output": Row(
        [root([human(Q)], {"messages": [human(Q)], "__interrupt__": [1]})],
        None,
        reason="the turn was interrupted and waits to be resumed",
    ),
}


def check(row: Row, samples: ours.Samples) -> None:
    if row.single_turn is None:
        assert (samples.single_turn, samples.multi_turn, samples.outcome) == (None, None, Outcome.NO_SAMPLE)
    else:
        names = ("user_input", "response", "retrieved_contexts", "retrieved_context_ids")
        wanted = dict(zip_longest(names, row.single_turn))
        assert samples.outcome is None
        assert samples.single_turn is not None
        assert {name: getattr(samples.single_turn, name) for name in wanted} == wanted
        assert (samples.multi_turn and samples.multi_turn.user_input) == row.multi_turn
    assert samples.reason == row.reason


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_has_a_defined_sample_or_outcome(shape: str) -> None:
    row = SHAPES[shape]

    check(row, row.dialect.extract(unit(*row.runs)))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_reads_the_same_after_its_way_through_the_sdk(shape: str) -> None:
    row = SHAPES[shape]

    there = row.dialect.extract(through_the_sdk(unit(*row.runs)))

    assert there == row.dialect.extract(unit(*row.runs))


def test_a_turn_that_waits_to_be_resumed_is_no_other_that_has_no_sample() -> None:
    samples = {name: row.dialect.extract(unit(*row.runs)) for name, row in SHAPES.items()}

    waiting = {"an interrupted turn", "an interrupted turn that says so in its output"}
    assert {name for name, made in samples.items() if made.interrupted} == waiting


def test_what_was_expected_fills_the_reference_fields() -> None:
    expected = {
        "reference": "r",
        "reference_contexts": ["c"],
        "reference_context_ids": ["1"],
        "reference_topics": ["geography"],
        "reference_tool_calls": [{"name": "retrieve", "args": {"q": "x"}}],
        "rubrics": {"1": "bad"},
    }

    samples = GenAIExtractor().extract(unit(root([*HISTORY, human(Q)], AIMessage(A), expected)))

    assert samples.single_turn == SingleTurnSample(
        user_input=Q,
        response=A,
        reference="r",
        reference_contexts=["c"],
        reference_context_ids=["1"],
        rubrics={"1": "bad"},
    )
    assert samples.multi_turn == MultiTurnSample(
        user_input=[*GREETING, ours.HumanMessage(content=Q), ours.AIMessage(content=A)],
        reference="r",
        reference_topics=["geography"],
        reference_tool_calls=[ours.ToolCall(name="retrieve", args={"q": "x"})],
        rubrics={"1": "bad"},
    )


def test_an_expectation_that_does_not_fit_is_noted_and_the_others_are_kept() -> None:
    samples = GenAIExtractor().extract(unit(root(Q, A, {"reference": 7, "rubrics": {"1": "bad"}})))

    assert samples.single_turn == SingleTurnSample(user_input=Q, response=A, rubrics={"1": "bad"})
    assert samples.reason == "expected reference left out: Input should be a valid string"


def test_it_says_where_each_field_was_looked_for() -> None:
    samples = GenAIExtractor().extract(unit(root(Q, None)))

    searched = dict(samples.searched)
    assert set(searched) == {"user_input", "response", "retrieved_contexts"}
    assert "answer, output, result" in searched["response"]
    assert "source_documents" in searched["retrieved_contexts"]


def test_a_unit_whose_root_never_came_has_no_sample() -> None:
    whole = unit(root(Q, A), chat([human(Q)], A))

    samples = GenAIExtractor().extract(without_root(whole))

    assert (samples.outcome, samples.reason) == (Outcome.NO_SAMPLE, "the unit's root never arrived")


def without_root(whole: Any) -> Any:
    return type(whole)(whole.key, whole.spans[1:], complete=False)
