"""Converts ``ReadableSpan`` to ``SpanData`` and back; and caches facts that follow from a span's attribute names alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final, TypeVar

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Link, Status

from spanscore import semconv
from spanscore.core.codecs.text import from_wire, jsonable, safe_text, to_wire, wire_value
from spanscore.core.span import Attributes, SpanData, SpanStatus, UnreadContent

# --- attribute names ------------------------------------------------------------------------------------------------

T = TypeVar("T")
_SETS: Final = 512
_CHARS: Final = 2_000
"""Maximum number of cached sets of names, and of characters of a cached set: the names of a larger set may differ each time."""


class AttributeCache(dict[tuple[str, ...], T]):
    """Cache of facts that follow from the attribute names of a span alone: ``cache[(*attributes,)]``. Thread-safe.

    The cache saves time, because a service sends spans with few different sets of names.

    Args:
        compute: pure function of the names, in order.
    """

    def __init__(self, compute: Callable[[tuple[str, ...]], T]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, names: tuple[str, ...]) -> T:
        """Compute the value, and cache it unless the names are too long."""
        value = self._compute(names)
        if sum(map(len, names)) <= _CHARS:
            if len(self) >= _SETS:
                self.clear()
            self[names] = value
        return value


# --- sdk ------------------------------------------------------------------------------------------------------------

STATUS: Sequence[SpanStatus] = ("unset", "ok", "error")
"""Status names by OpenTelemetry's number."""


def span_data(readable: ReadableSpan) -> SpanData:
    """Return an ended span as ``SpanData``. Content is parsed when it is first read; text that is not JSON stays text.

    Raises:
        ValueError: the span has no ids, which the SDK never makes.
    """
    ids, parent = readable.get_span_context(), readable.parent
    if ids is None:
        raise ValueError(f"span {readable.name!r} has no context")
    scope, attributes = readable.instrumentation_scope, attributes_of(readable)
    return SpanData(
        trace_id=ids.trace_id,
        span_id=ids.span_id,
        parent_id=None if parent is None else parent.span_id,
        name=readable.name,
        start_ns=readable.start_time or 0,
        end_ns=readable.end_time or readable.start_time or 0,
        scope=scope.name if scope is not None else "",
        kind=readable.kind.name.lower(),
        status=STATUS[readable.status.status_code.value],
        attributes=WireAttributes(attributes),
        metadata=metadata_of(attributes),
        trace_flags=int(ids.trace_flags),
        trace_state=ids.trace_state.to_header() if ids.trace_state else "",
        resource=readable.resource.attributes,
        failed_inside=attributes.get(semconv.RUN_STEP_ERROR) is True,
        parent_is_remote=None if parent is None else parent.is_remote,
        events=(
            *((event.name, event.attributes or {}) for event in readable.events),
            *exception_events(readable.status.description),
        ),
    )


def exception_events(description: str | None) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Return the description of a span's status as an exception event, as most instrumentations record it; () without one."""
    return (("exception", {semconv.EXCEPTION_MESSAGE: description}),) if description else ()


def attributes_of(readable: ReadableSpan) -> Mapping[str, Any]:
    """Return a copy of a span's attributes as a dict: every read of the SDK's own mapping costs two calls per item."""
    attributes: Any = readable.attributes
    try:
        return attributes.copy()  # type: ignore[no-any-return]  # the SDK's mappings have it
    except AttributeError:  # None, or a foreign mapping
        return dict(attributes or {})


def metadata_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run's metadata from the attributes of its span."""
    named = _METADATA[(*attributes,)]
    return {key: attributes[name] for key, name in named} if named else {}  # most spans have no metadata


