"""The lexical judge's answers about an agent's tool calls and plans, by comparing words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, NamedTuple

from spanscore.core.prompt import Prompt
from spanscore.judges.lexical.words import LexicalAnswer, Words, has_akin, message_text, messages_in, share_of, words

_CONVERSATION: Final = "user_input"
_VALUE_SHARE: Final = 0.5
"""Minimum share of a value's words that earlier messages have."""
_STEP_SHARE: Final = 0.5
"""Minimum share of a step's words that a later tool call has."""
_ERROR: Final = re.compile(
    r"\A\W*(?:error|exception|traceback|fail)|\"error\"\s*:|\b(?:timed out|timeout|could not|cannot|can't|unable to|unavailable"
    r"|denied|forbidden|invalid)\b",
    re.IGNORECASE,
)
"""Words with which a tool's result reports a failure."""
_ADMITS: Final = re.compile(
    r"\?|\b(?:can(?:no|')t|could(?: not|n't)|unable|failed|error|not (?:find|found|possible|available|work)|sorry|unfortunately"
    r"|no such|problem)\b",
    re.IGNORECASE,
)
"""Words with which an agent reports a failure, and the sign of a question to the user."""
_ITEM: Final = re.compile(r"^\s*(?:\d{1,2}[.)]|[-*•])\s+(\S.*)$", re.MULTILINE)
_SEVERAL: Final = 2
"""Minimum number of items of a list that counts as a plan."""


class _Call(NamedTuple):
    """A tool call with its surroundings.

    Attributes:
        args: argument name → value.
        request: the user's last message before it.
        text: text of the message that makes the call.
        before: all texts before it.
        result: text of its result; empty if unknown.
        after: messages after it, up to the user's next message.
    """

    number: int
    tool: str
    args: Any
    request: str
    text: str
    before: str
    result: str
    after: Sequence[Mapping[str, Any]]


def _calls(prompt: Prompt) -> Iterator[_Call]:
    """Yield the calls that the question lists, in the order of the conversation."""
    wanted = {call["call"] for call in prompt.evidence.get("calls", ())}
    messages = messages_in(prompt, _CONVERSATION)
    number, request, before = 0, "", [""]
    for turn, message in enumerate(messages):
        request = str(message.get("content", "")) if message["role"] == "user" else request
        for index, call in enumerate(message.get("tool_calls", ())):
            number += 1
            if number in wanted:
                after = [*takewhile(lambda later: later["role"] != "user", messages[turn + 1 :])]
                results = [str(later.get("content", "")) for later in after if later["role"] == "tool"]
                result = results[index] if index < len(results) else ""
                text = str(message.get("content", ""))
                yield _Call(number, str(call["name"]), call["args"], request, text, "\n".join(before), result, after)
        before.append(message_text(message))


def _row(call: _Call, fault: str | None) -> dict[str, Any]:
    return {"call": call.number, "reason": fault or "Its words show no fault.", "verdict": int(not fault)}


