"""Channel: a root's conversation where it stands under another key than ``messages``, as in ``{"chat": [("user", "…")]}``.

The key is one under which the input's last words are a human's: a history that comes beside a question ends with an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spanscore.codec.messages import USER, is_message, role_of, text_message
from spanscore.dialects.texts import are_messages
from spanscore.dialects.view import GenAIMessage, Side, is_human, is_resume

__all__ = ["conversing"]


def conversing(given: Side, got: Side, known: Sequence[str]) -> tuple[Side, Side]:
    """Return input and output with their messages, also those under another key; unchanged where no one key holds them.

    Args:
        known: keys of a question; where the input has one, its messages are what was said before.
    """
    value, output = given.value, got.value if isinstance(got.value, dict) else {}
    if given.messages or got.messages or not isinstance(value, dict) or is_resume(value):
        return given, got
    talks = {key: _talk(inner, goes_on=are_messages(output.get(key))) for key, inner in value.items()}
    keys = [key for key, talk in talks.items() if talk and is_human(talk[-1])]
    if len(keys) != 1 or any(value.get(key) is not None for key in known if key not in keys):
        return given, got
    [key] = keys
    return _with(given, key, talks[key]), _with(got, key, output[key]) if are_messages(output.get(key)) else got


def _with(side: Side, key: str, messages: Sequence[GenAIMessage]) -> Side:
    rest = {name: inner for name, inner in side.value.items() if name != key}
    return Side(messages, rest or None, key)


def _talk(value: Any, *, goes_on: bool) -> Sequence[GenAIMessage]:
    """Return a value as messages: some, or (role, text); where the output goes on with it also one message, or a text."""
    if goes_on and not isinstance(value, list):
        value = [text_message(USER, value) if isinstance(value, str) else value]
    if not isinstance(value, list) or not all(is_message(item) or _is_said(item) for item in value):
        return []
    return [item if is_message(item) else text_message(role_of(item[0]) or USER, item[1]) for item in value]


def _is_said(value: Any) -> bool:
    """Whether a value is a role and what it says."""
    return isinstance(value, list) and len(value) == 2 and role_of(value[0]) is not None and isinstance(value[1], str)  # noqa: PLR2004
