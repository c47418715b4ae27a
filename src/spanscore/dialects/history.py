"""What user and application had said before this turn, where the root's own messages do not hold it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from spanscore.core.codecs.messages import ASSISTANT, USER, is_message, message_text, sample_messages, text_message
from spanscore.core.sample import Message
from spanscore.dialects.texts import are_messages, is_pair_of_texts, talk_of
from spanscore.dialects.view import GenAIMessage, ModelRun, View, human_turns, is_human, last_human_text

__all__ = ["history_of"]


def history_of(view: View, question: str | None, answering: ModelRun | None) -> list[Message]:
    """Return the turns before the root's own messages: of its input, a store, its final state, or a checkpoint."""
    if human_turns(view.output.messages):
        return []  # a thread holds them itself
    exchanged = [_exchanges(value, pairs="history" in key) for key, value in _entries(view.input.value)]
    places = (exchanged, _talks_in(view.input.value), [view.history], _talks_in(view.output.value))
    talks = [talk for place in places for talk in place if human_turns(talk)]
    if not talks:
        return sample_messages(_kept(question, answering))
    at = [n for n, message in enumerate(talks[0]) if is_human(message) and message_text(message) == question]
    return sample_messages(talks[0][: at[-1]] if at else talks[0])


def _kept(question: str | None, answering: ModelRun | None) -> list[GenAIMessage]:
    """Return what a thread kept of the messages before the question in a prompt: they have ids, a template's have none."""
    asked = () if answering is None else answering.asked
    if not question or question not in (last_human_text(asked) or ""):
        return []
    kept: list[GenAIMessage] = []
    keeps = False
    for message in asked[: max(at for at, message in enumerate(asked) if is_human(message))]:
        keeps = "id" in message if is_human(message) else keeps
        if keeps:
            kept.append(message)
    return kept


def _entries(value: Any) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, dict) else ()


def _talks_in(value: Any, depth: int = 3) -> list[Sequence[GenAIMessage]]:
    if depth <= 0 or is_message(value):
        return []
    if are_messages(value):
        return [value]
    return [talk for _, inner in _entries(value) for talk in _talks_in(inner, depth - 1)]


def _exchanges(value: Any, *, pairs: bool) -> Sequence[GenAIMessage]:
    """Return a history of (role, text) as messages; with ``pairs`` also one of (question, answer); ``[]`` for any other."""
    if not isinstance(value, list) or not all(map(is_pair_of_texts, value)):
        return []
    by_role = talk_of(value)
    if by_role or not pairs:
        return by_role
    both = [(text_message(USER, asked), text_message(ASSISTANT, said)) for asked, said in value]
    return [message for exchange in both for message in exchange]