def names_under(prefix: str, names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the names with this prefix as (name without the prefix, name)."""
    start = len(prefix)
    return tuple([(name[start:], name) for name in names if name.startswith(prefix)])


_METADATA = AttributeCache(partial(names_under, semconv.METADATA))


def attributes_under(prefix: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes with this prefix, without the prefix."""
    if prefix not in "\n".join(attributes):  # most spans: one search in all names is faster than one check per name
        return {}
    return {key: attributes[name] for key, name in names_under(prefix, attributes)}


def fields_of(readable: ReadableSpan) -> dict[str, Any]:
    """Return the arguments with which ``ReadableSpan`` creates a copy of an ended span."""
    return {"context": readable.get_span_context()} | {name: getattr(readable, name) for name in _FIELDS}


_FIELDS = (
    *("name", "parent", "resource", "attributes", "events", "links", "kind", "status", "start_time", "end_time"),
    "instrumentation_scope",
)


def with_attributes(readable: ReadableSpan, attributes: Mapping[str, Any]) -> ReadableSpan:
    """Return the same ended span with additional attributes. No attribute of the span is displaced, whatever its limits are."""
    return _WithAttributes(readable, attributes)


class _WithAttributes(ReadableSpan):
    """A copy of a span by its public parts, with the numbers of dropped items, which the constructor does not accept."""

    def __init__(self, original: ReadableSpan, attributes: Mapping[str, Any]) -> None:
        super().__init__(**fields_of(original) | {"attributes": {**attributes_of(original), **attributes}})
        self._instrumentation_info = getattr(original, "_instrumentation_info", None)  # the property is deprecated
        self._original = original

    @property
    def dropped_attributes(self) -> int:
        return self._original.dropped_attributes

    @property
    def dropped_events(self) -> int:
        return self._original.dropped_events

    @property
    def dropped_links(self) -> int:
        return self._original.dropped_links


_WITHOUT_QUOTATION = semconv.PLAIN_ATTRIBUTES | {semconv.OPENINFERENCE_KIND, semconv.SYSTEM}


def without_texts(readable: ReadableSpan) -> ReadableSpan:
    """Return an ended span of any instrumentation without texts that may quote a prompt or an answer.

    The copy has numbers, booleans, and texts of attributes that never quote content: those of the conventions and spanscore's
    own.
    """
    own_prefixes = (f"{semconv.SCOPE}.", semconv.METADATA)
    attributes = {
        name: value
        for name, value in attributes_of(readable).items()
        if not semconv.is_content(name)
        and (isinstance(value, int | float) or name in _WITHOUT_QUOTATION or name.startswith(own_prefixes))
    }
    links, status = [Link(link.context) for link in readable.links], Status(readable.status.status_code)
    return ReadableSpan(
        **fields_of(readable) | {"attributes": attributes, "events": (), "links": links, "status": status}
    )


def encode_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as a span accepts them: content as text or JSON text, without values that OTLP cannot represent."""
    present = [(name, value) for name, value in attributes.items() if value is not None]
    return {safe_text(name): encoded for name, value in present if (encoded := _encode(name, value)) is not None}


class WireAttributes(Attributes):
    """Attributes of a received span, with content as JSON text, which is parsed when it is first read.

    Attributes:
        wire: the received attributes, for callers that read them without parsing; empty once the content is parsed.
    """

    __slots__ = ("wire",)

    def __init__(self, wire: Mapping[str, Any]) -> None:
        super().__init__(wire, partial(parse_content, wire))
        self.wire: Mapping[str, Any] = wire

    def _render_all(self) -> Mapping[str, Any]:
        self.wire = {}
        return super()._render_all()


def parse_content(wire: Mapping[str, Any], *, unread: Collection[str] = ()) -> dict[str, Any]:
    """Return the parsed content of received attributes. Lists under the names of ``unread`` are parsed when they are read."""
    content: dict[str, Any] = {}
    for name, value in wire.items():
        if name in unread and type(value) is str and value.startswith("["):
            content[name] = _unread(UnreadContent, (value, from_wire))
        elif not semconv.is_content(name):
            continue
        elif isinstance(value, str):
            content[name] = value if _is_text(name) else from_wire(value)
        else:  # the SDK stores structured values as tuples and its own mappings
            content[name] = jsonable(_lists(value))
    return content


_unread: Callable[[type[UnreadContent], tuple[str, Callable[[str], Any]]], UnreadContent] = tuple.__new__
"""Creates a value in half the time of the constructor."""


def _encode(name: str, value: Any) -> Any:
    if isinstance(value, str) and (_is_text(name) or name not in semconv.CONTENT_ATTRIBUTES):
        return safe_text(value)
    return to_wire(value) if name in semconv.CONTENT_ATTRIBUTES or isinstance(value, Mapping) else wire_value(value)


def _is_text(name: str) -> bool:
    """Whether a content attribute is text by its convention, and never JSON."""
    return name == semconv.RETRIEVAL_QUERY or name.startswith(semconv.CONTENT_PREFIXES)


def _lists(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _lists(inner) for key, inner in value.items()}
    return [_lists(inner) for inner in value] if isinstance(value, (list, tuple)) else value


class HashedResource(Resource):
    """A resource that equals the SDK's with the same attributes, and computes its hash once.

    The OTLP exporters look the resource up for each span and event. ``Resource.__hash__`` serialises all attributes to JSON on
    every call: 5 % of the cost of an evaluation span.
    """

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash
