"""Read a chat model's message, its text, stop reason and token usage, and the HTTP exchange that brought it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spanscore.core.context import set_inside

_TOO_MANY = 10**8
_INPUT = ("input_tokens", "prompt_tokens")
_OUTPUT = ("output_tokens", "completion_tokens")
_DETAILS = ("input_token_details", "prompt_tokens_details", "input_tokens_details")
_CACHED = ("cache_read", "cached_tokens", "cache_read_input_tokens")
_WRITTEN = ("cache_creation", "cache_creation_input_tokens")
_WRITTEN_FOR = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
"""Tokens by the time that the cache keeps them; langchain-anthropic then sets ``cache_creation`` to 0."""


class Tokens(NamedTuple):
    """The token counts of an answer; all 0 if unknown."""

    input: int = 0
    output: int = 0
    cached_input: int = 0
    cache_write: int = 0


UNKNOWN = Tokens()


def tokens_in(usage: Any) -> Tokens:
    """Return the tokens of a usage object, LangChain's or a provider's own; all 0 if a count is implausible.

    A gateway that counted -5 or 1e30 tokens once caused a cost of 5.4e24 USD. A gateway that wrote "many" lost a verdict.
    """
    if not isinstance(usage, Mapping) or not is_believable(usage):
        return UNKNOWN
    sent = _first(usage, _INPUT)
    details = next((usage[name] for name in _DETAILS if isinstance(usage.get(name), Mapping)), usage)
    cached = min(sent, _first(details, _CACHED))
    written = _first(details, _WRITTEN) or sum(_first(details, (name,)) for name in _WRITTEN_FOR)
    return Tokens(sent, _first(usage, _OUTPUT), cached, min(sent - cached, written))


def is_believable(usage: Mapping[str, Any]) -> bool:
    """Whether each count of tokens is whole, not negative, and below 10⁸."""
    return all(value is None or _is_count(value) for value in _counts(usage))


def _counts(usage: Mapping[str, Any]) -> Iterator[Any]:
    for name, value in usage.items():
        if isinstance(value, Mapping):
            yield from _counts(value)
        elif name in (*_CACHED, *_WRITTEN) or str(name).endswith("tokens"):
            yield value


def _is_count(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value < _TOO_MANY and value == int(value)


def _first(usage: Mapping[str, Any], names: tuple[str, ...]) -> int:
    return next((int(usage[name]) for name in names if usage.get(name) is not None), 0)


_LIMITS = ("x-ratelimit-", "ratelimit-", "anthropic-ratelimit-", "retry-after")
_LONGEST_VALUE = 100
_FIRST_REDIRECT, _FIRST_REFUSAL = 300, 400
_SHORTEST_S = 0.001
"""Shortest timeout of a socket, in seconds; 0 would mean a non-blocking socket."""


class HeldRequest(NamedTuple):
    """A client's HTTP request that its transport kept and did not send.

    Attributes:
        path: path of the URL, such as ``/v1/chat/completions``.
        body: JSON body.
        betas: value of the header ``anthropic-beta``; empty without it.
    """

    path: str
    body: bytes
    betas: str = ""


class StoredAnswer(NamedTuple):
    """The HTTP response to a request of a batch.

    Attributes:
        status: HTTP status.
        body: JSON body.
    """

    status: int
    body: bytes


@dataclass(slots=True)
class Exchange:
    """One call of a client, from its HTTP transport's side: the call's limits, and its responses. On the call's thread.

    Attributes:
        ends_s: deadline of the whole response; ``time.monotonic``.
        max_bytes: most bytes of one response, inflated.
        max_parts: most values in its JSON; a judge's response has some 30.
        origin: scheme, host and port of the last request; None before the first request.
        status: HTTP status of the last response; None before its beginning.
        headers: rate-limit headers of the last response, names in lower case.
        body: body of the last response, inflated.
        is_whole: whether the last response was complete.
        said: the body as a JSON object; empty if it is not one.
        tokens: sum of the reported usage of all responses of the call.
        answers: reported usage of each response that is neither a refusal nor a redirect.
        is_counted: whether each response reported its usage.
        is_held: whether the request is kept in ``request`` and not sent.
        request: the kept request; None before it.
        stored: the response from a batch, which the client reads in place of the provider's response; None without one.
    """

    ends_s: float
    max_bytes: int
    max_parts: float
    origin: tuple[str, str, int | None] | None = None
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_whole: bool = False
    said: Mapping[str, Any] = field(default_factory=dict)
    tokens: Tokens = UNKNOWN
    answers: list[Tokens] = field(default_factory=list)
    is_counted: bool = True
    is_held: bool = False
    request: HeldRequest | None = None
    stored: StoredAnswer | None = None

    def is_led_away(self, origin: tuple[str, str, int | None]) -> bool:
        """Whether the last response is a redirect, and the next request has another origin."""
        is_redirect = self.status is not None and _FIRST_REDIRECT <= self.status < _FIRST_REFUSAL
        return is_redirect and origin != self.origin

    def sent(self, origin: tuple[str, str, int | None]) -> None:
        """Reset the response, because a request is sent: the first request, or the request of a redirect."""
        self.origin = origin
        self.status, self.headers, self.body, self.is_whole, self.said = None, {}, b"", False, {}

    def answered(self, body: bytes, values: Mapping[str, Any]) -> None:
        """Record a complete response."""
        self.body, self.said, self.is_whole = body, values, True
        tokens = tokens_in(values.get("usage"))
        self.tokens = Tokens(*(sum(both) for both in zip(self.tokens, tokens, strict=True)))
        self.is_counted &= any(tokens)
        if self.status is not None and self.status < _FIRST_REDIRECT:
            self.answers.append(tokens)

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self.ends_s

    def left_s(self, timeout_s: float | None) -> float:
        """Return the timeout of one step, in seconds: the step's own timeout, but no more than the time left."""
        left_s = max(_SHORTEST_S, self.ends_s - time.monotonic())
        return left_s if timeout_s is None else min(timeout_s, left_s)


_exchange: ContextVar[Exchange | None] = ContextVar("spanscore_exchange", default=None)


def exchange() -> Exchange | None:
    """Return the exchange of the call in this context; None if an application uses the client."""
    return _exchange.get()


def exchanging(mine: Exchange) -> AbstractContextManager[None]:
    """Assign the calls inside the block to an exchange."""
    return set_inside(_exchange, mine)


def limits_in(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the rate-limit headers, names in lower case; all others are dropped."""
    named = ((str(name).lower(), str(value)) for name, value in headers.items())
    return {name: value for name, value in named if name.startswith(_LIMITS) and len(value) <= _LONGEST_VALUE}


CUT = "cut"
_MOST_CHARACTERS = 200_000
"""Most characters of an answer that are read; no verdict is that long."""
_FINISH = ("finish_reason", "stop_reason", "done_reason", "stopReason")
_MODELS = ("model_name", "model")
_BATCH_TIERS = ("flex", "batch")
_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_DECLINED = frozenset(
    {
        *("content_filter", "content_filtered", "refusal", "guardrail_intervened"),
        *("safety", "blocklist", "prohibited_content", "spii", "recitation"),
    }
)
"""Stop reasons of all providers for a declined answer, in lower case."""
_TROUBLES = {
    "declined": "the judge declined to answer",
    CUT: "the answer was cut at the most tokens a judge may write",
    "empty": "the answer is empty",
}


class ModelChoice(NamedTuple):
    """One answer of a model.

    Attributes:
        text: the text, at most 200,000 characters.
        finish: the provider's stop reason; None without a reason.
        trouble: ``declined``, ``cut`` or ``empty``; None for an answer that may contain a verdict.
    """

    text: str
    finish: str | None
    trouble: str | None

    @property
    def why(self) -> str:
        """The trouble as a phrase; empty without trouble."""
        return _TROUBLES.get(self.trouble or "", "")


def choices_of(messages: Sequence[Any], exchange: Exchange) -> list[ModelChoice]:
    """Return the texts, stop reasons and troubles of the messages of one response."""
    raw = exchange.said.get("choices")
    listed = raw if isinstance(raw, list) else []
    reasons = [choice.get("finish_reason") for choice in listed if isinstance(choice, Mapping)]
    if len(reasons) != len(messages):
        reasons = [_finish(message) for message in messages]
    choices = []
    for message, finish in zip(messages, reasons, strict=True):
        text, word = _text(message), str(finish).lower()
        trouble = None
        if _is_refusal(message) or word in _DECLINED:
            trouble = "declined"
        elif word in _CUT:
            trouble = CUT
        elif not text.strip():
            trouble = "empty"
        choices.append(ModelChoice(text, None if finish is None else str(finish), trouble))
    return choices


def tokens_of(messages: Sequence[Any], exchange: Exchange) -> Tokens:
    """Return the tokens of a response, all its choices together."""
    tokens = tokens_in(getattr(messages[0], "usage_metadata", None)) if messages else UNKNOWN
    return tokens if any(tokens) else exchange.tokens


def model_of(messages: Sequence[Any], exchange: Exchange) -> str | None:
    """Return the name of the model that answered; None if the response has no name."""
    metadata = _response_metadata(messages, exchange)
    return next((str(one[name]) for one in metadata for name in _MODELS if one.get(name)), None)


def at_batch_price(messages: Sequence[Any], exchange: Exchange) -> bool:
    """Whether the provider bills the response at its batch price, by its service tier."""
    return any(one.get("service_tier") in _BATCH_TIERS for one in _response_metadata(messages, exchange))


def _response_metadata(messages: Sequence[Any], exchange: Exchange) -> list[Mapping[str, Any]]:
    """Return the metadata of a response: the JSON body, and the integration's metadata of each message."""
    return [exchange.said, *(getattr(message, "response_metadata", None) or {} for message in messages)]


def _text(message: Any) -> str:
    """Return the arguments of a message's tool calls as JSON, one call per line; without tool calls its text."""
    called = "\n".join(_called(message))
    return (called or "".join(_written(getattr(message, "content", message))))[:_MOST_CHARACTERS]


def _called(message: Any) -> Iterator[str]:
    for call in getattr(message, "tool_calls", None) or ():
        yield json.dumps(call["args"], ensure_ascii=False)
    for call in getattr(message, "invalid_tool_calls", None) or ():
        if call.get("args"):
            yield str(call["args"])


def _written(content: Any) -> Iterator[str]:
    if not isinstance(content, list):
        yield str(content)
        return
    for block in content:  # a thought is a block without "text"
        yield block if isinstance(block, str) else str(block.get("text") or "")


def _is_refusal(message: Any) -> bool:
    """Whether the model used the field for refusals."""
    if (getattr(message, "additional_kwargs", None) or {}).get("refusal"):
        return True
    content = getattr(message, "content", None)
    return isinstance(content, list) and any(
        isinstance(one, Mapping) and one.get("type") == "refusal" for one in content
    )


def _finish(message: Any) -> Any:
    metadata = getattr(message, "response_metadata", None) or {}
    incomplete = metadata.get("incomplete_details")  # OpenAI's Responses API sets this key
    if isinstance(incomplete, Mapping) and incomplete.get("reason"):
        return incomplete["reason"]
    return next((metadata[name] for name in _FINISH if metadata.get(name)), None)
