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

# --- texts of documents -----------------------------------------------------------------------------------------------

# If the spans of retrievers lack the texts of their documents, the texts are read from the first of these places that has them:
#
# 1. variables of the prompt's template, under a key for contexts
# 2. results of the tools inside which the retrievers ran
# 3. parts of the prompt that a tag or a heading marks as the context

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
    documents: Sequence[RetrievedDocument], answer_runs: Sequence[ModelRun], retrieving_tools: Sequence[ToolRun]
) -> list[RetrievedDocument] | None:
    """Return the documents with their texts, or the texts that contain the documents; None if no place has these texts.

    Args:
        documents: retrieved documents, in rank order; the text of at least one is unknown.
        answer_runs: the runs that contributed to the answer (``ModelTexts.contributing_runs``); empty if none is known.
        retrieving_tools: the tools inside which the documents were retrieved.
    """
    for values in (_variables(answer_runs), _results(retrieving_tools, answer_runs), _marked_parts(answer_runs)):
        with_texts = [document for value in _distinct(values) for document in documents_in(value) or ()]
        if with_texts and all(document.content is not None for document in with_texts):
            return _split_at_blank_lines(with_texts, len(documents)) or with_texts
    return None


def _variables(answer_runs: Sequence[ModelRun]) -> Iterator[Any]:
    for run in answer_runs:
        variables = run.variables
        yield from (variables[name] for name in CONTEXT_KEYS if name in variables)


def _results(tools: Sequence[ToolRun], answer_runs: Sequence[ModelRun]) -> Iterator[Any]:
    """Yield the results of the tools; if a tool's span lacks its result, a prompt may have it."""
    responses = (response for run in answer_runs for message in run.input for response in tool_responses(message))
    in_prompts = {response.tool_call_id: response.content for response in responses} if tools else {}
    yield from (in_prompts.get(tool.id) if tool.result is None else tool.result for tool in tools)


def _marked_parts(answer_runs: Sequence[ModelRun]) -> Iterator[str]:
    """Yield the marked parts of instructions and of the user's last messages; other messages are about earlier questions."""
    for run in answer_runs:
        for message in run.input:
            if role_of(message.get("role")) == SYSTEM:
                yield _context_part(message_text(message) or "", asks=False)
        yield _context_part(last_human_text(run.input) or "", asks=True)


def _context_part(text: str, *, asks: bool) -> str:
    """Return the part of a message that a tag or a heading marks as the context; empty without such a mark."""
    # If the message ``asks``, it also has the question, which ends the part. In other messages a heading ``Question:`` is part
    # of a document.
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
    distinct: list[Any] = []
    for value in values:
        if value is not None and value not in distinct:
            distinct.append(value)
    return distinct


def _split_at_blank_lines(documents: Sequence[RetrievedDocument], count: int) -> list[RetrievedDocument] | None:
    """Return the parts of a single text if blank lines divide it into ``count`` parts; None otherwise."""
    if len(documents) != 1 or documents[0].id is not None or count == 1:
        return None
    parts = [part.strip() for part in _BLANK_LINES.split(documents[0].content or "") if part.strip()]
    return [RetrievedDocument(part) for part in parts] if len(parts) == count else None


# --- contexts -------------------------------------------------------------------------------------------------------

# The contexts are the first of these that exist:
#
# 1. documents of the final state under a key for them
# 2. retrieved documents in the prompt of the run that gave the answer, or of the runs whose answers are in that prompt
# 3. all retrieved documents: of retriever runs, or else in tool artifacts, or else in search results of prompts
# 4. texts and documents of the state, input included
# 5. results of the tools that are named as retrieval tools
#
# ``texts_of_documents`` searches for unknown texts of documents. If it finds none, the contexts are unknown.

_BEGINNING_CHARS = 100
"""Length of the beginning of a document, by which the document is recognised in a prompt that contains only a part of it."""


