"""View → Samples: the single-turn sample, the conversation where there is one, or the outcome that says why not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from spanscore.codec.messages import sample_messages, tool_calls, tool_responses
from spanscore.codec.text import as_text, jsonable
from spanscore.dialects.extract import Extract
from spanscore.dialects.view import GenAIMessage, Retrieved, View, calls_tools, human_turns, turn_of
from spanscore.model.sample import AIMessage, HumanMessage, Message, MultiTurnSample, Samples, SingleTurnSample
from spanscore.model.sample import ToolCall as SampleToolCall
from spanscore.model.sample import ToolMessage as SampleToolMessage
from spanscore.model.score import Outcome

__all__ = ["no_sample", "samples_of"]

_AnySample = TypeVar("_AnySample", SingleTurnSample, MultiTurnSample)
_SINGLE_REFERENCES = ("reference", "reference_contexts", "reference_context_ids", "rubrics")
_MULTI_REFERENCES = ("reference", "reference_tool_calls", "reference_topics", "rubrics")


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
    notes: list[str] = []
    single = _referenced(_single(question.value, answer.value, contexts.value), view, _SINGLE_REFERENCES, notes)
    multi = _multi(view, question.value, answer.value, notes)
    if multi is not None:
        multi = _referenced(multi, view, _MULTI_REFERENCES, notes)
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


def _referenced(sample: _AnySample, view: View, names: Sequence[str], notes: list[str]) -> _AnySample:
    """Add the references the request brought along; one that does not fit is noted and left out."""
    for name in names:
        given = view.expected.get(name)
        if given is None:
            continue
        try:
            checked = type(sample).model_validate({**_fields(sample), name: jsonable(given)})
        except ValidationError as error:
            notes.append(f"expected {name} left out: {error.errors()[0]['msg']}")
        else:
            sample = checked
    return sample


def _fields(sample: SingleTurnSample | MultiTurnSample) -> dict[str, Any]:
    return {name: getattr(sample, name) for name in type(sample).model_fields}


# --- the conversation -------------------------------------------------------------------------------------------


def _multi(view: View, question: str | None, answer: str | None, notes: list[str]) -> MultiTurnSample | None:
    """Return the conversation when the unit has tool calls or several human turns, None otherwise."""
    refused = ""
    for conversation in _conversations(view, question, answer):
        try:
            return MultiTurnSample(user_input=conversation)
        except ValidationError as error:
            refused = refused or error.errors()[0]["msg"]  # never str(error): it quotes the messages
    if refused:
        notes.append(f"conversation left out: {refused}")
    return None


def _conversations(view: View, question: str | None, answer: str | None) -> Iterator[list[Message]]:
    """Give the conversations that could be, the best first."""
    thread = view.thread()
    called = calls_tools(turn_of(thread))
    hidden = not called and (bool(view.tools) or any(calls_tools(run.said) for run in view.models))
    if thread and not hidden:
        if called or human_turns(thread) > 1:
            yield sample_messages(thread)
        return
    yield from _rebuilt(view, question, answer)
    if human_turns(thread) > 1:
        yield sample_messages(thread)


def _rebuilt(view: View, question: str | None, answer: str | None) -> Iterator[list[Message]]:
    """Rebuild the conversation from the models' runs, then from the tools' alone."""
    told = [[*run.asked, *run.said] for run in view.models]
    longest: list[GenAIMessage] = max(reversed(told), key=_calls_in, default=[])
    if calls_tools(longest) or human_turns(longest) > 1:
        yield [*sample_messages(longest), *_rest(view, longest, answer)]
    if view.tools:
        yield [
            *([] if question is None else [HumanMessage(content=question)]),
            AIMessage(tool_calls=[_call(tool.name, tool.arguments, tool.id) for tool in view.tools]),
            *(SampleToolMessage(content=_told(tool.result), tool_call_id=tool.id) for tool in view.tools),
            *([] if answer is None else [AIMessage(content=answer)]),
        ]


def _calls_in(messages: Sequence[GenAIMessage]) -> int:
    return sum(len(tool_calls(message)) for message in messages)


def _rest(view: View, messages: Sequence[GenAIMessage], answer: str | None) -> list[Message]:
    """Return what came after a model's last call of tools: their results, and the answer made of them."""
    answered = {response.tool_call_id for message in messages for response in tool_responses(message)}
    open_calls = {call.id: call for call in tool_calls(messages[-1]) if call.id and call.id not in answered}
    results = [
        SampleToolMessage(content=_told(tool.result), tool_call_id=tool.id)
        for tool in view.tools
        if tool.id in open_calls
    ]
    return [*results, AIMessage(content=answer)] if results and answer is not None else [*results]


def _call(name: str, arguments: Any, identity: str | None) -> SampleToolCall:
    given = jsonable(arguments)
    return SampleToolCall(name=name, args=given if isinstance(given, dict) else {"input": given}, id=identity)


def _told(result: Any) -> str:
    return "" if result is None else as_text(result)
