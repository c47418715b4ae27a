"""Server-sent events in one text, as a runnable yields them to a web client → the words in them.

The format is that of https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

__all__ = ["words_of"]

_FIELD: Final = re.compile(r"(data|event|id|retry|):(.*)", re.DOTALL)
_BETWEEN: Final = re.compile(r"\n\n+(?=data:|event:|id:|retry:|:)")
_BEGINS: Final = ("data:", "event:", "id:", "retry:", ":")
_NO_WORDS: Final = frozenset({"metadata", "end", "done", "ping", "error"})
"""Types of events that bring no part of the answer, as LangServe and others name them."""
_DONE: Final = "[DONE]"
_KEYS: Final = ("choices", "delta", "content", "text", "token", "answer", "chunk")
"""Where an event that is a JSON object holds its words, in the forms of OpenAI, Anthropic, Vercel and LangServe."""


def words_of(text: str) -> str:
    """Return what server-sent events say one after another; any other text as it is."""
    if not text.startswith(_BEGINS):
        return text
    text_of_lf = text.replace("\r\n", "\n")
    events = [*_events(text_of_lf)]
    if None in events or not (len(events) > 1 or text_of_lf.endswith("\n\n")):
        return text
    said = [*_each([data for data in events if data and data[0].strip() != _DONE])]
    return "".join(said) if any(said) else text


def _each(datas: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield what each event says; a space behind every ``data:`` is the format's, not the token's."""
    spaced = all(line[:1] in ("", " ") for data in datas for line in data)
    for data in datas:
        yield _said("\n".join([line[spaced:] for line in data]))


def _events(text: str) -> Iterator[list[str] | None]:
    """Yield the lines of data of each event, none of one that holds no words; None for a block that is no event."""
    for block in _BETWEEN.split(text.rstrip("\n")):
        data, kind, is_event = list[str](), "", False
        for line in block.split("\n"):
            field = _FIELD.fullmatch(line)
            is_event = is_event or field is not None
            if field is None:
                data[-1:] = (
                    [f"{data[-1]}\n{line}"] if data else []
                )  # its writer did not frame the line break of a token
            elif field[1] == "data":
                data.append(field[2])
            elif field[1] == "event":
                kind = field[2].strip()
        yield ([] if kind in _NO_WORDS else data) if is_event else None


def _said(data: str) -> str:
    if not data.lstrip().startswith(("{", '"')):
        return data
    try:
        return _words(json.loads(data))
    except (ValueError, RecursionError):
        return data


def _words(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(_words, value))
    if isinstance(value, dict):
        return next((words for key in _KEYS if key in value and (words := _words(value[key]))), "")
    return ""