@dataclass(frozen=True, slots=True)
class AnswerContexts:
    """The contexts of an answer.

    Attributes:
        documents: documents in rank order; None = no retrieval happened, empty = it found nothing.
        unused: number of retrieved documents that are not among ``documents``; None if no run retrieved any, or a text is
            unknown.
        joint_texts: texts that each contain several documents, if these cannot be separated; None = each document has its own.
    """

    documents: Sequence[RetrievedDocument] | None
    unused: int | None = None
    joint_texts: Sequence[str] | None = None

    @property
    def texts(self) -> list[str] | None:
        """Texts of the contexts; None = no retrieval happened, or the text of a document is unknown."""
        if self.joint_texts is not None or self.documents is None:
            return None if self.joint_texts is None else list(self.joint_texts)
        texts = [document.content for document in self.documents if document.content is not None]
        return texts if len(texts) == len(self.documents) else None

    @property
    def ids(self) -> list[str | int] | None:
        """Ids of the documents; None = no retrieval happened, or a document has no id."""
        ids = [document.id for document in self.documents or () if document.id is not None]
        return ids if self.documents is not None and len(ids) == len(self.documents) else None

    @property
    def why_unknown(self) -> str | None:
        """The reason why texts of known documents are unknown; None if texts are known, or there are no documents."""
        if self.documents is None or self.texts is not None:
            return None
        has = "documents have ids and no text" if self.ids else "documents have no text"
        return f"the retrieval: {has}, and no variable or marked part of the answer's prompt holds it"


def contexts_in(
    view: UnitView, model_texts: ModelTexts, answer_run: ModelRun | None, retrieval_tools: Sequence[str]
) -> AnswerContexts:
    """Find the contexts. ``answer_run`` is the run that gave the answer; None = unknown."""
    contexts = _contexts(view, model_texts, answer_run, retrieval_tools)
    if contexts.documents is None or contexts.texts is not None:
        return contexts
    answer_runs = [] if answer_run is None else [run for run, _ in model_texts.contributing_runs(answer_run)]
    with_texts = texts_of_documents(contexts.documents, answer_runs, view.retrieving_tools)
    if with_texts is None:
        return AnswerContexts(contexts.documents)
    if all(document.id is not None for document in with_texts):
        return AnswerContexts(with_texts, max(len(contexts.documents) - len(with_texts), 0))
    texts = [document.content for document in with_texts if document.content is not None]
    if len(texts) != len(contexts.documents):  # the documents cannot be separated
        return AnswerContexts(contexts.documents, joint_texts=texts)
    return AnswerContexts([replace(doc, content=text) for doc, text in zip(contexts.documents, texts, strict=True)], 0)


def _contexts(
    view: UnitView, model_texts: ModelTexts, answer_run: ModelRun | None, retrieval_tools: Sequence[str]
) -> AnswerContexts:
    retrieved = _distinct_documents(view.retrievals or view.artifacts or search_results(view))
    in_state = _listed_documents(view)
    if in_state:
        return AnswerContexts(in_state, _count_unused(retrieved, in_state))
    if view.documents_cut:
        return AnswerContexts(None)
    if retrieved is None:
        # The output's keys come first, because the input's keys are often empty.
        documents = _first_documents([*_read_context_keys(view.output), *_read_context_keys(view.input)])
        return AnswerContexts(_tool_results(view, retrieval_tools) if documents is None else documents)
    if answer_run is None or any(document.content is None for document in retrieved):
        return AnswerContexts(retrieved, 0)
    prompted = _documents_in_prompts(retrieved, model_texts.contributing_runs(answer_run))
    if prompted or in_state is not None:  # an empty list in the state: the application dropped all documents
        return AnswerContexts(prompted, len(retrieved) - len(prompted))
    return AnswerContexts(retrieved, 0)


def _count_unused(retrieved: Sequence[RetrievedDocument] | None, used: Sequence[RetrievedDocument]) -> int | None:
    keys = {_key(document) for document in used}
    return None if retrieved is None else sum(_key(document) not in keys for document in retrieved)


