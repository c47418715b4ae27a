"""View → Samples: the single-turn sample, the conversation where there is one, or the outcome that says why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from spanscore.codec.messages import sample_messages, tool_calls, tool_responses
from spanscore.codec.text import as_text, jsonable
from spanscore.dialects.extract import Extract
from spanscore.dialects.view import GenAIMessage, Retrieved, ToolRun, View, calls_tools, human_turns, turn_of
from spanscore.model.sample import (
    AIMessage,
    HumanMessage,
    Message,
    MultiTurnSample,
    Samples,
    SingleTurnSample,
    ToolCall,
    ToolMessage,
)
from spanscore.model.score import Outcome

__all__ = ["no_sample", "samples_of"]

_AnySample = TypeVar("_AnySample", SingleTurnSample, MultiTurnSample)
_REFERENCES = (
    "reference",
    "reference_contexts",
    "reference_context_ids",
    "reference_tool_calls",
    "reference_topics",
    "rubrics",
)


def no_sample(reason: str, looked_in: Sequence[tuple[str, str]] = ()) -> Samples:
    """Return the outcome of a unit that nothing can be made of."""
    return Samples(outcome=Outcome.NO_SAMPLE, reason=reason, looked_in=tuple(looked_in))


def samples_of(view: View, extract: Extract) -> Samples:
    """Make the samples of a unit, or say why there are none. Never raises for what a payload holds."""
    question, answer, contexts = extract.question(view), extract.answer(view), extract.contexts(view)
    looked_in = (
        ("user_input", question.looked_in),
        ("response", answer.looked_in),
        ("retrieved_contexts", contexts.looked_in),
    )
    if answer.value is None and view.failed:
        return no_sample("the run failed before it answered", looked_in)
    if question.value is None and answer.value is None:
        return no_sample("neither a question nor an answer was found", looked_in)
    single, left_out = _referenced(_single(question.value, answer.value, contexts.value), view.expected)
    conversation, refused = _multi(view, question.value, answer.value)
    multi, more = (None, []) if conversation is None else _referenced(conversation, view.expected)
    notes = dict.fromkeys([*left_out, *refused, *more])
    return Samples(single=single, multi=multi, reason="; ".join(notes) or None, looked_in=looked_in)


def _single(question: str | None, answer: str | None, contexts: Sequence[Retrieved] | None) -> SingleTurnSample:
    if contexts is None:
        return SingleTurnSample(user_input=question, response=answer)
    ids = [document.id for document in contexts if document.id is not None]
    return SingleTurnSample(
        user_input=question,
        response=answer,
        retrieved_contexts=[document.content for document in contexts],
        retrieved_context_ids=ids if len(ids) == len(contexts) else None,
    )


def _referenced(sample: _AnySample, expected: Mapping[str, Any]) -> tuple[_AnySample, list[str]]:
    """Add the references the request brought along; one that does not fit is noted and left out."""
    notes: list[str] = []
    for name in _REFERENCES:
        if expected.get(name) is None or name not in type(sample).model_fields:
            continue
        try:
            sample = type(sample).model_validate({**_fields(sample), name: jsonable(expected[name])})
        except ValidationError as error:
            notes.append(f"expected {name} left out: {error.errors()[0]['msg']}")
    return sample, notes


def _fields(sample: SingleTurnSample | MultiTurnSample) -> dict[str, Any]:
    return {name: getattr(sample, name) for name in type(sample).model_fields}


# --- the conversation -------------------------------------------------------------------------------------------


def _multi(view: View, question: str | None, answer: str | None) -> tuple[MultiTurnSample | None, list[str]]:
    """Return the conversation when the unit has tool calls or several human turns; a refused one is noted."""
    refused: list[str] = []
    for conversation in _conversations(view, question, answer):
        try:
            return MultiTurnSample(user_input=conversation), []
        except ValidationError as error:
            refused.append(f"conversation left out: {error.errors()[0]['msg']}")  # not str(error): it quotes
    return None, refused[:1]


def _conversations(view: View, question: str | None, answer: str | None) -> Iterator[list[Message]]:
    """Give the conversations that could be, the best first."""
    thread = view.thread()
    called = calls_tools(turn_of(thread))
    if not human_turns(thread) or (not called and _tools_ran(view)):
        yield from _rebuilt(view, question, answer)
    if called or human_turns(thread) > 1:
        opening = [HumanMessage(content=question)] if question is not None and not human_turns(thread) else []
        yield [*opening, *sample_messages(thread)]


def _tools_ran(view: View) -> bool:
    """Whether tools were used, not merely called: a structured answer is a call that no tool answers."""
    return bool(view.tools) or any(tool_responses(message) for run in view.models for message in turn_of(run.asked))


def _rebuilt(view: View, question: str | None, answer: str | None) -> Iterator[list[Message]]:
    """Rebuild the conversation from the models' runs, then from the tools' alone."""
    told = [[*run.asked, *run.said] for run in view.models]
    longest: list[GenAIMessage] = max(reversed(told), key=_calls_in, default=[])
    if (calls_tools(longest) and _tools_ran(view)) or human_turns(longest) > 1:
        yield [*sample_messages(longest), *_rest(view, longest, answer)]
    if view.tools:
        yield [
            *([] if question is None else [HumanMessage(content=question)]),
            AIMessage(tool_calls=[_call(tool) for tool in view.tools]),
            *(_result(tool) for tool in view.tools),
            *([] if answer is None else [AIMessage(content=answer)]),
        ]


def _calls_in(messages: Sequence[GenAIMessage]) -> int:
    return sum(len(tool_calls(message)) for message in messages)


def _rest(view: View, messages: Sequence[GenAIMessage], answer: str | None) -> list[Message]:
    """Return what came after a model's last call of tools: their results, and the answer made of them."""
    answered = {response.tool_call_id for message in messages for response in tool_responses(message)}
    waiting = {call.id for call in tool_calls(messages[-1]) if call.id and call.id not in answered}
    results: list[Message] = [_result(tool) for tool in view.tools if tool.id in waiting]
    return [*results, AIMessage(content=answer)] if results and answer is not None else results


def _call(tool: ToolRun) -> ToolCall:
    given = jsonable(tool.arguments)
    return ToolCall(name=tool.name, args=given if isinstance(given, dict) else {"input": given}, id=tool.id)


def _result(tool: ToolRun) -> ToolMessage:
    return ToolMessage(content="" if tool.result is None else as_text(tool.result), tool_call_id=tool.id)
