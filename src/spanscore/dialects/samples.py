"""View → Samples: the single-turn sample, the conversation where there is one, or the outcome that says why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from spanscore import semconv
from spanscore.config.capture import Extract
from spanscore.core.codecs.text import as_text, jsonable
from spanscore.core.log import log_once
from spanscore.core.sample import MultiTurnSample, Samples, SingleTurnSample
from spanscore.core.score import Outcome
from spanscore.core.span import CUT
from spanscore.dialects.contexts import Contexts
from spanscore.dialects.conversation import conversation_of
from spanscore.dialects.extract import find_answer, find_contexts, find_question
from spanscore.dialects.said import Said
from spanscore.dialects.turn import Found, Source
from spanscore.dialects.view import View

__all__ = ["no_sample", "samples_of"]

_AnySample = TypeVar("_AnySample", SingleTurnSample, MultiTurnSample)
_MOST_KEYS = 10
_MOST_CHARS = 40
_OBSERVED = frozenset({"user_input", "response", "retrieved_contexts", "retrieved_context_ids"})
"""Fields that a unit itself fills; the others of a sample are references."""


def no_sample(reason: str, searched: Sequence[tuple[str, str]] = ()) -> Samples:
    """Return the outcome of a unit that nothing can be made of."""
    return Samples(outcome=Outcome.NO_SAMPLE, reason=reason, searched=tuple(searched))


def samples_of(view: View, extract: Extract) -> Samples:
    """Make the samples of a unit, or say why there are none. Never raises for what a payload holds."""
    said = Said(view)
    answer = find_answer(extract, view, said)
    answering = said.answering(answer.value)
    question = find_question(extract, view, said, answering)
    found = find_contexts(extract, view, said, answering)
    searched = (
        ("user_input", question.searched),
        ("response", answer.searched),
        ("retrieved_contexts", found.searched),
    )
    why_not = _why_not(view, question, answer)
    if why_not is not None:
        return no_sample(why_not, searched)
    contexts: Contexts = found.value
    single, left_out = _referenced(_single(question.value, answer.value, contexts), view.expected)
    conversation, refused = conversation_of(view, question.value, answer.value, answering)
    multi, more = (None, []) if conversation is None else _referenced(conversation, view.expected)
    notes = dict.fromkeys([*left_out, *refused, *more])
    return Samples(
        single_turn=single,
        multi_turn=multi,
        reason="; ".join(notes) or None,
        searched=searched,
        source=_source(question, answer),
        unused_documents=contexts.unused,
    )


def _why_not(view: View, question: Found, answer: Found) -> str | None:
    if answer.value is None and view.failed:
        return "the run failed before it answered"
    if question.torn or answer.torn:
        what = " and the ".join(name for name, found in (("question", question), ("answer", answer)) if found.torn)
        return f"which of the root's texts is the {what} cannot be told; {_held(view)}"
    if (question.value is None or answer.value is None) and _is_cut(view):
        log_once(CUT.reason, f"{CUT.reason}: {CUT.hint}")
        return CUT.reason
    if question.value is None and answer.value is None:
        return f"neither a question nor an answer was found; {_held(view)}"
    return None


def _is_cut(view: View) -> bool:
    """Whether an attribute limit cut what the unit or one of its models was asked or said."""
    if view.input.cut or view.output.cut:
        return True
    models = (span for span in view.unit.spans if span.operation in semconv.MODEL_OPERATIONS)
    return any(span.attributes.get(semconv.CONTENT_CUT) is True for span in models)


def _held(view: View) -> str:
    """Say which keys the root has, and never what stands there, and what to do."""
    sides = (("input", view.input.value), ("output", view.output.value))
    held = [f"its {name} has {', '.join(_keys(value))}" for name, value in sides if isinstance(value, dict) and value]
    where = "; ".join([*held, "say where it stands"]) if held else "its root holds none: say where it stands"
    return f"{where}: extract=Extract(user_input='input.<key>', response='output.<key>')"


def _keys(value: Mapping[str, Any]) -> Sequence[str]:
    keys = [as_text(key)[:_MOST_CHARS] for key in value]
    return keys if len(keys) <= _MOST_KEYS else [*keys[:_MOST_KEYS], "…"]


def _source(question: Found, answer: Found) -> str | None:
    """Return how the less sure of both was found."""
    sources = [found.source for found in (question, answer) if found.source is not None]
    return None if not sources else str(max(sources, key=list(Source).index))


def _single(question: str | None, answer: str | None, contexts: Contexts) -> SingleTurnSample:
    return SingleTurnSample(
        user_input=question,
        response=answer,
        retrieved_contexts=contexts.texts,
        retrieved_context_ids=contexts.ids,
    )


def _referenced(sample: _AnySample, expected: Mapping[str, Any]) -> tuple[_AnySample, list[str]]:
    """Add the references the request brought along; one that does not fit is noted and left out."""
    notes: list[str] = []
    for name in type(sample).model_fields if expected else ():
        if expected.get(name) is None or name in _OBSERVED:
            continue
        try:
            sample = type(sample).model_validate({**dict(sample), name: jsonable(expected[name])})
        except ValidationError as error:
            notes.append(f"expected {name} left out: {error.errors()[0]['msg']}")
    return sample, notes