def _distinct_documents(retrievals: Sequence[Sequence[RetrievedDocument]]) -> list[RetrievedDocument] | None:
    """Join the documents of several runs without repetitions, with the texts that any run found; None if there was no run."""
    distinct: list[RetrievedDocument] = []
    for documents in retrievals:
        keys = {_key(document) for document in distinct}
        distinct += [document for document in _with_known_texts(documents, retrievals) if _key(document) not in keys]
    return distinct if retrievals else None


def _with_known_texts(
    documents: Sequence[RetrievedDocument], retrievals: Sequence[Sequence[RetrievedDocument]]
) -> Sequence[RetrievedDocument]:
    if all(document.content is not None for document in documents):  # the usual case
        return documents
    texts: dict[Any, str | None] = {}
    for other in (document for retrieval in retrievals for document in retrieval):
        if other.content is not None and other.id is not None:
            texts[other.id] = other.content
    return [replace(doc, content=texts.get(doc.id)) if doc.content is None else doc for doc in documents]


def _key(document: RetrievedDocument) -> Any:
    """Return the key by which a document is recognised: the text, or the id. Without both it equals no other document."""
    if document.content is not None:
        return document.content
    return object() if document.id is None else ("id", document.id)


def _documents_in_prompts(
    retrieved: Sequence[RetrievedDocument], answer_runs: Iterable[tuple[ModelRun, str]]
) -> list[RetrievedDocument]:
    """Return the documents that are in the runs' prompts; every text is known."""
    prompt = "\n".join(prompt for _, prompt in answer_runs)
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
    at = prompt.find(text[:_BEGINNING_CHARS])
    return at >= 0 and (prompt.startswith(text, at) or text in prompt)


def _occurs(text: str, prompt: str) -> bool:
    """Return whether a prompt contains a document: unchanged, as a Python or JSON literal, or cut after its beginning."""
    for form in map(_collapse_spaces, (text, repr(text)[1:-1], json.dumps(text)[1:-1])):
        if form and (form in prompt or (len(form) > _BEGINNING_CHARS and form[:_BEGINNING_CHARS] in prompt)):
            return True
    return False


def _collapse_spaces(text: str) -> str:
    """Return a text with every run of white space as one blank, because prompts are indented and wrapped."""
    return " ".join(text.split())


def _listed_documents(view: UnitView) -> list[RetrievedDocument] | None:
    """Return the documents in lists of the final state; ``[]`` for empty lists, None without a key for documents."""
    return _first_documents(value for value in _read_context_keys(view.output) if isinstance(value, list))


def _read_context_keys(side: RootValue) -> list[Any]:
    state = side.value if isinstance(side.value, dict) and not is_resume(side.value) else {}
    return [state[key] for key in CONTEXT_KEYS if key in state]


def _first_documents(values: Iterable[Any]) -> list[RetrievedDocument] | None:
    """Return the first documents in the values; ``[]`` if all are empty, None if no value can have documents."""
    lists = [documents for value in values if (documents := documents_in(value)) is not None]
    return next(filter(None, lists), [] if lists else None)


def _tool_results(view: UnitView, names: Sequence[str]) -> list[RetrievedDocument] | None:
    if not names:
        return None
    on_spans = [tool.result for tool in view.tools if tool.name in names]
    results = on_spans if view.tools else _results_in_messages(view.output_of_turn(), names)
    lists = [documents for result in results if (documents := documents_in(result)) is not None]
    return list(chain.from_iterable(lists)) if lists else None


def _results_in_messages(turn: Sequence[GenAIMessage], names: Sequence[str]) -> list[Any]:
    """Return the results of the named tools in a turn's messages, for units without tool spans."""
    call_ids = {call.id for message in turn for call in tool_calls(message) if call.name in names and call.id}
    return [
        result.content
        for message in turn
        for result in tool_responses(message)
        if result.tool_call_id in call_ids or (result.tool_call_id is None and message.get("name") in names)
    ]
