"""Content that AWS's distribution moved from a span, whoever wrote it, to the body of a log record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from spanscore import semconv
from spanscore.core.codecs.messages import SYSTEM
from spanscore.core.span import Attributes, SpanData
from spanscore.dialects.translations.building import json_at, rendered
from spanscore.dialects.translations.chats import answers_in, prompts_in
from spanscore.dialects.translations.python_text import value_of
from spanscore.dialects.translations.whole import content_of

__all__ = ["with_body"]


def with_body(translated: SpanData, events: Sequence[tuple[str, Mapping[str, Any]]]) -> SpanData:
    """Return a translated span that has no content with that of its record's body, if there is one among its events."""
    for name, held in events:
        if name == semconv.DETAILS_EVENT and not held.keys().isdisjoint(semconv.BODY_SIDES):
            content = partial(rendered, partial(_content, str(translated.operation)), dict(held))
            return replace(translated, attributes=Attributes(dict(translated.attributes), content), no_content=None)
    return translated


def _content(operation: str, held: Mapping[str, Any]) -> Mapping[str, Any]:
    given, gave = (_messages(json_at(held, side)) for side in semconv.BODY_SIDES)
    if operation in semconv.MODEL_OPERATIONS:
        return {
            semconv.INPUT_MESSAGES: prompts_in(_talk(given)) or None,
            semconv.OUTPUT_MESSAGES: answers_in(_talk(gave)) or None,
        }
    asked = [message for message in given if message.get("role") != SYSTEM]
    return content_of(operation, *(_whole(messages) for messages in (asked, gave)))


def _messages(side: Any) -> list[Mapping[str, Any]]:
    messages = side.get("messages") if isinstance(side, Mapping) else None
    return [one for one in messages if isinstance(one, Mapping)] if isinstance(messages, list) else []


def _talk(messages: Sequence[Mapping[str, Any]]) -> Any:
    """Return messages; those that are a whole request or answer as JSON only if there is none beside them."""
    plain = [message for message in messages if isinstance(value_of(message.get("content")), str)]
    return {"messages": plain} if plain or not messages else value_of(messages[0].get("content"))


def _whole(messages: Sequence[Mapping[str, Any]]) -> Any:
    return value_of(messages[-1].get("content")) if messages else None
