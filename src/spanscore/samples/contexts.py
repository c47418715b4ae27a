"""Finds the contexts of an answer: the retrieved texts, even if retriever spans have no text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from spanscore.core.codecs.messages import SYSTEM, message_text, role_of, tool_calls, tool_responses
from spanscore.samples.question_answer import ModelTexts
from spanscore.samples.texts import CONTEXT_KEYS, RetrievedDocument, documents_in
from spanscore.samples.view import (
    GenAIMessage,
    ModelRun,
    RootValue,
    ToolRun,
    UnitView,
    is_resume,
    last_human_text,
    search_results,
)

# --- recovered texts --------------------------------------------------------------------------------------------------

# Texts of retrieved documents without a text on their spans, from other places that the answering model saw:
#
# 1. variables of its prompt's template, under a key for contexts
# 2. results of the tools inside which the retrievers ran
# 3. parts of its prompt that a tag or a heading marks as the context

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
"""Longest line that may be a heading, in characters."""


def texts_of_documents(
    documents: Sequence[RetrievedDocument], behind: Sequence[ModelRun], searching: Sequence[ToolRun]
) -> list[RetrievedDocument] | None:
    """Return the documents with their texts, or the texts that contain the documents; None if no place has these texts.

    Args:
        documents: retrieved documents, in rank order; the text of at least one is unknown.
        behind: the runs behind the answer (``ModelTexts.runs_behind``); empty if no run is known.
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
    """Yield the results of the tools; if a tool's span lacks its result, the next prompt may have it."""
    answers = (response for run in behind for message in run.asked for response in tool_responses(message))
    shown = {response.tool_call_id: response.content for response in answers} if searching else {}
    yield from (shown.get(tool.id) if tool.result is None else tool.result for tool in searching)


def _marked(behind: Sequence[ModelRun]) -> Iterator[str]:
    """Yield the marked parts of prompts, from messages about this question: instructions, and the user's last message."""
    for run in behind:
        for message in run.asked:
            if role_of(message.get("role")) == SYSTEM:
                yield _part(message_text(message) or "", asks=False)
        yield _part(last_human_text(run.asked) or "", asks=True)


def _part(text: str, *, asks: bool) -> str:
    """Return the part of a message that a tag or a heading marks as the context; empty without such a mark.

    If the message ``asks``, it also has the question, which ends the part. In other messages a heading ``Question:`` is part of
    a document.
    """
    opening = _OPENING.search(text)
    closing = -1 if opening is None else text.rfind(f"</{opening[1]}>")
    if opening is not None and closing >= opening.end():
        return text[opening.end() : closing].strip()
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if _HEADING.match(line[:_LONGEST_HEADING])), None)
    if start is None:
        return ""
    questions = [at for at, line in enumerate(lines) if _QUESTION.match(line)] if asks else []
    end = questions[-1] if questions and questions[0] > start else len(lines)
    part = "\n".join([_HEADING.sub("", lines[start], count=1), *lines[start + 1 : end]])
    return _ANSWER.sub("", part).strip()


def _distinct(values: Iterable[Any]) -> list[Any]:
    kept: list[Any] = []
    for value in values:
        if value is not None and value not in kept:
            kept.append(value)
    return kept


def _apart(found: Sequence[RetrievedDocument], count: int) -> list[RetrievedDocument] | None:
    """Return the documents in one text, if blank lines divide the text into as many parts; None otherwise."""
    if len(found) != 1 or found[0].id is not None or count == 1:
        return None
    parts = [part.strip() for part in _BLANK_LINES.split(found[0].content or "") if part.strip()]
    return [RetrievedDocument(part) for part in parts] if len(parts) == count else None


# --- contexts -------------------------------------------------------------------------------------------------------

# The contexts are the first of these that exist:
#
# 1. documents of the final state under a key for them
# 2. retrieved documents in the prompt of the answering run, or of the runs whose answers are in that prompt
# 3. all retrieved documents: of retriever runs, or else in tool artifacts, or else in search results of prompts
# 4. texts and documents of the state, input included
# 5. results of the tools that are named as retrieval tools
#
# If the text of a document is unknown, ``texts_of_documents`` searches for it; if it is not found, the contexts are unknown.

