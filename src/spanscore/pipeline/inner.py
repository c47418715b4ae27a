"""Finds the inner units of a closed unit, spans below its root (``units.also``), their deciders, and sampling facts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

from spanscore import semconv
from spanscore.core.span import InnerGroup, InnerKind, SamplingContext, SpanData, Unit, UnitKey
from spanscore.pipeline.decisions import UnitDecider
from spanscore.pipeline.sampling import RateSampler

_OPERATIONS: Final[Mapping[InnerKind, Set[str]]] = {
    "retriever": {semconv.RETRIEVAL},
    "tool": {semconv.EXECUTE_TOOL},
    "agent": {semconv.INVOKE_AGENT},
    "chat": semconv.MODEL_OPERATIONS,
}
_NAMES: Final[Mapping[InnerKind, str]] = {
    "tool": semconv.TOOL_NAME,
    "agent": semconv.AGENT_NAME,
    "chat": semconv.REQUEST_MODEL,
}
"""Kind → attribute with the name of such a span. A span without it is named after its operation: ``retrieval docs``."""


def find_inner_units(unit: Unit, entries: Mapping[InnerGroup, Sequence[str]]) -> list[Unit]:
    """Return the inner units of a closed unit, in the order of their starts; empty if its root is unknown.

    ``entries`` maps each entry of ``units.also`` to the metrics that score its units. If several entries match a span, the
    first applies. The spans of an inner unit are its span and all spans below it, so inner units may contain each other.
    """
    root = unit.root
    matches = [] if root is None else [(span, _group_of(span, entries)) for span in unit.spans if span is not root]
    inner_roots = [(span, group) for span, group in matches if group is not None]
    if not inner_roots:
        return []
    position = {id(span): at for at, span in enumerate(unit.spans)}
    below = _children(unit)
    return [
        Unit(
            UnitKey(span.trace_id, span.span_id),
            tuple(sorted(_subtree(span, below), key=lambda each: position[id(each)])),
            complete=unit.complete,
            # Another scorer of this process scores the shared metrics.
            eligible_metrics=frozenset(entries[group]) - unit.shared,
            inner=group,
        )
        for span, group in inner_roots
    ]


def _group_of(span: SpanData, groups: Iterable[InnerGroup]) -> InnerGroup | None:
    operation = str(span.operation)
    return next(
        (
            group
            for group in groups
            if operation in _OPERATIONS[group.kind] and group.name in (None, _name_of(span, group.kind))
        ),
        None,
    )


class Deciders(NamedTuple):
    """The deciders of one configuration.

    Attributes:
        root: decider of the units of roots.
        entries: entry of ``units.also`` → names of the metrics that score its units, in the order of the configuration.
        inner: entry → decider of its units, in the order of the configuration; then entries that only other processes have.
    """

    root: UnitDecider
    entries: Mapping[InnerGroup, Sequence[str]]
    inner: Mapping[InnerGroup, UnitDecider]

    def by_sampler(
        self, metrics: Sequence[str], entries: Mapping[InnerGroup, Sequence[str]], sampler: RateSampler
    ) -> Deciders:
        """Return deciders with other metrics and rates, for later units; both share counts, notes and recent units."""
        inner = {group: decider.by_sampler(entries.get(group, ()), sampler) for group, decider in self.inner.items()}
        return Deciders(self.root.by_sampler(metrics, sampler), entries, inner)


def inner_facts(inner: Unit, around: SamplingContext) -> SamplingContext:
    """Return the facts that decide on an inner unit: those of the unit around it, with the inner unit's ids."""
    span = inner.root
    return around._replace(
        key=inner.key,
        sampled_by=around.sampled_by or around.key,
        conversation_id="",  # the turn of a conversation is the unit around it
        decided=None if span is None else span.decided,
        inner=inner.inner,
    )


def _name_of(span: SpanData, kind: InnerKind) -> str:
    name = span.attributes.get(_NAMES[kind]) if kind in _NAMES else None
    return name if isinstance(name, str) and name else span.name.removeprefix(f"{span.operation} ")


def _children(unit: Unit) -> Mapping[int, Sequence[SpanData]]:
    below = defaultdict[int, list[SpanData]](list)
    for span in unit.spans:
        if span.parent_id is not None:
            below[span.parent_id].append(span)
    return below


def _subtree(top: SpanData, below: Mapping[int, Sequence[SpanData]]) -> Iterator[SpanData]:
    """Yield a span and all spans below it, each once; a loop of parents ends."""
    seen, left = {top.span_id}, [top]
    while left:
        span = left.pop()
        yield span
        for child in below.get(span.span_id, ()):
            if child.span_id not in seen:
                seen.add(child.span_id)
                left.append(child)
