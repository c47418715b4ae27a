"""An export request of which only the bones are decoded: a resource, a scope and a span are bytes in it.

The field numbers are those of opentelemetry-proto (``ExportTraceServiceRequest``, ``ResourceSpans``, ``ScopeSpans``, ``Span``).
What is a message there is *repeated* bytes here: protobuf merges a message that comes twice, and that is what its bytes do
when they are joined.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

__all__ = ["RequestSkeleton", "SpanHead"]

_BYTES, _TEXT, _FIXED32, _FIXED64 = (
    FieldDescriptorProto.TYPE_BYTES,
    FieldDescriptorProto.TYPE_STRING,
    FieldDescriptorProto.TYPE_FIXED32,
    FieldDescriptorProto.TYPE_FIXED64,
)
_ONE, _MANY = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.LABEL_REPEATED
_PACKAGE = "spanscore.skeleton"

# Message → its fields: number, name, label, type, or the name of another message.
_MESSAGES: dict[str, list[tuple[int, str, FieldDescriptorProto.Label.ValueType, Any]]] = {
    "Request": [(1, "resource_spans", _MANY, "ResourceSpans")],
    "ResourceSpans": [
        (1, "resource", _MANY, _BYTES),
        (2, "scope_spans", _MANY, "ScopeSpans"),
        (3, "schema_url", _ONE, _TEXT),
    ],
    "ScopeSpans": [(1, "scope", _MANY, _BYTES), (2, "spans", _MANY, _BYTES), (3, "schema_url", _ONE, _TEXT)],
    "SpanHead": [
        (1, "trace_id", _ONE, _BYTES),
        (2, "span_id", _ONE, _BYTES),
        (3, "trace_state", _ONE, _BYTES),
        (4, "parent_span_id", _ONE, _BYTES),
        (7, "start_time_unix_nano", _ONE, _FIXED64),
        (8, "end_time_unix_nano", _ONE, _FIXED64),
        (16, "flags", _ONE, _FIXED32),
    ],
}


def _file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="spanscore/skeleton.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, label, kind in fields:
            added = message.field.add(number=number, name=field, label=label)
            if isinstance(kind, str):
                added.type, added.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                added.type = kind
    return file


_POOL = DescriptorPool()  # of its own: the one that all share knows the whole messages
_POOL.AddSerializedFile(_file().SerializeToString())

RequestSkeleton: Final[Any] = GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.Request"))
"""``ExportTraceServiceRequest`` without what is in its spans."""
SpanHead: Final[Any] = GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.SpanHead"))
"""The ids, flags and times of a ``Span``."""