_CUT = 100
"""Number of characters at the beginning of a document by which it is recognised in a prompt that cut it."""


@dataclass(frozen=True, slots=True)
class AnswerContexts:
    """The contexts of an answer.

    Attributes:
        documents: documents in rank order; None = no retrieval happened, empty = it found nothing.
        unused: number of retrieved documents that are not among ``documents``; None if no run retrieved any, or a text is
            unknown.
        together: texts that contain the documents, if they cannot be separated; None = each document has its own text.
    """

    documents: Sequence[RetrievedDocument] | None
    unused: int | None = None
    together: Sequence[str] | None = None

    @property
    def texts(self) -> list[str] | None:
        """Texts of the contexts; None = no retrieval happened, or the text of a document is unknown."""
        if self.together is not None or self.documents is None:
            return None if self.together is None else list(self.together)
        texts = [document.content for document in self.documents if document.content is not None]
        return texts if len(texts) == len(self.documents) else None

    @property
    def ids(self) -> list[str | int] | None:
        """Ids of the documents; None = no retrieval happened, or a document has no id."""
        ids = [document.id for document in self.documents or () if document.id is not None]
        return ids if self.documents is not None and len(ids) == len(self.documents) else None

    @property
    def lack(self) -> str | None:
        """The reason why texts of known documents are unknown; None if texts are known, or there are no documents."""
        if self.documents is None or self.texts is not None:
            return None
        has = "documents have ids and no text" if self.ids else "documents have no text"
        return f"the retrieval: {has}, and no variable or marked part of the answer's prompt holds it"


def contexts_in(
    view: UnitView, model_texts: ModelTexts, answering: ModelRun | None, retrieval_tools: Sequence[str]
) -> AnswerContexts:
    """Find the contexts. ``answering`` is the run that gave the answer; None = unknown."""
    found = _contexts(view, model_texts, answering, retrieval_tools)
    if found.documents is None or found.texts is not None:
        return found
    behind = [] if answering is None else model_texts.runs_behind(answering)
    recovered = texts_of_documents(found.documents, behind, view.searching)
    unknown = AnswerContexts(found.documents)
    return unknown if recovered is None else _with_texts(unknown, recovered)


def _with_texts(unknown: AnswerContexts, recovered: Sequence[RetrievedDocument]) -> AnswerContexts:
    """Return contexts with texts from elsewhere: one per document if the documents can be separated, otherwise together."""
    documents = unknown.documents or ()
    if all(document.id is not None for document in recovered):
        return AnswerContexts(recovered, max(len(documents) - len(recovered), 0))
    texts = [document.content for document in recovered if document.content is not None]
    if len(texts) != len(documents):
        return replace(unknown, together=texts)
    return AnswerContexts([replace(one, content=text) for one, text in zip(documents, texts, strict=True)], 0)


def _contexts(
    view: UnitView, model_texts: ModelTexts, answering: ModelRun | None, retrieval_tools: Sequence[str]
) -> AnswerContexts:
    retrieved = _distinct_documents(view.retrievals or view.artifacts or search_results(view))
    kept = _listed_documents(view)
    if kept:
        return AnswerContexts(kept, _count_unused(retrieved, kept))
    if view.documents_cut:
        return AnswerContexts(None)
    if retrieved is None:
        # The output's keys come first, because the input's keys are often empty.
        held = _first_held([*_read_context_keys(view.output), *_read_context_keys(view.input)])
        return AnswerContexts(_tool_results(view, retrieval_tools) if held is None else held)
    if answering is None or any(document.content is None for document in retrieved):
        return AnswerContexts(retrieved, 0)
    prompted = _in_prompt(retrieved, model_texts.prompts_behind(answering))
    if prompted or kept is not None:  # the state dropped all of them
        return AnswerContexts(prompted, len(retrieved) - len(prompted))
    return AnswerContexts(retrieved, 0)


def _count_unused(retrieved: Sequence[RetrievedDocument] | None, kept: Sequence[RetrievedDocument]) -> int | None:
    keys = {_key(document) for document in kept}
    return None if retrieved is None else sum(_key(document) not in keys for document in retrieved)