def _as_words(name: str) -> str:
    """Return a tool's name as words: ``find_departures`` and ``findDepartures`` as ``find departures``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[_.\-]+", " ", name).casefold()


def _judge_selection(prompt: Prompt) -> Mapping[str, Any]:
    """Judge a tool as wrong if it was not offered, or if it shares no word with the request and an unused tool does.

    For the called tool, words of the message that makes the call also count as words of the request. Without offered tools,
    every call is right.
    """
    offered = {str(tool["name"]): tool for tool in prompt.evidence.get("tools", ())}
    texts = {name: f"{_as_words(name)} {tool.get('description', '')}" for name, tool in offered.items()}
    calls = [*_calls(prompt)]
    unused = {name: text for name, text in texts.items() if all(call.tool != name for call in calls)}
    return {"calls": [_row(call, _other_tool(call, texts, unused)) for call in calls]}


def _other_tool(call: _Call, texts: Mapping[str, str], unused: Mapping[str, str]) -> str | None:
    if not texts:
        return None
    if call.tool not in texts:
        return f"{call.tool} is not on offer."
    if _shares_word(f"{call.request}\n{call.text}", texts[call.tool]):
        return None
    better = next((name for name, text in unused.items() if _shares_word(call.request, text)), None)
    return better and f"{better} has words of the request, and {call.tool} has none."


def _shares_word(request: str, text: str) -> bool:
    stems = words(text).content
    return any(has_akin(stem, stems) for stem in words(request).content)


def _judge_arguments(prompt: Prompt) -> Mapping[str, Any]:
    """Judge arguments as wrong if a value has less than half of its words and numbers in earlier messages or the tool's schema.

    A value without numbers is also right if one of these texts contains it literally.
    """
    definitions = {str(tool["name"]): str(tool.get("parameters", "")) for tool in prompt.evidence.get("tools", ())}
    return {"calls": [_row(call, _objection(call, definitions.get(call.tool, ""))) for call in _calls(prompt)]}


def _objection(call: _Call, schema: str) -> str | None:
    """Return the objection to the first value that is neither in earlier messages nor in the schema; None without one."""
    context = f"{call.before}\n{schema}"
    for value in _leaves(call.args):
        text = str(value)
        content = words(text)
        is_quoted = not content.numbers and text.casefold() in context.casefold()
        if not is_quoted and share_of(content, words(context), if_empty=1.0) < _VALUE_SHARE:
            return f"{text!r} is in no earlier message."
    return None


def _leaves(value: Any) -> Iterator[Any]:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for item in inner:
        yield from _leaves(item)
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        yield value


def _judge_steps(prompt: Prompt) -> Mapping[str, Any]:
    """Judge a tool call as needless if an earlier call for the same request did not fail and has the same tool and words."""
    seen: set[tuple[str, ...]] = set()
    rows = []
    for call in _calls(prompt):
        values = words(" ".join(map(str, _leaves(call.args))))
        key = (call.request, call.tool, *sorted({*values.content, *values.numbers}))
        rows.append(_row(call, "An earlier call has the same words." if key in seen else None))
        if not _ERROR.search(call.result):
            seen.add(key)
    return {"calls": rows}


def _judge_recovery(prompt: Prompt) -> Mapping[str, Any]:
    """Judge a failure as ignored if neither a different tool call nor a word about the failure follows."""
    rows = []
    for call in _calls(prompt):
        failed = bool(_ERROR.search(call.result))
        ignored = failed and not any(_reacts(message, call) for message in call.after)
        row = _row(call, "Nothing after the error refers to it." if ignored else None)
        rows.append({**row, "failed": int(failed)})
    return {"calls": rows}


def _reacts(message: Mapping[str, Any], call: _Call) -> bool:
    """Return whether a message after a failed call makes a different call, or has a word about the failure."""
    if message["role"] != "assistant":
        return False
    made = [(other["name"], other["args"]) for other in message.get("tool_calls", ())]
    return any(other != (call.tool, call.args) for other in made) or bool(
        _ADMITS.search(str(message.get("content", "")))
    )


def _judge_plan(prompt: Prompt) -> Mapping[str, Any]:
    """Judge each step of the agent's plan as taken if a tool call has at least half of the step's words and numbers.

    The plan is the agent's last list of at least two items with a tool call in or after its message, or the last such list if
    the conversation has no tool calls. Only these calls are compared.
    """
    messages = messages_in(prompt, _CONVERSATION)
    calls_tools = any("tool_calls" in message for message in messages)
    for index in reversed(range(len(messages))):
        steps, calls = _plan_in(messages[index]), _calls_from(messages[index:])
        if len(steps) >= _SEVERAL and (calls or not calls_tools):
            made = [
                words(f"{_as_words(str(call['name']))} {' '.join(map(str, _leaves(call['args'])))}") for call in calls
            ]
            return {"parts": [_step(step, made) for step in steps]}
    return {"parts": []}


def _calls_from(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the tool calls of messages; calls of the first message only if none of them has a list as an argument."""
    first, *later = messages
    own = [] if _list_arguments(first) else [first]
    return [call for message in (*own, *later) for call in message.get("tool_calls", ())]


def _step(step: str, made: Sequence[Words]) -> dict[str, Any]:
    is_done = any(share_of(words(step), call, if_empty=1.0) >= _STEP_SHARE for call in made)
    reason = "A tool call has its words." if is_done else "No tool call has its words."
    return {"part": step, "reason": reason, "verdict": int(is_done)}


def _plan_in(message: Mapping[str, Any]) -> list[str]:
    """Return the items of the lists in the agent's text; without one, of the lists among its calls' arguments (a task tool)."""
    if message["role"] != "assistant":
        return []
    return _ITEM.findall(str(message.get("content", ""))) or _list_arguments(message)


def _list_arguments(message: Mapping[str, Any]) -> list[str]:
    values = [
        value
        for call in message.get("tool_calls", ())
        if isinstance(call["args"], Mapping)
        for value in call["args"].values()
    ]
    lists = [value for value in values if isinstance(value, list) and len(value) >= _SEVERAL]
    return [" ".join(map(str, _leaves([item]))) for value in lists for item in value]


AGENT_ANSWERS: Mapping[str, LexicalAnswer] = {
    "judge_selection": _judge_selection,
    "judge_arguments": _judge_arguments,
    "judge_steps": _judge_steps,
    "judge_recovery": _judge_recovery,
    "judge_plan": _judge_plan,
}
"""Prompt step → the function that answers it."""
