"""Texts of retrieved documents whose spans have no text, from the other places where the answering model saw the texts.

1. variables of its prompt's template, under a key for contexts
2. results of the tools inside which the retrievers ran
3. parts of its prompt that a tag or a heading marks as the context
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from spanscore.core.codecs.messages import SYSTEM, message_text, role_of, tool_responses
from spanscore.dialects.documents import Retrieved, documents_in
from spanscore.dialects.texts import CONTEXT_KEYS
from spanscore.dialects.view import ModelRun, ToolRun, last_human_text

__all__ = ["texts_of_documents"]

_WORDS: Final = "|".join(CONTEXT_KEYS)
_OPENING: Final = re.compile(rf"<({_WORDS})\b[^<>]{{0,100}}>", re.IGNORECASE)
_HEADING: Final = re.compile(
    rf"\W{{0,9}}(?:\w+ )?(?:{_WORDS})\W{{0,3}}:"
    rf"|.{{0,80}}\b(?:following|this|these|provided|retrieved)\b.{{0,40}}\b(?:{_WORDS})\b.{{0,80}}:\s*$",
    re.IGNORECASE,
)
"""``Context: …``; ``Use the following context:``."""
_QUESTION: Final = re.compile(r"\W{0,9}(?:\w+ )?(?:question|query|input)\W{0,3}:", re.IGNORECASE)
_ANSWER: Final = re.compile(r"\n\W{0,9}(?:\w+ )?answer\W{0,3}:\s*\Z", re.IGNORECASE)
_BLANK_LINES: Final = re.compile(r"\n[ \t\r]*\n")
_LONGEST_HEADING: Final = 200
"""Characters of a line that may be a heading."""


def texts_of_documents(
    documents: Sequence[Retrieved], behind: Sequence[ModelRun], searching: Sequence[ToolRun]
) -> list[Retrieved] | None:
    """Return the documents with their texts, or the texts that hold them; None if no place holds them.

    Args:
        documents: what was retrieved, in rank order; the text of at least one is unknown.
        behind: the runs behind the answer (``Said.runs_behind``); empty if none is known.
        searching: the tools inside which the documents were retrieved.
    """
    for values in (_variables(behind), _results(searching, behind), _marked(behind)):
        found = [document for value in _distinct(values) for document in documents_in(value) or ()]
        if found and all(document.content is not None for document in found):
            return _apart(found, len(documents)) or found
    return None


def _variables(behind: Sequence[ModelRun]) -> Iterator[Any]:
    for run in behind:
        variables = run.variables
        yield from (variables[name] for name in CONTEXT_KEYS if name in variables)


def _results(searching: Sequence[ToolRun], behind: Sequence[ModelRun]) -> Iterator[Any]:
    """Yield what the tools returned; a tool's span may lack the result that stands in the next prompt."""
    answers = (response for run in behind for message in run.asked for response in tool_responses(message))
    shown = {response.tool_call_id: response.content for response in answers} if searching else {}
    yield from (shown.get(tool.id) if tool.result is None else tool.result for tool in searching)


def _marked(behind: Sequence[ModelRun]) -> Iterator[str]:
    """Yield the marked parts of prompts, in the messages that are about this question: instructions, the last of the user."""
    for run in behind:
        for message in run.asked:
            if role_of(message.get("role")) == SYSTEM:
                yield _part(message_text(message) or "", asks=False)
        yield _part(last_human_text(run.asked) or "", asks=True)


def _part(text: str, *, asks: bool) -> str:
    """Return the part of a message that a tag or a heading marks as the context; empty if nothing marks one.

    Args:
        text: of the message.
        asks: whether the question stands in the message, too: it ends the part. In other messages a heading ``Question:`` is
            part of a document.
    """
    opening = _OPENING.search(text)
    closing = -1 if opening is None else text.rfind(f"</{opening[1]}>")
    if opening is not None and closing >= opening.end():
        return text[opening.end() : closing].strip()
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if _is_heading(line)), None)
    if start is None:
        return ""
    questions = [at for at, line in enumerate(lines) if _QUESTION.match(line)] if asks else []
    end = questions[-1] if questions and questions[0] > start else len(lines)
    part = "\n".join([_HEADING.sub("", lines[start], count=1), *lines[start + 1 : end]])
    return _ANSWER.sub("", part).strip()


def _is_heading(line: str) -> bool:
    return _HEADING.match(line if len(line) <= _LONGEST_HEADING else line[:_LONGEST_HEADING]) is not None


def _distinct(values: Iterable[Any]) -> list[Any]:
    kept: list[Any] = []
    for value in values:
        if value is not None and value not in kept:
            kept.append(value)
    return kept


def _apart(found: Sequence[Retrieved], count: int) -> list[Retrieved] | None:
    """Return the documents that one text holds, if blank lines divide the text into as many parts; None otherwise."""
    if len(found) != 1 or found[0].id is not None or count == 1:
        return None
    parts = [part.strip() for part in _BLANK_LINES.split(found[0].content or "") if part.strip()]
    return [Retrieved(part) for part in parts] if len(parts) == count else None
