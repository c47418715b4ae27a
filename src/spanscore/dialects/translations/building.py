"""What every translation does alike: attributes as they came → the span in GenAI names, its content still folded."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

from spanscore import semconv
from spanscore.core.codecs.sdk import WireAttributes
from spanscore.core.codecs.text import fits_wire, from_wire, is_cut, safe_text, wire_value
from spanscore.core.log import log_internal_error, plain_text
from spanscore.core.span import CUT, Attributes, NoContent, SpanData

__all__ = [
    "AttributeLookup",
    "Render",
    "conversation_of",
    "in_genai_names",
    "is_langchain_agent",
    "json_at",
    "named",
    "plain_of",
    "renamed",
    "rendered",
    "wire_of",
]

Render = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Raw attributes that quote → content attributes of the GenAI conventions."""
_NAMES: Final[Mapping[str, str]] = {
    semconv.EXECUTE_TOOL: semconv.TOOL_NAME,
    semconv.INVOKE_AGENT: semconv.AGENT_NAME,
    semconv.INVOKE_WORKFLOW: semconv.WORKFLOW_NAME,
}
_INTERRUPTS: Final = ("GraphInterrupt", "NodeInterrupt")
"""Names of the exceptions by which LangGraph lets a run wait for a person."""
_FLAT: Final = re.compile(r"\.\d+\.")
"""What the name of a flat attribute holds: its value is one text of many, not a structure."""
_OPENING, _CLOSING = frozenset("{["), frozenset("}]")
_CONVERSATION_KEYS: Final = ("thread_id", "session_id", "conversation_id")


class AttributeLookup(Protocol):
    """Attributes of a span as they came: a mapping, or the bytes that they are in."""

    def get(self, name: str, /) -> object:
        """Return the value of an attribute; None = there is none, or it is no short text."""

    def __contains__(self, name: str, /) -> bool:
        """Whether there is such an attribute."""


def wire_of(span: SpanData) -> Mapping[str, Any]:
    """Return a span's attributes as they came."""
    attributes = span.attributes
    return (attributes.wire or attributes) if isinstance(attributes, WireAttributes) else attributes


def plain_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that have a GenAI name, and quote nothing."""
    return {name: value for name, value in raw.items() if name in semconv.PLAIN_ATTRIBUTES}


def in_genai_names(
    span: SpanData,
    plain: Mapping[str, Any],
    quoted: Mapping[str, Any],
    render: Render,
    *,
    nothing: NoContent | None,
    metadata: Mapping[str, Any] | None = None,
) -> SpanData:
    """Return the span with these attributes and no others.

    Args:
        plain: under GenAI names; None, and what is no plain value, is left out.
        quoted: raw attributes that quote, all that is kept of them.
        render: makes content of ``quoted``, once, on first need.
        nothing: why there is no content, where ``quoted`` is empty; None of a span that has none of its own. Content that an
            attribute limit cut is left out, and the span is marked so; the texts of a tool are kept as they are.
        metadata: that the run was called with, beside what stands under our own names; the unit's key in the application,
            where the span has it, is one of them.
    """
    known = _plain_values(plain)
    if span.events or span.status == "error":
        known |= _interruption(span)
    cut = _cut_names(quoted)
    if cut and known.get(semconv.OPERATION_NAME) != semconv.EXECUTE_TOOL:
        quoted = {name: value for name, value in quoted.items() if name not in cut}
        known[semconv.CONTENT_CUT] = True
        nothing = CUT
    content = partial(rendered, render, dict(quoted)) if quoted else None
    told = {**span.metadata, **(metadata or {})}
    if (key := span.attributes.get(semconv.FEEDBACK_KEY)) is not None:
        told = {**told, semconv.FEEDBACK_METADATA: key}
    return replace(
        span,
        attributes=Attributes(known, content),
        events=(),
        metadata=told,
        no_content=None if quoted else nothing,
    )


def _interruption(span: SpanData) -> Mapping[str, Any]:
    """Return that a run waits for a person, if LangGraph's exception for that ended it; its graph ends without any."""
    types = [held.get(semconv.EXCEPTION_TYPE) for _, held in span.events] + [wire_of(span).get(semconv.ERROR_TYPE)]
    messages = [held.get(semconv.EXCEPTION_MESSAGE) for _, held in span.events]
    waits = any(str(name).endswith(_INTERRUPTS) for name in types)
    waits = waits or any(str(text).startswith((*_INTERRUPTS, "(Interrupt(")) for text in messages)
    return {semconv.RUN_END: semconv.INTERRUPTED} if waits else {}


def renamed(raw: Mapping[str, Any], names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return GenAI names with what stands under the first of their other names; None where nothing does."""
    found: dict[str, Any] = dict.fromkeys(names)
    for name, others in names.items():
        for other in others:
            if other in raw:
                found[name] = raw[other]
                break
    return found


def named(operation: str, name: str) -> dict[str, Any]:
    """Return the attribute that an operation has its name in; none of one that has no name."""
    return {_NAMES[operation]: name} if operation in _NAMES else {}


def json_at(held: Mapping[str, Any], name: str) -> Any:
    """Return what stands under a name; of JSON text what it says."""
    value = held.get(name)
    return from_wire(value) if isinstance(value, str) else value


def conversation_of(raw: Mapping[str, Any], metadata: Mapping[str, Any]) -> str | None:
    """Return the conversation a span belongs to, as it says itself, or as its run's metadata do."""
    said = [raw.get(semconv.CONVERSATION_ID), raw.get(semconv.SESSION_ID), *map(metadata.get, _CONVERSATION_KEYS)]
    for value in said:
        if value is not None and (text := plain_text(value)):
            return safe_text(text)
    return None


def is_langchain_agent(name: str, metadata: Mapping[str, Any], *, is_root: bool) -> bool:
    """Whether a LangChain run is an agent, by the rule of our own capture: agents say their name, nameless ones at the root."""
    if metadata.get("lc_agent_name") == name:
        return True
    return is_root and metadata.get("ls_integration") == "langchain_create_agent"


def _cut_names(quoted: Mapping[str, Any]) -> Sequence[str]:
    """Return the names of whole values whose JSON was cut; one that was cut right behind a bracket is found when it is read."""
    return [
        name
        for name, value in quoted.items()
        if type(value) is str
        and value[:1] in _OPENING
        and value[-1:] not in _CLOSING
        and is_cut(value)
        and not _FLAT.search(name)
    ]


def _plain_values(plain: Mapping[str, Any]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for name, given in plain.items():
        kind = type(given)
        if (kind is str and given.isascii()) or (kind is int and fits_wire(given)):  # most are
            known[name] = given
        elif given is not None and (value := _plain(given)) is not None:
            known[name] = value
    return known


def _plain(value: Any) -> Any:
    """Return a value that a plain attribute may have; None for a structure."""
    if isinstance(value, (str, int, float)):
        return wire_value(value)
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return wire_value(value)
    return None


def rendered(render: Render, quoted: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content that a span's raw attributes make; none where they are in a form that no reader foresaw."""
    try:
        return {name: value for name, value in render(quoted).items() if value is not None}
    except Exception as error:  # noqa: BLE001  (a payload that no reader foresaw: the unit is read without it)
        log_internal_error("read a span's content", error)
        return {}
