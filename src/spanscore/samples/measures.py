"""Duration and token usage of a unit, read from its spans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from spanscore import semconv
from spanscore.core.sample import Samples, TokenUsage
from spanscore.core.span import SpanData, Unit

_UNKNOWN: Final = (None, None)


def add_measures(samples: Samples, unit: Unit) -> Samples:
    """Return samples with the duration and the usage of their unit in the single turn; existing values stay."""
    root, single = unit.root, samples.single_turn
    if root is None or single is None:
        return samples
    measures = {"duration_s": max(0, root.end_ns - root.start_ns) / 1e9, "usage": usage_of(unit)}
    absent = {name: value for name, value in measures.items() if getattr(single, name) is None}
    return replace(samples, single_turn=single.model_copy(update=absent))


def usage_of(unit: Unit) -> TokenUsage | None:
    """Return the tokens that the models of a unit used; None if a call of a model, or all of them, carry no usage.

    A model span inside another one is the same call, written by two instrumentations. If no call carries usage, the root's
    own sum counts.
    """
    counts = [tokens for span in _outer_models(unit) if (tokens := _tokens(span)) != _UNKNOWN or span.status != "error"]
    if all(tokens == _UNKNOWN for tokens in counts):
        counts = [] if unit.root is None else [_tokens(unit.root)]
    read, written = map(_sum, zip(*counts, strict=True)) if counts else _UNKNOWN
    return None if read is None and written is None else TokenUsage(input_tokens=read, output_tokens=written)


def _outer_models(unit: Unit) -> list[SpanData]:
    models = {span.span_id: span for span in unit.spans if span.operation in semconv.MODEL_OPERATIONS}
    parents = {span.span_id: span.parent_id for span in unit.spans}
    return [span for span in models.values() if models.keys().isdisjoint(_ancestors(span, parents))]


def _ancestors(span: SpanData, parents: dict[int, int | None]) -> Iterator[int]:
    """Yield the ids of the spans above a span; each once, so that a circle ends."""
    seen = {span.span_id}
    above = span.parent_id
    while above is not None and above not in seen:
        yield above
        seen.add(above)
        above = parents.get(above)


def _tokens(span: SpanData) -> tuple[int | None, int | None]:
    counts = (span.attributes.get(name) for name in (semconv.USAGE_INPUT_TOKENS, semconv.USAGE_OUTPUT_TOKENS))
    read, written = (count if isinstance(count, int) and count >= 0 else None for count in counts)
    return read, written


def _sum(counts: Iterable[int | None]) -> int | None:
    columns = list(counts)
    return None if None in columns else sum(count for count in columns if count is not None)
