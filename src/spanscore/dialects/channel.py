"""Channel: a root's conversation where it stands under another key than ``messages``, as in ``{"chat": [("user", "…")]}``.

The key is one under which the input's last words are a human's: a history that comes beside a question ends with an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spanscore.core.codecs.messages import USER, text_message
from spanscore.dialects.texts import are_messages, talk_of
from spanscore.dialects.view import GenAIMessage, Side, is_human, is_resume

__all__ = ["conversing"]


def conversing(input: Side, output: Side, known: Sequence[str]) -> tuple[Side, Side]:
    """Return input and output with their messages, also those under another key; unchanged where no one key holds them.

    Where the input has a ``known`` key of a question, its messages are what was said before.
    """
    after = output.value if isinstance(output.value, dict) else {}
    channel = None if input.messages or output.messages else _channel(input.value, after, known)
    if channel is None:
        return input, output
    key, talk = channel
    return _with(input, key, talk), _with(output, key, after[key]) if are_messages(after.get(key)) else output


def _channel(value: Any, after: Mapping[str, Any], known: Sequence[str]) -> tuple[str, Sequence[GenAIMessage]] | None:
    """Return the one key of an input under which there are messages, the last a human's, with these messages."""
    if not isinstance(value, dict) or is_resume(value):
        return None
    talks = {key: _talk(inner, goes_on=are_messages(after.get(key))) for key, inner in value.items()}
    keys = [key for key, talk in talks.items() if talk and is_human(talk[-1])]
    if len(keys) != 1 or any(value.get(key) is not None for key in known if key not in keys):
        return None
    return keys[0], talks[keys[0]]


def _with(side: Side, key: str, messages: Sequence[GenAIMessage]) -> Side:
    rest = {name: inner for name, inner in side.value.items() if name != key}
    return Side(messages, rest or None, key)


def _talk(value: Any, *, goes_on: bool) -> Sequence[GenAIMessage]:
    """Return a value as messages: some, or (role, text); where the output goes on with it also one message, or a text."""
    if goes_on and not isinstance(value, list):
        value = [text_message(USER, value) if isinstance(value, str) else value]
    return talk_of(value)
