"""Reads the texts that Spring AI prints: ``["Be brief.", "Who gets in free?"]``, without escapes.

Spring AI prints prompts, answers and documents into log records (``log-prompt``, ``log-completion``, ``log-query-response``).
Applications put the same texts on spans, under ``gen_ai.prompt`` and ``gen_ai.completion``. A separator inside a text is
ambiguous: only prompts and documents are split at separators.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from spanscore import semconv
from spanscore.core.codecs.messages import ASSISTANT, SYSTEM, USER, text_message

_OPENING, _CLOSING, _SEPARATOR = '["', '"]', '", "'
_ENTRY: Final = re.compile(r'(?:\A\["|", ")(system|user|assistant|tool)":"')
"""Beginning of a message in the prompt of a client: ``["system":"Be brief.", "user":"Who …"]``, the last one of each role."""


def is_printed(text: Any) -> bool:
    """Return whether a value is a printed list of texts."""
    has_room = isinstance(text, str) and len(text) >= len(
        _OPENING + _CLOSING
    )  # the ends must not overlap, as in ``["]``
    return has_room and text.startswith(_OPENING) and text.endswith(_CLOSING)


def prompt_of(texts: list[str]) -> list[dict[str, Any]]:
    """Return the texts of a prompt as messages. Their roles are unknown: the last text counts as the user's message.

    A message with tool calls or results has no text, which is printed as ``null`` or as an empty text.
    """
    spoken = [text for text in texts if text not in ("", "null")]
    roles = [SYSTEM] * (len(spoken) - 1) + [USER]
    return [*map(text_message, roles, spoken)]


def printed_prompt(text: str) -> list[dict[str, Any]]:
    """Return the messages of a printed prompt."""
    return prompt_of(_split(text))


def printed_answer(text: str) -> dict[str, Any]:
    """Return the message of a printed answer."""
    return text_message(ASSISTANT, text[len(_OPENING) : -len(_CLOSING)])


def content_in_log(scope: str, body: Any) -> tuple[str, Mapping[str, Any]] | None:
    """Return the content in a log record as an event of its span; None if no handler of Spring AI wrote the record.

    Args:
        scope: name of the logger, which is the class of the handler.
        body: ``Chat Model Completion:`` and, in the next line, the printed texts.
    """
    handler = _HANDLERS.get(scope.rpartition(".")[2]) if scope.startswith(LOGGERS) else None
    if handler is None:
        return None
    event, name, read = handler
    printed = str(body).partition("\n")[2].strip()
    return (event, {name: read(printed)}) if is_printed(printed) else None


def _split(text: str) -> list[str]:
    return text[len(_OPENING) : -len(_CLOSING)].split(_SEPARATOR)


def _documents(text: str) -> list[dict[str, str]]:
    return [{"content": document} for document in _split(text)]


def _client_prompt(text: str) -> list[dict[str, Any]]:
    """Return the instructions and the question. Other messages are left out, because earlier ones of their role are missing."""
    _, *pieces = _ENTRY.split(text[: -len(_CLOSING)])
    by_role = dict(zip(pieces[::2], pieces[1::2], strict=True))
    return [text_message(role, by_role[role]) for role in (SYSTEM, USER) if by_role.get(role)]


LOGGERS: Final = "org.springframework.ai."
"""Prefix of Spring AI's loggers."""
_HANDLERS: Final[Mapping[str, tuple[str, str, Callable[[str], Any]]]] = {
    "ChatModelPromptContentObservationHandler": (semconv.PROMPT_EVENT, semconv.PROMPT, printed_prompt),
    "ChatModelCompletionObservationHandler": (semconv.COMPLETION_EVENT, semconv.COMPLETION, printed_answer),
    "ChatClientPromptContentObservationHandler": (semconv.PROMPT_EVENT, semconv.PROMPT, _client_prompt),
    "ChatClientCompletionObservationHandler": (semconv.COMPLETION_EVENT, semconv.COMPLETION, printed_answer),
    "VectorStoreQueryResponseObservationHandler": (semconv.DETAILS_EVENT, semconv.RETRIEVAL_DOCUMENTS, _documents),
}
"""Handler → event, its attribute, and function that reads the printed texts."""
