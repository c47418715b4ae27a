"""The tools that a unit offered to its models, read from its spans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Final

from spanscore import semconv
from spanscore.core.codecs.tool_definitions import tool_definitions, union
from spanscore.core.sample import Samples, ToolDefinition
from spanscore.core.span import Unit
from spanscore.samples.tool_calls import calls_in

_MOST_BYTES: Final = 64_000
"""Largest size of the definitions of a unit as JSON."""
_OFFERING: Final = semconv.MODEL_OPERATIONS | {semconv.INVOKE_AGENT}


def add_tools(samples: Samples, unit: Unit) -> Samples:
    """Return samples with the unit's tools in the conversation; above 64 kB, the called tools are kept first.

    Tools that are there already stay. Without any definition on a span they stay unknown (None).
    """
    conversation = samples.multi_turn
    if conversation is None or conversation.tools is not None:
        return samples
    offered = [*_read_definitions(unit)]
    if not offered:
        return samples
    called = [call.name for message in conversation.user_input for call in calls_in(message)]
    tools, left_out = union(offered, _MOST_BYTES, called)
    note = f"left out of the tools: {left_out} definitions beyond {_MOST_BYTES // 1000} kB" if left_out else None
    return replace(
        samples,
        multi_turn=conversation.model_copy(update={"tools": tools}),
        reason="; ".join(filter(None, (samples.reason, note))) or None,
    )


def _read_definitions(unit: Unit) -> Iterator[ToolDefinition]:
    """Yield the definitions on the spans of agents, then on those of models: a model's own definition of a name counts."""
    spans = [span for span in unit.spans if span.operation in _OFFERING]
    spans.sort(key=lambda span: (span.operation != semconv.INVOKE_AGENT, span.start_ns))
    # Most calls of an agent have the same tools, which are parsed once.
    for definitions, _ in groupby(span.attributes.get(semconv.TOOL_DEFINITIONS) for span in spans):
        yield from tool_definitions(definitions)
