"""The parts that all HTTP sinks share: a message, its destination, and the protocol of the outbox that sends it.

A sink makes messages on the span thread, or on the loop, and puts them into its outbox. The outbox (``durable/``) keeps them in
memory or on a disk, and sends them on a thread of its own. A sink gets its outbox from ``open_outbox``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol, Self
from urllib.parse import urlsplit

from spanscore.core.codecs.text import safe_text
from spanscore.core.score import Score, id_of
from spanscore.core.span import Unit

_ID_BYTES: Final = 16
JSON_HEADERS: Final[Mapping[str, str]] = {"content-type": "application/json"}


class Message(NamedTuple):
    """One message of a sink.

    Attributes:
        id: 32 hex digits, the same for each attempt and each process that sends the message, so that a receiver can ignore a
            repetition.
        body: the message, in the form that ``Destination.request`` reads.
    """

    id: str
    body: bytes

    def to_bytes(self) -> bytes:
        """Return the message as it waits in an outbox."""
        return bytes.fromhex(self.id) + self.body

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Return the message from the bytes that ``to_bytes`` returned."""
        return cls(raw[:_ID_BYTES].hex(), raw[_ID_BYTES:])


class HttpRequest(NamedTuple):
    """The body and the headers of a POST; names of headers in lower case."""

    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The receiver of a sink's messages.

    Attributes:
        name: name of the sink: ``webhook``.
        url: address of the requests. Its path may be a secret.
        request: makes the request for messages. Called on the outbox's thread, once for each attempt.
        most: highest number of messages in one request.
        remark: returns a remark for ``status()``; empty = no remark.
    """

    name: str
    url: str
    request: Callable[[Sequence[Message]], HttpRequest]
    most: int = 1
    remark: Callable[[], str] = str

    @property
    def shown(self) -> str:
        """The address without its path and password, for logs and ``status()``."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


class MessageOutbox(Protocol):
    """Accepts the messages of one sink."""

    def put(self, message: Message) -> None:
        """Accept a message, or count it as dropped. Thread-safe; does not block, and never raises."""


OpenOutbox = Callable[[Destination], MessageOutbox]
"""Returns the outbox of a destination."""


def message_id(*parts: object) -> str:
    """Return 32 hex digits, the same for the same parts in every process."""
    return blake2b("/".join(map(str, parts)).encode("utf-8", "replace"), digest_size=_ID_BYTES).hexdigest()


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """Return a mapping as compact JSON in UTF-8, without its None values. Lone surrogates in texts are replaced."""
    return safe_text(json.dumps(without_none(value), ensure_ascii=False, separators=(",", ":"))).encode()


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping without its None values."""
    return {key: value for key, value in values.items() if value is not None}


def exported_scores(unit: Unit, scores: Sequence[Score]) -> Iterator[tuple[Score, str]]:
    """Yield the scores for a trace store, each with the id of its message. Left out are:

    - scores without a value,
    - scores of an unsampled trace, because the store has no span of it,
    - provisional scores of a conversation, because the store's averages would count the conversation twice.
    """
    root = unit.root
    if root is not None and root.sampled and not unit.is_provisional:
        yield from ((score, score.id or id_of(score, unit)) for score in scores if score.value is not None)


def score_name(score: Score) -> str:
    """Return the name of a score in a trace store.

    A score outside sampled traffic has another name, because it belongs in no mean of sampled traffic.
    """
    return score.metric if score.source is None else f"{score.metric}.{score.source}"
