"""Question, answer and contexts of a unit: in the places that the user names, else where they usually are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spanscore.config.capture import Extract
from spanscore.core.codecs.text import jsonable
from spanscore.core.log import type_name
from spanscore.core.span import CUT, Unit
from spanscore.dialects.contexts import Contexts, contexts_in
from spanscore.dialects.documents import documents_in
from spanscore.dialects.said import Said
from spanscore.dialects.texts import CONTEXT_KEYS
from spanscore.dialects.turn import Found, Source, answer_in, answer_text, question_in, question_text
from spanscore.dialects.view import ModelRun, Side, View

__all__ = ["find_answer", "find_contexts", "find_question"]


def find_question(extract: Extract, view: View, said: Said, answering: ModelRun | None) -> Found:
    """Find the question: a text. ``answering`` is what ``Said.answering`` returns for the answer."""
    place = extract.user_input
    return question_in(view, said, answering) if place is None else _at(place, view, question_text)


def find_answer(extract: Extract, view: View, said: Said) -> Found:
    """Find the answer: a text. An empty answer is one."""
    return answer_in(view, said) if extract.response is None else _at(extract.response, view, answer_text)


def find_contexts(extract: Extract, view: View, said: Said, answering: ModelRun | None) -> Found:
    """Find the contexts: a ``Contexts``. ``answering`` is what ``Said.answering`` returns for the answer."""
    if extract.retrieved_contexts is not None:
        return _at(extract.retrieved_contexts, view, lambda value: Contexts(documents_in(value)))
    tools = ", ".join(extract.retrieval_tools) or "none named"
    keys = ", ".join(CONTEXT_KEYS)
    searched = (
        f"root output: documents under keys {keys}; prompt of the answer; retriever runs; tool artifacts; "
        f"root: keys {keys}; retrieval_tools ({tools})"
    )
    if view.documents_cut:
        searched = f"{searched}; the documents of a retriever run were {CUT.reason}"
    contexts = contexts_in(view, said, answering, extract.retrieval_tools)
    return Found(contexts, contexts.lack or searched)


def _at(place: str | Callable[[Unit], Any], view: View, read: Callable[[Any], Any]) -> Found:
    if isinstance(place, str):
        return Found(read(_walk(place, view)), f"the configured place, {place}", Source.EXTRACT)
    name = getattr(place, "__name__", type_name(place))
    try:
        value = place(view.unit)
    except Exception as error:  # noqa: BLE001 - a user's function; its message may quote
        raised = f"the configured function {name}, which raised {type_name(error)}"
        return Found(read(None), raised, Source.EXTRACT)
    return Found(read(jsonable(value)), f"the configured function {name}", Source.EXTRACT)


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
