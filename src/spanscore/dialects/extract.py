"""Extract: where question, answer and contexts of a unit are found. The same order for every dialect.

question   last human message → keys question, query, input → plain text        of the root's input, then output,
answer     final message of this turn → keys answer, output, result → plain text  of the root's output,
           then of the models' runs: only when the root says nothing, else a prompt becomes the question
contexts   retriever runs → documents in tool artifacts → keys context, contexts, documents, docs, source_documents
           of the root → results of the tools named in ``retrieval_tools``
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from spanscore.codec.messages import ASSISTANT, TOOL, is_message, message_text, role_of, tool_calls, tool_responses
from spanscore.codec.text import as_text, jsonable
from spanscore.dialects.view import (
    GenAIMessage,
    Retrieved,
    Side,
    View,
    calls_tools,
    documents_in,
    is_resume,
    last_human_text,
    turn_of,
)
from spanscore.errors import ConfigurationError
from spanscore.model.span import Unit

__all__ = ["Extract", "Found", "Place"]

Place: TypeAlias = str | Callable[[Unit], Any]
"""A key path (``"input.question"``, ``"output.docs"``, ``"output.messages.-1"``) or a function of the unit."""

QUESTION_KEYS = ("question", "query", "input")
ANSWER_KEYS = ("answer", "output", "result")
CONTEXT_KEYS = ("context", "contexts", "documents", "docs", "source_documents")
_SIDES = ("input", "output")
_WITH_RAW = {"raw", "parsed", "parsing_error"}
"""What ``with_structured_output(…, include_raw=True)`` answers."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Attributes:
        value: None where it found nothing.
        looked_in: the places, in order.
    """

    value: Any
    looked_in: str


@dataclass(frozen=True, slots=True)
class Extract:
    """Where to look, where the usual places do not have it. What is given replaces the search for that field.

    Attributes:
        user_input: the question.
        response: the answer.
        retrieved_contexts: the contexts: texts, documents (``page_content``, ``content`` or ``text``), or one text.
        retrieval_tools: names of tools whose results are contexts; each text a tool gives back is one.

    Raises:
        ConfigurationError: a key path that begins with neither ``input`` nor ``output``.

    Example:
        >>> Extract(user_input="input.request.text", retrieved_contexts="output.passages").retrieval_tools
        ()
    """

    user_input: Place | None = None
    response: Place | None = None
    retrieved_contexts: Place | None = None
    retrieval_tools: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("user_input", "response", "retrieved_contexts"):
            _check(name, getattr(self, name))
        named = (self.retrieval_tools,) if isinstance(self.retrieval_tools, str) else self.retrieval_tools
        object.__setattr__(self, "retrieval_tools", tuple(named))

    def question(self, view: View) -> Found:
        """Find the question: a text."""
        if self.user_input is not None:
            return _at(self.user_input, view, _question_text)
        looked_in = f"root input: messages, {_named(QUESTION_KEYS)}, text; root output: messages, keys; model runs"
        return Found(_first_text(_questions(view)), looked_in)

    def answer(self, view: View) -> Found:
        """Find the answer: a text. An empty answer is one."""
        if self.response is not None:
            return _at(self.response, view, _answer_text)
        looked_in = f"root output: messages of this turn, {_named(ANSWER_KEYS)}, text; model runs"
        return Found(next((text for text in _answers(view) if text is not None), None), looked_in)

    def contexts(self, view: View) -> Found:
        """Find the contexts: a list of ``Retrieved``; None = no retrieval happened, ``[]`` = it found nothing."""
        if self.retrieved_contexts is not None:
            return _at(self.retrieved_contexts, view, documents_in)
        tools = ", ".join(self.retrieval_tools) or "none named"
        looked_in = f"retriever runs; tool artifacts; root: {_named(CONTEXT_KEYS)}; retrieval_tools ({tools})"
        return Found(next((found for found in self._retrieved(view) if found is not None), None), looked_in)

    def _retrieved(self, view: View) -> Iterator[list[Retrieved] | None]:
        yield _together(view.retrievals)
        yield _together(view.artifacts)
        yield _state_documents(view)
        yield _together(self._tool_results(view))

    def _tool_results(self, view: View) -> list[list[Retrieved]]:
        if not self.retrieval_tools:
            return []
        if view.tools:
            results = [tool.result for tool in view.tools if tool.name in self.retrieval_tools]
        else:
            results = _results_told(turn_of(view.thread()), self.retrieval_tools)
        return [found for result in results if (found := documents_in(result)) is not None]


# --- questions --------------------------------------------------------------------------------------------------


def _questions(view: View) -> Iterator[str | None]:
    yield last_human_text(view.input.messages)
    if not is_resume(view.input.value):
        yield from _keyed(view.input.value, QUESTION_KEYS, _question_text)
        yield _plain(view.input.value)
    yield last_human_text(view.output.messages)
    yield from _keyed(view.output.value, QUESTION_KEYS, _question_text)
    for run in view.models[:1]:
        yield last_human_text(run.asked)


def _first_text(texts: Iterable[str | None]) -> str | None:
    """Return the first text that is not empty, else an empty one: a stream's start gives ``{"input": ""}``."""
    empty: str | None = None
    for text in texts:
        if text:
            return text
        empty = text if text is not None else empty
    return empty


def _question_text(value: Any) -> str | None:
    if _are_messages(value):
        return last_human_text(value)
    return next(_keyed(value, QUESTION_KEYS, _text), None) or _text(value)


# --- answers ----------------------------------------------------------------------------------------------------


