"""WireClaims: whether a span on the wire may be of a unit, by its scope, else by what betrays it in its bytes.

Scopes mean what they mean in one process: which of two instrumentations is heard, and whether a call of a model is a step of
some framework's run, is told apart by ``service.name`` and ``service.instance.id``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, NamedTuple

from spanscore import semconv
from spanscore.codec.wire import Origin, SpanPlace, UnreadableRequest, WireSpan, kept, resource_of
from spanscore.dialects.translations.registry import Translator
from spanscore.receivers.scopes import Role, Scopes, asks_nothing
from spanscore.settings.printable import printable

__all__ = ["Mark", "ScopeClaim", "WireClaims", "text_of"]

Mark = Callable[[bytes, int, int], object]
"""Body of a request, start and end of a span in it → something where the span is claimed, None where it is not."""

_ALWAYS_CLAIMED: Final = (Role.CLAIMED, Role.MODEL_CLIENT)
_MOST: Final = 1_000
"""Processes and resources that are told apart at a time; then all are forgotten, and come back with their next span."""
_KEY: Final = 0x0A
_KEY_OF_UP_TO_127: Final = rb"\n[\x01-\x7f]"
"""What stands before the key of an attribute: its tag and its length. So a text that speaks of a mark betrays nothing."""
_LONGEST: Final = 64
_LONGEST_NAME: Final = 200
_VALUE, _HEAD = b"\x12\n", 4
"""The tags of a value and of a text in it, each with a byte of length behind it; of what is asked for, all of it is ASCII."""
_VALUE_BEFORE: Final = re.compile(rb"\x12.\n.[ -~]*\Z", re.DOTALL)


class ScopeClaim(NamedTuple):
    """How the spans of a scope are claimed.

    Attributes:
        role: of the scope.
        mark: tells a claimed span by its bytes; None = each is.
        mostly: what most claimed spans hold, and no other: it is found in half the time. Empty = nothing is.
    """

    role: Role
    mark: Mark | None
    mostly: bytes = b""


class WireClaims:
    """Knows what spans are to us. Any thread: what a race computes twice is the same.

    Args:
        translator: knows scopes, and what betrays a span of the others.
        listed: beginnings of scopes whose top-most spans are units, whatever else is at work.
        ignored: beginnings of scopes that are not claimed.
    """

    def __init__(self, translator: Translator, *, listed: Sequence[str] = (), ignored: Sequence[str] = ()) -> None:
        self._translator = translator
        marks = b"|".join(map(re.escape, translator.marks))
        self._marked = re.compile(
            _KEY_OF_UP_TO_127 + b"(?:" + marks + b")"
        ).search  # an eighth of what a find for each takes
        self._mostly = _key_of(semconv.OPERATION_NAME)
        self._listed = tuple(listed)
        self._ignored = tuple(ignored)
        self._claims: dict[int, ScopeClaim] = {}
        self._resources: dict[int, Scopes] = {}
        self._processes: dict[tuple[str, str], Scopes] = {}

    def of(self, origin: Origin) -> ScopeClaim:
        """Return how spans of a scope are claimed; of two that trace the same, who is asked for first is heard."""
        key = hash(origin)  # not its bytes, which may be many
        found = self._claims.get(key)
        if found is None:
            role = self._scopes_of(origin).role(_told(origin.scope_name))
            if len(self._claims) >= _MOST:
                self._claims.clear()
            found = self._claims[key] = self._claim(role)
        return found

    def is_unit(self, root: WireSpan) -> bool:
        """Whether a claimed span at the top is a unit, as far as its bytes tell: what is counted must not depend on the dice.

        One of which the bytes are gone is, as far as these told.

        To be asked once, when it has closed: a step of a framework's run is counted, and often comes before the run is seen.
        """
        return (not root.raw or self.asks(root)) and not self._is_inner(root)

    def shortened(self, body: bytes, root: SpanPlace, origin: Origin) -> WireSpan:
        """Return a root that nobody follows without its bytes, if these have told by now what ``is_unit`` asks of them."""
        _, _, _, _, start, end, _ = root
        operation = text_of(body, semconv.OPERATION_NAME, start, end)
        if operation in semconv.MODEL_OPERATIONS or (operation is None and origin.scope_name == semconv.CAPTURE_SCOPE):
            return kept(body, root, origin)  # it may turn out to be a step of some framework's run, or is none
        if asks_nothing(operation, lambda name: text_of(body, name, start, end)):
            return kept(body, root, origin)
        return kept(b"", root, origin)

    def asks(self, root: WireSpan) -> bool:
        """Whether it asks and answers something. Pure."""
        operation = text_of(root.raw, semconv.OPERATION_NAME)
        if operation is None and root.origin.scope_name == semconv.CAPTURE_SCOPE:
            return False  # a sample made by hand: who made it scores it
        return not asks_nothing(operation, partial(text_of, root.raw))

    @property
    def inner(self) -> Mapping[str, int]:
        """Scope → model calls that were no units of their own, as a framework is at work in their process."""
        return sum((scopes.inner for scopes in list(self._processes.values())), Counter())

    @property
    def unheard(self) -> Mapping[str, str]:
        """Scope → the one that is heard instead, in some process."""
        return {scope: by for scopes in list(self._processes.values()) for scope, by in scopes.unheard.copy().items()}

    def _claim(self, role: Role) -> ScopeClaim:
        if role in _ALWAYS_CLAIMED:
            return ScopeClaim(role, None)
        return ScopeClaim(role, self._marked, self._mostly) if role is Role.UNKNOWN else ScopeClaim(role, _unmarked)

    def _is_inner(self, root: WireSpan) -> bool:
        scopes = self._scopes_of(root.origin)
        if not scopes.has_framework():  # before anything is searched for
            return False
        scope = _told(root.origin.scope_name)
        role = scopes.role(scope)
        is_model = role is Role.MODEL_CLIENT or (
            role is Role.UNKNOWN and text_of(root.raw, semconv.OPERATION_NAME) in semconv.MODEL_OPERATIONS
        )
        return is_model and scopes.is_inner(scope)

    def _scopes_of(self, origin: Origin) -> Scopes:
        resource = hash(origin.resource)
        found = self._resources.get(resource)
        if found is not None:
            return found
        if len(self._resources) >= _MOST:
            self._claims.clear()
            self._resources.clear()
            self._processes.clear()
        try:
            attributes = resource_of(origin)
        except UnreadableRequest:
            return self._processes.setdefault(("", ""), self._scopes("some process"))
        process = _told(attributes.get("service.name", "")), str(attributes.get("service.instance.id", ""))
        scopes = self._processes.setdefault(
            process, self._scopes(f"the process of {process[0] or 'an unnamed service'}")
        )
        return self._resources.setdefault(resource, scopes)

    def _scopes(self, place: str) -> Scopes:
        return Scopes(
            self._translator.knows,
            listed=self._listed,
            ignored=self._ignored,
            ours=semconv.EVALUATOR_SCOPES,
            place=place,
        )


def _unmarked(*_: object) -> None: ...


def _told(name: Any) -> str:
    """Return a name from the wire as it may stand in a log: anything may be in it."""
    text = str(name)[:_LONGEST_NAME]
    return text if text.isprintable() else printable(text)


def text_of(body: bytes, name: str, start: int = 0, end: int | None = None) -> str | None:
    """Return a short text attribute from the bytes of a span, without decoding them; None where there is none.

    A ``KeyValue`` is its key and its value, either first: SDKs write fields in order, the Collector from the end.

    Args:
        body: where the span stands.
        name: of the attribute.
        start: of the span; likewise ``end``.
    """
    key = _key_of(name)
    at = body.find(key, start, end)
    if at < 0:
        return None
    begin, end = at + len(key), len(body) if end is None else end
    head = body[begin : begin + _HEAD]
    if head[::2] != _VALUE or begin + _HEAD > end:  # or in what comes behind the span
        found = _VALUE_BEFORE.search(body, max(start, at - _LONGEST), at)
        if found is None:
            return None
        begin, end = found.start(), at
        head = body[begin : begin + _HEAD]
    size, begin = head[3], begin + _HEAD
    if head[1] != size + 2 or begin + size > end:
        return None
    text = body[begin : begin + size].decode("latin-1")
    return text if text.isascii() and text.isprintable() else None


@cache
def _key_of(name: str) -> bytes:
    """Return an attribute's name as it stands in a span; asked for a few names."""
    key = name.encode()
    return bytes((_KEY, len(key))) + key
