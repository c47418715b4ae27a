"""Reads content in the forms of earlier GenAI conventions, on the span or in the body of a log record."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from spanscore import semconv
from spanscore.core.codecs.messages import ASSISTANT, SYSTEM, TOOL, USER, joined
from spanscore.core.codecs.text import from_wire, is_cut
from spanscore.core.span import Attributes, SpanData
from spanscore.samples.normalizers.building import (
    answers_in,
    content_of,
    json_at,
    positions,
    prompts_in,
    rendered,
    split_answer,
    spoken_by,
    value_of,
)

# --- bodies ---------------------------------------------------------------------------------------------------------

# Content that AWS's distribution moved from a span of any writer to the body of a log record.


def with_body(translated: SpanData, events: Sequence[tuple[str, Mapping[str, Any]]]) -> SpanData:
    """Return a translated span with the content of its log record's body; unchanged if no event has such a body."""
    for name, held in events:
        if name == semconv.DETAILS_EVENT and not held.keys().isdisjoint(semconv.BODY_SIDES):
            content = partial(rendered, partial(_content, str(translated.operation)), dict(held))
            return replace(translated, attributes=Attributes(dict(translated.attributes), content), no_content=None)
    return translated


def _content(operation: str, held: Mapping[str, Any]) -> Mapping[str, Any]:
    inputs, outputs = (_messages(json_at(held, side)) for side in semconv.BODY_SIDES)
    if operation in semconv.MODEL_OPERATIONS:
        return {
            semconv.INPUT_MESSAGES: prompts_in(_talk(inputs)) or None,
            semconv.OUTPUT_MESSAGES: answers_in(_talk(outputs)) or None,
        }
    prompts = [message for message in inputs if message.get("role") != SYSTEM]
    return content_of(operation, *(value_of(side[-1].get("content")) if side else None for side in (prompts, outputs)))


def _messages(side: Any) -> list[Mapping[str, Any]]:
    messages = side.get("messages") if isinstance(side, Mapping) else None
    return [message for message in messages if isinstance(message, Mapping)] if isinstance(messages, list) else []


def _talk(messages: Sequence[Mapping[str, Any]]) -> Any:
    """Return messages. A message that contains a whole request or answer as JSON counts only if there is no other message."""
    plain = [message for message in messages if isinstance(value_of(message.get("content")), str)]
    return {"messages": plain} if plain or not messages else value_of(messages[0].get("content"))


# --- older ----------------------------------------------------------------------------------------------------------

_ON_EVENTS: Final = "events"
"""Key of the span events among the raw attributes with content."""
_EVENTS: Final = frozenset(
    {semconv.PROMPT_EVENT, semconv.COMPLETION_EVENT, semconv.CHOICE_EVENT, *semconv.MESSAGE_EVENTS}
)
"""Span events with content."""
_BODIES: Final = (semconv.EVENT_CONTENT, semconv.PROMPT, semconv.COMPLETION, "content", "message")
"""Attributes of a span event with its content; the first existing one is used."""
Events = Sequence[tuple[str, Mapping[str, Any]]]
"""Name and attributes of each event of a span."""
_CONTENT_NAMES: Final = re.compile(rf"(?:{semconv.PROMPT}|{semconv.COMPLETION})(?:$|\.\d)")
"""Matches names of content, not ``gen_ai.prompt.version``."""
_Turns = tuple[list[dict[str, Any]], list[dict[str, Any]]]


def older_content(raw: Mapping[str, Any], events: Events) -> dict[str, Any]:
    """Return the attributes and the events of a span that quote."""
    raw_content: dict[str, Any] = {name: value for name, value in raw.items() if _CONTENT_NAMES.match(name)}
    talk = [(name, dict(held)) for name, held in events if name in _EVENTS and held]
    if not talk:
        return raw_content
    cut = {
        name: body for name, held in talk if isinstance(body := _body(held), str) and is_cut(body)
    }  # marks it as cut
    return {**raw_content, **cut, _ON_EVENTS: talk}