def _answers(view: View) -> Iterator[str | None]:
    yield _structured_response(view.output)
    yield _final(turn_of(view.output.messages))
    yield from _keyed(view.output.value, ANSWER_KEYS, _answer_text)
    yield _plain(view.output.value)
    if view.failed:
        return  # what a model said inside of a failed run never reached anybody
    if view.models:
        said = view.models[-1].said
        yield _final(said)
        if calls_tools(said) and not view.output.messages:
            yield _structured(view.output.value)


def _structured_response(output: Side) -> str | None:
    """Return what a LangChain agent with a response format answers, where its last message only says that it does."""
    turn = turn_of(output.messages)
    only_told = bool(turn) and role_of(turn[-1].get("role")) == TOOL
    return (
        _structured(output.value.get("structured_response")) if only_told and isinstance(output.value, dict) else None
    )


def _final(turn: Sequence[GenAIMessage]) -> str | None:
    """Return the text of a turn's last message: the assistant's, or that of a tool which answers for it."""
    if not turn:
        return None
    last = turn[-1]
    if role_of(last.get("role")) == TOOL:
        responses = tool_responses(last)
        return responses[-1].content if responses else None
    if role_of(last.get("role")) != ASSISTANT:
        return None
    text = message_text(last)
    return None if not text and tool_calls(last) else text


def _answer_text(value: Any) -> str | None:
    if _are_messages(value):
        return _final(turn_of(value))
    return next(_keyed(value, ANSWER_KEYS, _text), None) or _text(value)


def _structured(value: Any) -> str | None:
    """Return a parsed answer as JSON: a model that was asked for a structure gives it as a tool call."""
    if isinstance(value, dict) and value.keys() == _WITH_RAW:
        value = value["parsed"]
    return as_text(value) if isinstance(value, (dict, list)) and value else None


# --- contexts ---------------------------------------------------------------------------------------------------


def _together(found: Iterable[Sequence[Retrieved]]) -> list[Retrieved] | None:
    """Join what several runs found; None when there was no run."""
    runs = list(found)
    return [document for run in runs for document in run] if runs else None


def _state_documents(view: View) -> list[Retrieved] | None:
    """Search the output first: a state often comes in with its keys empty. The first that holds something wins."""
    held = [documents_in(side.value[key]) for side in (view.output, view.input) for key in _present(side.value)]
    happened = [documents for documents in held if documents is not None]
    return next((documents for documents in happened if documents), [] if happened else None)


def _present(value: Any) -> list[str]:
    return [key for key in CONTEXT_KEYS if key in value] if isinstance(value, dict) and not is_resume(value) else []


def _results_told(turn: Sequence[GenAIMessage], names: Sequence[str]) -> list[Any]:
    """Return what the named tools answered in a turn's messages, for spans that have no tool runs."""
    asked = {call.id for message in turn for call in tool_calls(message) if call.name in names and call.id}
    return [
        answer.content
        for message in turn
        for answer in tool_responses(message)
        if answer.tool_call_id in asked or (answer.tool_call_id is None and message.get("name") in names)
    ]


# --- values → text ----------------------------------------------------------------------------------------------


def _keyed(value: Any, keys: Sequence[str], read: Callable[[Any], str | None]) -> Iterator[str]:
    if isinstance(value, dict) and not is_message(value):
        found = (read(value[key]) for key in keys if value.get(key) is not None)
        yield from (text for text in found if text is not None)


def _plain(value: Any) -> str | None:
    """Return a text, number or boolean as text; a structure is none."""
    return as_text(value) if isinstance(value, (str, int, float)) else None


def _text(value: Any) -> str | None:
    """Return any value as text: words where it has some, else JSON."""
    if is_message(value):
        return message_text(value)
    if _are_messages(value):
        return message_text(value[-1])
    if isinstance(value, list) and value and all(isinstance(item, str) or _is_words(item) for item in value):
        return "".join(item if isinstance(item, str) else item["text"] for item in value)
    words = value.get("text", value.get("content")) if isinstance(value, dict) else value
    return None if value is None else as_text(words if isinstance(words, str) else value)


def _is_words(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(is_message(item) for item in value)


# --- places given by the user -----------------------------------------------------------------------------------


def _check(name: str, place: Place | None) -> None:
    if isinstance(place, str) and place.partition(".")[0] not in _SIDES:
        raise ConfigurationError(f"{name}={place!r}: a key path begins with one of {', '.join(_SIDES)}")


def _at(place: Place, view: View, read: Callable[[Any], Any]) -> Found:
    if isinstance(place, str):
        return Found(read(_walk(place, view)), f"the configured place, {place}")
    name = getattr(place, "__name__", type(place).__name__)
    try:
        given = place(view.unit)
    except Exception as error:  # noqa: BLE001 - a user's function; its message may quote
        return Found(None, f"the configured function {name}, which raised {type(error).__name__}")
    return Found(read(jsonable(given)), f"the configured function {name}")


def _walk(path: str, view: View) -> Any:
    side, *keys = path.split(".")
    whole: Side = view.input if side == "input" else view.output
    value = whole.whole()
    if keys and keys[0] == "messages" and isinstance(value, list) and whole.messages:
        keys = keys[1:]
    for key in keys:
        value = _step(value, key)
    return value


def _step(value: Any, key: str) -> Any:
    """Take one step: a dict's key, a list's position, or the key of each of a list's elements."""
    if isinstance(value, dict):
        return value.get(key)
    if not isinstance(value, list):
        return None
    if key.removeprefix("-").isdecimal():
        at = int(key)
        return value[at] if -len(value) <= at < len(value) else None
    steps = (_step(item, key) for item in value)
    return [step for step in steps if step is not None]


def _named(keys: Sequence[str]) -> str:
    return "keys " + ", ".join(keys)
