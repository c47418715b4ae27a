"""Contexts: what the answer was made from, of all that was retrieved.

documents of the final state under a key for them → of what was retrieved, the documents that stand in the prompt of the run
that answered, and of the runs whose answers it was given → all that was retrieved (by retriever runs, else in tool artifacts,
else in search results of prompts) → texts and documents of the state, input included → results of the tools that are named as
retrieval tools
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from spanscore.codec.messages import tool_calls, tool_responses
from spanscore.dialects.search_results import search_results
from spanscore.dialects.texts import CONTEXT_KEYS
from spanscore.dialects.view import GenAIMessage, Retrieved, Side, View, documents_in, is_resume

__all__ = ["Contexts", "contexts_in"]

_CUT = 100
"""Characters by which a document that a prompt holds in part is recognised: its beginning."""


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts of an answer.

    Attributes:
        documents: in rank order; None = no retrieval happened, empty = it found nothing.
        unused: documents that were retrieved and are not among them; None where no run retrieved any.
    """

    documents: Sequence[Retrieved] | None
    unused: int | None = None


def contexts_in(view: View, prompt: str | None, retrieval_tools: Sequence[str]) -> Contexts:
    """Find the contexts; ``prompt`` is what stood behind the answer (``Said.prompts_behind``), None where none is known."""
    retrieved = _distinct(view.retrievals or view.artifacts or search_results(view))
    kept = _listed_documents(view)
    if kept:
        texts = {document.content for document in kept}
        unused = None if retrieved is None else sum(document.content not in texts for document in retrieved)
        return Contexts(kept, unused)
    if retrieved is None:
        held = _first_held([*_kept_in(view.output), *_kept_in(view.input)])  # a state comes in with its keys empty
        return Contexts(_tool_results(view, retrieval_tools) if held is None else held)
    prompted = _in_prompt(retrieved, prompt)
    if prompted or (kept is not None and prompted is not None):  # a state that threw all of them away
        return Contexts(prompted, len(retrieved) - len(prompted))
    return Contexts(retrieved, 0)


def _distinct(rounds: Sequence[Sequence[Retrieved]]) -> list[Retrieved] | None:
    """Join what several runs found, without what an earlier one had found already; None when there was no run."""
    found: list[Retrieved] = []
    for documents in rounds:
        known = {document.content for document in found}
        found += [document for document in documents if document.content not in known]
    return found if rounds else None


def _in_prompt(retrieved: Sequence[Retrieved], prompt: str | None) -> list[Retrieved] | None:
    """Return the documents that stand in the prompt; None where it is not known."""
    if prompt is None:
        return None
    as_they_are = [_stands_as_it_is(document.content, prompt) for document in retrieved]
    spaced = "" if all(as_they_are) else _spaced(prompt)  # else no prompt need be read word by word
    return [
        document
        for document, stands in zip(retrieved, as_they_are, strict=True)
        if stands or _stands(document.content, spaced)
    ]


def _stands_as_it_is(text: str, prompt: str) -> bool:
    """Whether a prompt holds a document to the letter; by its beginning first, as to look for a long text is no cheap thing."""
    if not text or text.isspace():
        return False
    at = prompt.find(text[:_CUT])
    return at >= 0 and (prompt.startswith(text, at) or text in prompt)


def _stands(text: str, prompt: str) -> bool:
    """Whether a prompt holds a document: as it is, as Python or JSON shows it, or its beginning where it was cut."""
    shown = (_spaced(form) for form in (text, repr(text)[1:-1], json.dumps(text)[1:-1]))
    return any(form and (form in prompt or (len(form) > _CUT and form[:_CUT] in prompt)) for form in shown)


def _spaced(text: str) -> str:
    """Return a text with one blank where it has any: prompts are indented and wrapped."""
    return " ".join(text.split())


def _listed_documents(view: View) -> list[Retrieved] | None:
    """Return the documents that the final state lists; ``[]`` where it lists none under its keys, None without such a key."""
    return _first_held(value for value in _kept_in(view.output) if isinstance(value, list))


def _kept_in(side: Side) -> list[Any]:
    state = side.value if isinstance(side.value, dict) and not is_resume(side.value) else {}
    return [state[key] for key in CONTEXT_KEYS if key in state]


def _first_held(values: Iterable[Any]) -> list[Retrieved] | None:
    found = [documents for value in values if (documents := documents_in(value)) is not None]
    return next((documents for documents in found if documents), [] if found else None)


def _tool_results(view: View, names: Sequence[str]) -> list[Retrieved] | None:
    if not names:
        return None
    run = [tool.result for tool in view.tools if tool.name in names]
    results = run if view.tools else _results_in_messages(view.turn(), names)
    found = [documents for result in results if (documents := documents_in(result)) is not None]
    return list(chain.from_iterable(found)) if found else None


def _results_in_messages(turn: Sequence[GenAIMessage], names: Sequence[str]) -> list[Any]:
    """Return what the named tools answered in a turn's messages, for spans that have no tool runs."""
    asked = {call.id for message in turn for call in tool_calls(message) if call.name in names and call.id}
    return [
        answer.content
        for message in turn
        for answer in tool_responses(message)
        if answer.tool_call_id in asked or (answer.tool_call_id is None and message.get("name") in names)
    ]
