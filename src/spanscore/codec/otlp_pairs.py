"""The attributes of a span on the wire: each is bytes until it is read, and a small one that came before is not read again.

Services send the same operation, model and names with every span. What is left are a few long texts, of which the message would
be made only to be thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from sys import intern
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

__all__ = ["SpanOfPairs", "attributes_in", "attributes_of"]

_REMEMBERED, _SMALL_BYTES = 4_096, 128
"""How many pairs, and names of larger ones, are kept read, and up to which size of a pair."""
_KEY, _VALUE, _TEXT = 0x0A, 0x12, 0x0A
"""The tags of ``KeyValue.key``, ``KeyValue.value`` and ``AnyValue.string_value``."""
_ONE_BYTE, _TWO_BYTES = 1 << 7, 1 << 14
"""Below which a length is written in so many bytes."""
_HEAD_BYTES = 6
"""Of a value that is a text: twice a tag and a length of two bytes."""


def _span_of_pairs() -> Any:
    file = FileDescriptorProto()
    Span.DESCRIPTOR.file.CopyToProto(file)
    fields = next(message.field for message in file.message_type if message.name == Span.DESCRIPTOR.name)
    attributes = next(field for field in fields if field.name == "attributes")
    attributes.type = FieldDescriptorProto.TYPE_BYTES
    attributes.ClearField("type_name")
    pool = DescriptorPool()  # of its own: the one that all share knows the message as it is
    for needed in Span.DESCRIPTOR.file.dependencies:
        pool.AddSerializedFile(needed.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(Span.DESCRIPTOR.full_name))


SpanOfPairs: Final[Any] = _span_of_pairs()
"""``Span``, each of whose ``attributes`` is bytes."""


def attributes_in(pairs: Iterable[bytes]) -> dict[str, Any]:
    """Return ``KeyValue`` messages, as bytes, as plain values; of a key that comes twice, the last.

    The values are not to be changed: those of small messages are remembered.

    Raises:
        DecodeError: one of them is none.
        UnicodeDecodeError: the text of a long one is none.
    """
    return dict([_small(pair) if len(pair) <= _SMALL_BYTES else _large(pair) for pair in pairs])


def attributes_of(pairs: Iterable[Any]) -> dict[str, Any]:
    """Return ``KeyValue`` messages as plain values; of a key that comes twice, the last."""
    return {pair.key: pair.value.string_value or _value(pair.value) for pair in pairs}  # most are texts


def _large(pair: bytes) -> tuple[str, Any]:
    """Return name and value; of a text, as every SDK writes it, without making a message."""
    at = pair[1] + 2
    if pair.startswith(_text_head(len(pair) - at), at) and (name := _name(pair[:at])) is not None:
        return name, pair[at + _HEAD_BYTES :].decode()
    return _pair(pair)


@lru_cache(_REMEMBERED)
def _text_head(size: int) -> tuple[bytes, ...]:
    """Return what stands before a text that ends so many bytes later; nothing where its length takes other than two bytes."""
    text, value = size - _HEAD_BYTES, size - _HEAD_BYTES // 2
    if text < _ONE_BYTE or value >= _TWO_BYTES:
        return ()
    return (bytes((_VALUE, value % _ONE_BYTE | _ONE_BYTE, value >> 7, _TEXT, text % _ONE_BYTE | _ONE_BYTE, text >> 7)),)


@lru_cache(_REMEMBERED)
def _name(key: bytes) -> str | None:
    """Return the name in the first field of a pair; None where that is another, or a longer one."""
    return intern(str(key[2:], "utf-8")) if key[0] == _KEY and key[1] < _ONE_BYTE else None


def _pair(pair: bytes) -> tuple[str, Any]:
    message = KeyValue.FromString(pair)
    value = message.value
    return intern(message.key), value.string_value or _value(value)  # by this name it is looked up, again and again


_small = lru_cache(_REMEMBERED)(_pair)


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    held = getattr(value, kind)
    if kind == "array_value":
        return [_value(item) for item in held.values]
    return attributes_of(held.values) if kind == "kvlist_value" else held