def _distinct_documents(rounds: Sequence[Sequence[RetrievedDocument]]) -> list[RetrievedDocument] | None:
    """Join the documents of several runs, without repetitions; None if there was no run.

    A document without a text gets the text that another run found for its id.
    """
    found: list[RetrievedDocument] = []
    for documents in rounds:
        keys = {_key(document) for document in found}
        found += [document for document in _filled(documents, rounds) if _key(document) not in keys]
    return found if rounds else None


def _filled(
    documents: Sequence[RetrievedDocument], rounds: Sequence[Sequence[RetrievedDocument]]
) -> Sequence[RetrievedDocument]:
    if all(document.content is not None for document in documents):  # the usual case
        return documents
    with_both = (one for each in rounds for one in each if one.content is not None and one.id is not None)
    texts: dict[Any, str | None] = {one.id: one.content for one in with_both}
    return [replace(one, content=texts.get(one.id)) if one.content is None else one for one in documents]


def _key(document: RetrievedDocument) -> Any:
    """Return the key by which a document is recognised: the text, or the id. Without both it equals no other document."""
    if document.content is not None:
        return document.content
    return object() if document.id is None else ("id", document.id)


def _in_prompt(retrieved: Sequence[RetrievedDocument], prompt: str) -> list[RetrievedDocument]:
    """Return the documents that are in the prompt; every text is known."""
    texts = [document.content or "" for document in retrieved]
    verbatim = [_occurs_verbatim(text, prompt) for text in texts]
    spaced = "" if all(verbatim) else _collapse_spaces(prompt)  # otherwise the prompt need not be normalised
    return [
        document
        for document, text, is_verbatim in zip(retrieved, texts, verbatim, strict=True)
        if is_verbatim or _occurs(text, spaced)
    ]


def _occurs_verbatim(text: str, prompt: str) -> bool:
    """Return whether a prompt contains a document exactly. The document's beginning is searched first, for speed."""
    if not text or text.isspace():
        return False
    at = prompt.find(text[:_CUT])
    return at >= 0 and (prompt.startswith(text, at) or text in prompt)


def _occurs(text: str, prompt: str) -> bool:
    """Return whether a prompt contains a document: unchanged, as a Python or JSON literal, or cut after its beginning."""
    shown = (_collapse_spaces(form) for form in (text, repr(text)[1:-1], json.dumps(text)[1:-1]))
    return any(form and (form in prompt or (len(form) > _CUT and form[:_CUT] in prompt)) for form in shown)


def _collapse_spaces(text: str) -> str:
    """Return a text with every run of white space as one blank, because prompts are indented and wrapped."""
    return " ".join(text.split())


def _listed_documents(view: UnitView) -> list[RetrievedDocument] | None:
    """Return the documents in lists of the final state; ``[]`` for empty lists, None without a key for documents."""
    return _first_held(value for value in _read_context_keys(view.output) if isinstance(value, list))


def _read_context_keys(side: RootValue) -> list[Any]:
    state = side.value if isinstance(side.value, dict) and not is_resume(side.value) else {}
    return [state[key] for key in CONTEXT_KEYS if key in state]


def _first_held(values: Iterable[Any]) -> list[RetrievedDocument] | None:
    found = [documents for value in values if (documents := documents_in(value)) is not None]
    return next((documents for documents in found if documents), [] if found else None)


def _tool_results(view: UnitView, names: Sequence[str]) -> list[RetrievedDocument] | None:
    if not names:
        return None
    run = [tool.result for tool in view.tools if tool.name in names]
    results = run if view.tools else _results_in_messages(view.turn(), names)
    found = [documents for result in results if (documents := documents_in(result)) is not None]
    return list(chain.from_iterable(found)) if found else None


def _results_in_messages(turn: Sequence[GenAIMessage], names: Sequence[str]) -> list[Any]:
    """Return the results of the named tools in a turn's messages, for units without tool spans."""
    call_ids = {call.id for message in turn for call in tool_calls(message) if call.name in names and call.id}
    return [
        answer.content
        for message in turn
        for answer in tool_responses(message)
        if answer.tool_call_id in call_ids or (answer.tool_call_id is None and message.get("name") in names)
    ]
