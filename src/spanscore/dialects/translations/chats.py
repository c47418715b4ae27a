"""What a model was asked and what it said, in whatever form its client has it → GenAI messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from spanscore import semconv
from spanscore.core.codecs.messages import (
    ASSISTANT,
    TOOL,
    call_part,
    dict_message,
    parts,
    response_part,
    role_of,
    text_message,
)
from spanscore.core.codecs.stored_sample import messages_from, unfolded
from spanscore.core.codecs.text import is_cut
from spanscore.dialects.translations.python_text import shown_messages

__all__ = ["agent_of_model", "answers_in", "exchanged_in", "prompts_in", "split_answer", "spoken_by"]

_MESSAGES = "messages"
_ASKED = ("prompts", "prompt", "input", "contents")
_SAID = ("choices", "generations", "message", "output", "content")
_BY_ROLE: Final = re.compile(r"(?:\A|\n)(system|developer|user|human|assistant|ai|tool|function): ?")
"""How a text goes from one speaker to the next, as OpenLIT writes a prompt: ``system: …`` and ``user: …`` in lines."""
_TEXT_BLOCK: Final = "text: "
"""What OpenLIT writes before each text of a message that consists of blocks."""


def prompts_in(value: Any) -> list[dict[str, Any]]:
    """Return what a parsed prompt asks: messages, a request that has them, or texts, which are a user's."""
    if isinstance(value, dict) and _MESSAGES in value:
        return _messages(value)
    asked = _first_of_batch(_under(value, _ASKED))
    return _messages_in(asked) if isinstance(asked, str) else messages_from(unfolded(asked), loose=True)


def answers_in(value: Any) -> list[dict[str, Any]]:
    """Return what a parsed answer says: messages, a response that has choices or generations, or texts, the assistant's."""
    if isinstance(value, dict) and _MESSAGES in value:
        return _messages(value)
    said = _first_of_batch(_under(value, _SAID))
    if isinstance(said, str) and is_cut(said):
        return []
    read = (_answer(one) for one in (said if isinstance(said, list) else [said]))
    return [message for answer in read for message in messages_from(unfolded(answer))]


def exchanged_in(events: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return what a list of events asked and answered, as Logfire and Pydantic AI write them in an attribute.

    Each is a message, ``{"event.name": "gen_ai.user.message", "role", "content"}``, or holds one under ``message``: the choice.
    Where no choice is among them, the assistant's messages behind all others are the answer.
    """
    asked: list[dict[str, Any]] = []
    said: list[dict[str, Any]] = []
    for event in events if isinstance(events, list) else ():
        if not isinstance(event, dict):
            continue
        inner = event.get("message")
        message: dict[str, Any] = inner if isinstance(inner, dict) else event
        if role_of(message.get("role")) is not None:
            answers = isinstance(inner, dict) or event.get("event.name") == semconv.CHOICE_EVENT
            form = {"content": None, "tool_call_id": event.get("id"), **message}
            (said if answers else asked).append(dict_message(form))
    return (asked, said) if said else split_answer(asked)


def split_answer(messages: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return messages without the assistant's at their end, and these."""
    end = len(messages)
    while end and messages[end - 1].get("role") == ASSISTANT:
        end -= 1
    return [*messages[:end]], [*messages[end:]]


def spoken_by(
    role: str, content: Any, calls: Sequence[Mapping[str, Any]] = (), answered: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a message of a speaker: of a tool its answer to a call, of any other what it says and calls."""
    known = role_of(role) or role
    if known == TOOL:
        return {"role": TOOL, "parts": [response_part(answered or {}, content)]}
    return {"role": known, "parts": [*parts(content, calls_apart=bool(calls)), *map(call_part, calls)]}


def agent_of_model(metadata: Mapping[str, Any]) -> str | None:
    """Return for which agent a model of LangChain was asked, as our own capture tells it."""
    name, namespace = metadata.get("lc_agent_name"), metadata.get("langgraph_checkpoint_ns")
    if isinstance(name, str) and name:
        return name
    above = namespace.split("|")[:-1] if isinstance(namespace, str) else ()
    return above[-1].partition(":")[0] if above else None


def _messages_in(prompt: str) -> list[dict[str, Any]]:
    """Return the messages of a prompt that is one text: those it shows or separates by role, else one of a user."""
    shown = shown_messages(prompt)
    if shown is None:
        pieces = _BY_ROLE.split(prompt)
        shown = list(zip(pieces[1::2], pieces[2::2], strict=True)) if not pieces[0] else None
    if shown is not None:
        return [spoken_by(role, words.removeprefix(_TEXT_BLOCK)) for role, words in shown]
    return [] if is_cut(prompt) else messages_from(prompt, loose=True)


def _messages(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of a dict that has them; texts among them show objects of the client, LlamaIndex's mostly."""
    return messages_from(unfolded(_first_of_batch(value[_MESSAGES])))


def _under(value: Any, keys: Sequence[str]) -> Any:
    """Return what stands under the first of these keys; a value that is no dict, or a message itself, as it is."""
    if not isinstance(value, dict) or isinstance(value.get("role"), str):
        return value
    return next((value[key] for key in keys if key in value), value)


def _first_of_batch(value: Any) -> Any:
    """Return the first of several lists of messages; any other value as it is: ``["user", "…"]`` is a message."""
    first = value[0] if isinstance(value, list) and value else None
    return first if isinstance(first, list) and not (first and isinstance(first[0], str)) else value


def _answer(one: Any) -> Any:
    if isinstance(one, str):
        return text_message(ASSISTANT, one)
    if not isinstance(one, dict) or "role" in one:
        return one
    if "message" in one:
        return one["message"] if not isinstance(one["message"], str) else text_message(ASSISTANT, one["message"])
    return text_message(ASSISTANT, one["text"]) if isinstance(one.get("text"), str) else one