def older_chat(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input and output of a model."""
    for read in _FORMS:
        prompts, answers = read(raw_content)
        if prompts or answers:
            return {semconv.INPUT_MESSAGES: prompts or None, semconv.OUTPUT_MESSAGES: answers or None}
    return {}


def older_root(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input and output of a run."""
    if _ON_EVENTS in raw_content:
        return _with_answer(older_chat(raw_content))
    return content_of(semconv.INVOKE_WORKFLOW, _given(raw_content, "input"), _gave(raw_content, "output"))


def _with_answer(content: dict[str, Any]) -> dict[str, Any]:
    """Return a run's content; an answer at the end of the input messages becomes the output (Azure's agents)."""
    prompts = content.get(semconv.INPUT_MESSAGES)
    if prompts is None or content.get(semconv.OUTPUT_MESSAGES) is not None:
        return content
    before, answer = split_answer(prompts)
    return {semconv.INPUT_MESSAGES: before or None, semconv.OUTPUT_MESSAGES: answer or None}


def older_tool(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments and result of a tool."""
    if _ON_EVENTS in raw_content:
        inputs, outputs = _events_of_tool(raw_content[_ON_EVENTS])
        return {semconv.TOOL_CALL_ARGUMENTS: inputs, semconv.TOOL_CALL_RESULT: outputs}
    return content_of(semconv.EXECUTE_TOOL, value_of(_given(raw_content, "input")), _gave(raw_content, "output"))


def older_retrieval(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the query and documents of a retriever."""
    return content_of(semconv.RETRIEVAL, _given(raw_content, "query"), _gave(raw_content, "documents"))


def _flat(raw_content: Mapping[str, Any]) -> _Turns:
    return _flat_messages(raw_content, semconv.PROMPT, USER), _flat_messages(raw_content, semconv.COMPLETION, ASSISTANT)


def _flat_messages(raw_content: Mapping[str, Any], name: str, role: str) -> list[dict[str, Any]]:
    messages = [fields for fields in positions(raw_content, f"{name}.") if fields.keys() & _SPEAKS]
    # if some have a role, a message without one was cut
    with_role = [fields for fields in messages if "role" in fields]
    return [_flat_message(fields, role) for fields in with_role or messages]


_SPEAKS: Final = frozenset({"role", "content", "tool_calls.0.name", "tool_calls.0.id", "function_call.name"})


def _flat_message(fields: Mapping[str, Any], role: str) -> dict[str, Any]:
    content, said = fields.get("content"), fields.get("role", role)
    calls = [*positions(fields, "tool_calls.")]
    if "function_call.name" in fields:
        calls.append({"name": fields["function_call.name"], "arguments": fields.get("function_call.arguments")})
    blocks = from_wire(content) if isinstance(content, str) and content.startswith("[{") else content
    return spoken_by(said if isinstance(said, str) else role, blocks, calls, fields)


def _whole_conversation(raw_content: Mapping[str, Any]) -> _Turns:
    prompt, completion = _parsed(raw_content.get(semconv.PROMPT)), _parsed(raw_content.get(semconv.COMPLETION))
    return ([] if prompt is None else prompts_in(prompt)), ([] if completion is None else answers_in(completion))


def _on_events(raw_content: Mapping[str, Any]) -> _Turns:
    prompts: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    for name, held in raw_content.get(_ON_EVENTS, ()):
        body = _parsed(_body(held))
        if isinstance(body, str) and (is_cut(body) or name == semconv.PROMPT_EVENT):
            prompts += prompts_in(body)  # empty for a cut text
        elif name in {semconv.CHOICE_EVENT, semconv.COMPLETION_EVENT}:
            answers += answers_in(_blocks_of(body, ASSISTANT, held))
        elif body is not None or name in semconv.MESSAGE_EVENTS:
            prompts += prompts_in(_blocks_of(body, semconv.MESSAGE_EVENTS.get(name, USER), held))
    return prompts, answers


def _body(held: Mapping[str, Any]) -> Any:
    return next((held[key] for key in _BODIES if key in held), None)


def _events_of_tool(events: Events) -> tuple[Any, Any]:
    """Return arguments and result from a tool's events: the message has the arguments, the choice the result (Strands)."""
    bodies = {name: _parsed(_body(held)) for name, held in events}
    inputs = next(
        (bodies[name] for name, role in semconv.MESSAGE_EVENTS.items() if role == TOOL and name in bodies), None
    )
    return inputs, joined(bodies.get(semconv.CHOICE_EVENT))


def _blocks_of(body: Any, role: str, held: Mapping[str, Any]) -> Any:
    """Return the body of an event as a message; a message without a role gets the role of the event's name."""
    if isinstance(body, list) and body and all(isinstance(block, dict) and "role" not in block for block in body):
        return {"role": role, "content": body}  # Strands uses Bedrock's content blocks
    if isinstance(body, dict) and isinstance(body.get("message"), dict):
        body = body["message"]
    if isinstance(body, dict) and body.keys() & {"content", "tool_calls"}:
        return {"content": None, "role": role, "tool_call_id": body.get("id"), **body}
    if isinstance(body, str):
        return {"role": role, "content": body, "tool_call_id": held.get("id")}
    return body


def _parsed(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [from_wire(item) if isinstance(item, str) else item for item in value]
    return from_wire(value) if isinstance(value, str) else value


def _given(raw_content: Mapping[str, Any], key: str) -> Any:
    return _alone(_parsed(raw_content.get(semconv.PROMPT)), key)


def _gave(raw_content: Mapping[str, Any], key: str) -> Any:
    return _alone(_parsed(raw_content.get(semconv.COMPLETION)), key)


def _alone(value: Any, key: str) -> Any:
    """Return the value in a dict whose only key is ``key``; other values unchanged."""
    return value[key] if isinstance(value, dict) and value.keys() == {key} else value


_FORMS: Final[Sequence[Callable[[Mapping[str, Any]], _Turns]]] = (_flat, _whole_conversation, _on_events)
