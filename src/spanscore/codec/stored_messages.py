"""Messages of a stored conversation → messages of a sample: those of ragas, of OpenAI's clients, and of LangChain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from spanscore.codec.langchain_dumps import message_from, unfolded
from spanscore.codec.messages import message_text, sample_messages
from spanscore.errors import SampleError
from spanscore.model.sample import Message

__all__ = ["conversation_of", "looks_like_messages", "text_of"]

_OURS: Final[TypeAdapter[Message]] = TypeAdapter(Message)
_LONGEST: Final = 30
"""Characters of a role that an error shows."""


def conversation_of(items: list[Any]) -> list[Message]:
    """Return the messages of a conversation; system messages are no part of it.

    Args:
        items: messages of a sample, of LangChain or of ragas, or dicts with ``role`` or ``type``, and ``content``.

    Raises:
        SampleError: an item is no message; the error names its place and the role or type that is there.
    """
    return [message for place, item in enumerate(items) for message in _messages(place, item)]


def looks_like_messages(value: Any) -> bool:
    """Whether a value is a list of dicts with a role or a type, as messages are."""
    return isinstance(value, list) and all(isinstance(one, dict) and ("role" in one or "type" in one) for one in value)


def text_of(value: Any) -> Any:
    """Return the text of a message or document of LangChain, an object or a document's dict; any other value as it is."""
    page = value.get("page_content") if isinstance(value, dict) else getattr(value, "page_content", None)
    if isinstance(page, str):
        return page
    message = None if isinstance(value, str | list | dict) else message_from(unfolded(_fields(value)))
    return value if message is None else message_text(message)


def _messages(place: int, item: Any) -> list[Message]:
    try:
        return [_OURS.validate_python(item)]
    except ValidationError as error:
        ours = error
    fields = _fields(item)
    if isinstance(fields, dict) and "role" not in fields and "additional_kwargs" not in fields and "data" not in fields:
        fields = {"role": fields.get("type"), **fields}
    if isinstance(fields, dict) and fields.get("tool_calls"):
        fields = {"content": None, **fields}
    message = message_from(unfolded(fields))
    if message is None:
        raise SampleError(f"user_input.{place}: {_what_is_there(item)}") from ours
    return sample_messages([message])


def _fields(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) else value


def _what_is_there(item: Any) -> str:
    wanted = "a message has content and a role (user, assistant, tool, system) or a type (human, ai, tool, system)"
    if not isinstance(item, Mapping):
        return f"{wanted}; this is a {type(item).__name__}"
    kind = next((item[key] for key in ("role", "type") if key in item), None)
    named = repr(kind[:_LONGEST]) if isinstance(kind, str) else "none"
    return f"{wanted}; its role is {named}, its content is {'there' if 'content' in item else 'not there'}"
