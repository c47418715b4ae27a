"""Adds duration, token usage and offered tools, which only some metrics need, to the samples of a unit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Final

from spanscore import semconv
from spanscore.core.codecs.tool_definitions import tool_definitions, union
from spanscore.core.sample import Samples, TokenUsage, ToolDefinition
from spanscore.core.span import SpanData, Unit
from spanscore.samples.tool_calls import calls_in
from spanscore.samples.view import spans_outside

_NO_TOKENS: Final = (None, None)
_MOST_BYTES: Final = 64_000
"""Largest size of the definitions of a unit's tools as JSON."""
_OFFERING: Final = semconv.MODEL_OPERATIONS | {semconv.INVOKE_AGENT}


def add_measures(samples: Samples, unit: Unit) -> Samples:
    """Return samples with the duration and the usage of their unit in the single turn; existing values stay."""
    root, single = unit.root, samples.single_turn
    if root is None or single is None:
        return samples
    measures = {"duration_s": max(0, root.end_ns - root.start_ns) / 1e9, "usage": usage_of(unit)}
    absent = {name: value for name, value in measures.items() if getattr(single, name) is None}
    return replace(samples, single_turn=single.model_copy(update=absent))


def usage_of(unit: Unit) -> TokenUsage | None:
    """Return the sums of the tokens that the models of a unit used; None if they are unknown.

    A sum is unknown (None) if a successful call lacks the count. If no call has counts, the root's counts are returned. A model
    span inside another model span is the same call, traced by two instrumentations: only the outer span counts.
    """
    models = [*{span.span_id: span for span in unit.spans if span.operation in semconv.MODEL_OPERATIONS}.values()]
    outer = spans_outside(models, models, unit)
    counts = [tokens for span in outer if (tokens := _tokens(span)) != _NO_TOKENS or span.status != "error"]
    if all(tokens == _NO_TOKENS for tokens in counts):
        counts = [] if unit.root is None else [_tokens(unit.root)]
    input_tokens, output_tokens = map(_sum, zip(*counts, strict=True)) if counts else _NO_TOKENS
    if input_tokens is None and output_tokens is None:
        return None
    return TokenUsage(input_tokens=input_tokens, output_tokens=output_tokens)


def _tokens(span: SpanData) -> tuple[int | None, int | None]:
    counts = (span.attributes.get(name) for name in (semconv.USAGE_INPUT_TOKENS, semconv.USAGE_OUTPUT_TOKENS))
    input_tokens, output_tokens = (count if isinstance(count, int) and count >= 0 else None for count in counts)
    return input_tokens, output_tokens


def _sum(counts: Iterable[int | None]) -> int | None:
    values = list(counts)
    return None if None in values else sum(count for count in values if count is not None)


def add_tools(samples: Samples, unit: Unit) -> Samples:
    """Return samples with the definitions of the unit's tools in the conversation. Above 64 kB, called tools are kept first.

    The samples are returned unchanged if they have tools already, or if no span has a definition.
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
    """Yield the definitions on agent spans, then on model spans, by start; the caller keeps the last definition of a name."""
    spans = [span for span in unit.spans if span.operation in _OFFERING]
    spans.sort(key=lambda span: (span.operation != semconv.INVOKE_AGENT, span.start_ns))
    # Most calls of an agent have the same tools, which are parsed once.
    for definitions, _ in groupby(span.attributes.get(semconv.TOOL_DEFINITIONS) for span in spans):
        yield from tool_definitions(definitions)
