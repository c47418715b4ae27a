"""Read a chat model's message (text, stop reason, token usage), and record the HTTP exchange of its call."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spanscore.core.context import set_inside

_MOST_TOKENS = 10**8
_INPUT = ("input_tokens", "prompt_tokens")
_OUTPUT = ("output_tokens", "completion_tokens")
_DETAILS = ("input_token_details", "prompt_tokens_details", "input_tokens_details")
_CACHED = ("cache_read", "cached_tokens", "cache_read_input_tokens")
_CACHE_WRITE = ("cache_creation", "cache_creation_input_tokens")
_CACHE_WRITE_BY_TIME = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
"""Tokens by the time that the cache keeps them; langchain-anthropic then sets ``cache_creation`` to 0."""


class Tokens(NamedTuple):
    """The token counts of an answer; all 0 if unknown."""

    input: int = 0
    output: int = 0
    cached_input: int = 0
    cache_write: int = 0


UNKNOWN = Tokens()


def read_tokens(usage: Any) -> Tokens:
    """Return the tokens of a usage object, LangChain's or a provider's own; all 0 if a count is implausible.

    Gateways have sent -5, 1e30 and "many" tokens. Without the check, 1e30 tokens cost 5.4e24 USD.
    """
    if not isinstance(usage, Mapping) or not is_plausible(usage):
        return UNKNOWN
    sent = _first(usage, _INPUT)
    details = next((usage[name] for name in _DETAILS if isinstance(usage.get(name), Mapping)), usage)
    cached = min(sent, _first(details, _CACHED))
    written = _first(details, _CACHE_WRITE) or sum(_first(details, (name,)) for name in _CACHE_WRITE_BY_TIME)
    return Tokens(sent, _first(usage, _OUTPUT), cached, min(sent - cached, written))


def is_plausible(usage: Mapping[str, Any]) -> bool:
    """Whether each count of tokens is whole, not negative, and below 10⁸."""
    return all(value is None or _is_count(value) for value in _find_counts(usage))


def _find_counts(usage: Mapping[str, Any]) -> Iterator[Any]:
    for name, value in usage.items():
        if isinstance(value, Mapping):
            yield from _find_counts(value)
        elif name in (*_CACHED, *_CACHE_WRITE) or str(name).endswith("tokens"):
            yield value


def _is_count(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value < _MOST_TOKENS and value == int(value)


def _first(usage: Mapping[str, Any], names: tuple[str, ...]) -> int:
    return next((int(usage[name]) for name in names if usage.get(name) is not None), 0)


_LIMITS = ("x-ratelimit-", "ratelimit-", "anthropic-ratelimit-", "retry-after")
_MOST_HEADER_CHARS = 100
_FIRST_REDIRECT, _FIRST_REFUSAL = 300, 400
_SHORTEST_S = 0.001
"""Shortest timeout of a socket, in seconds; 0 would mean a non-blocking socket."""


class UnsentRequest(NamedTuple):
    """A client's HTTP request that its transport did not send, because it belongs to a batch.

    Attributes:
        path: path of the URL, such as ``/v1/chat/completions``.
        body: JSON body.
        betas: value of the header ``anthropic-beta``; empty without it.
    """

    path: str
    body: bytes
    betas: str = ""


class BatchAnswer(NamedTuple):
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
        json_body: the body as a JSON object; empty if it is not one.
        tokens: sum of the reported usage of all responses of the call.
        usages: reported usage of each response that is neither a refusal nor a redirect.
        is_counted: whether each response reported its usage.
        keeps_request: whether the transport keeps the request in ``request``, and does not send it.
        request: the request that was not sent; None before the request.
        batch_answer: the response that the client reads in place of the provider's response; None = the request is sent.
    """

    ends_s: float
    max_bytes: int
    max_parts: float
    origin: tuple[str, str, int | None] | None = None
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_whole: bool = False
    json_body: Mapping[str, Any] = field(default_factory=dict)
    tokens: Tokens = UNKNOWN
    usages: list[Tokens] = field(default_factory=list)
    is_counted: bool = True
    keeps_request: bool = False
    request: UnsentRequest | None = None
    batch_answer: BatchAnswer | None = None

    def is_redirected_away(self, origin: tuple[str, str, int | None]) -> bool:
        """Whether the last response is a redirect, and the next request has another origin."""
        is_redirect = self.status is not None and _FIRST_REDIRECT <= self.status < _FIRST_REFUSAL
        return is_redirect and origin != self.origin

    def begin_request(self, origin: tuple[str, str, int | None]) -> None:
        """Reset the response before a request: the first request, or the request of a redirect."""
        self.origin = origin
        self.status, self.headers, self.body, self.is_whole, self.json_body = None, {}, b"", False, {}

    def record_response(self, body: bytes, json_body: Mapping[str, Any]) -> None:
        """Record a complete response."""
        self.body, self.json_body, self.is_whole = body, json_body, True
        tokens = read_tokens(json_body.get("usage"))
        self.tokens = Tokens(*(sum(both) for both in zip(self.tokens, tokens, strict=True)))
        self.is_counted &= any(tokens)
        if self.status is not None and self.status < _FIRST_REDIRECT:
            self.usages.append(tokens)

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self.ends_s

    def left_s(self, timeout_s: float | None) -> float:
        """Return the timeout of one step, in seconds: the step's own timeout, but not beyond the deadline."""
        left_s = max(_SHORTEST_S, self.ends_s - time.monotonic())
        return left_s if timeout_s is None else min(timeout_s, left_s)


_exchange: ContextVar[Exchange | None] = ContextVar("spanscore_exchange", default=None)


def current_exchange() -> Exchange | None:
    """Return the exchange of the call in this context; None if an application uses the client."""
    return _exchange.get()


def use_exchange(exchange: Exchange) -> AbstractContextManager[None]:
    """Record the requests and responses of the calls inside the block in an exchange."""
    return set_inside(_exchange, exchange)


def rate_limit_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the rate-limit headers, names in lower case, without other headers."""
    texts = ((str(name).lower(), str(value)) for name, value in headers.items())
    return {name: value for name, value in texts if name.startswith(_LIMITS) and len(value) <= _MOST_HEADER_CHARS}


CUT = "cut"
_MOST_CHARACTERS = 200_000
"""Most characters of an answer that are read; no verdict is that long."""
_STOP_REASON_KEYS = ("finish_reason", "stop_reason", "done_reason", "stopReason")
_MODEL_KEYS = ("model_name", "model")
_BATCH_TIERS = ("flex", "batch")
_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_DECLINED = frozenset(
    {
        *("content_filter", "content_filtered", "refusal", "guardrail_intervened"),
        *("safety", "blocklist", "prohibited_content", "spii", "recitation"),
    }
)
"""Stop reasons of all providers for a declined answer, in lower case."""
_ERROR_PHRASES = {
    "declined": "the judge declined to answer",
    CUT: "the answer was cut at the most tokens a judge may write",
    "empty": "the answer is empty",
}


class ModelChoice(NamedTuple):
    """One answer of a model.

    Attributes:
        text: the text, at most 200,000 characters.
        finish: the provider's stop reason; None without a reason.
        error_type: ``declined``, ``cut`` or ``empty``; None for an answer that may contain a verdict.
    """

    text: str
    finish: str | None
    error_type: str | None

    @property
    def why(self) -> str:
        """The error type as a phrase; empty without an error."""
        return _ERROR_PHRASES.get(self.error_type or "", "")


def choices_of(messages: Sequence[Any], exchange: Exchange) -> list[ModelChoice]:
    """Return the text, stop reason and error type of each message of one response."""
    choices_json = exchange.json_body.get("choices")
    items = choices_json if isinstance(choices_json, list) else []
    reasons = [item.get("finish_reason") for item in items if isinstance(item, Mapping)]
    if len(reasons) != len(messages):
        reasons = [_stop_reason(message) for message in messages]
    choices = []
    for message, finish in zip(messages, reasons, strict=True):
        text, reason = _message_text(message), str(finish).lower()
        error_type = None
        if _is_refusal(message) or reason in _DECLINED:
            error_type = "declined"
        elif reason in _CUT:
            error_type = CUT
        elif not text.strip():
            error_type = "empty"
        choices.append(ModelChoice(text, None if finish is None else str(finish), error_type))
    return choices


def tokens_of(messages: Sequence[Any], exchange: Exchange) -> Tokens:
    """Return the tokens of a response, all its choices together."""
    tokens = read_tokens(getattr(messages[0], "usage_metadata", None)) if messages else UNKNOWN
    return tokens if any(tokens) else exchange.tokens


def model_of(messages: Sequence[Any], exchange: Exchange) -> str | None:
    """Return the name of the model that answered; None if the response has no name."""
    metadata = _response_metadata(messages, exchange)
    return next((str(part[key]) for part in metadata for key in _MODEL_KEYS if part.get(key)), None)


def at_batch_price(messages: Sequence[Any], exchange: Exchange) -> bool:
    """Whether the provider bills the response at its batch price, by its service tier."""
    return any(part.get("service_tier") in _BATCH_TIERS for part in _response_metadata(messages, exchange))


def _response_metadata(messages: Sequence[Any], exchange: Exchange) -> list[Mapping[str, Any]]:
    """Return the metadata of a response: the JSON body, and the integration's metadata of each message."""
    return [exchange.json_body, *(getattr(message, "response_metadata", None) or {} for message in messages)]


def _message_text(message: Any) -> str:
    """Return the arguments of a message's tool calls as JSON, one call per line; without tool calls its text."""
    arguments = "\n".join(_tool_arguments(message))
    return (arguments or "".join(_content_texts(getattr(message, "content", message))))[:_MOST_CHARACTERS]


def _tool_arguments(message: Any) -> Iterator[str]:
    for call in getattr(message, "tool_calls", None) or ():
        yield json.dumps(call["args"], ensure_ascii=False)
    for call in getattr(message, "invalid_tool_calls", None) or ():
        if call.get("args"):
            yield str(call["args"])


def _content_texts(content: Any) -> Iterator[str]:
    if not isinstance(content, list):
        yield str(content)
        return
    for block in content:  # a thought is a block without "text"
        yield block if isinstance(block, str) else str(block.get("text") or "")


def _is_refusal(message: Any) -> bool:
    """Whether the message has a refusal in the field that its provider has for refusals."""
    if (getattr(message, "additional_kwargs", None) or {}).get("refusal"):
        return True
    content = getattr(message, "content", None)
    return isinstance(content, list) and any(
        isinstance(block, Mapping) and block.get("type") == "refusal" for block in content
    )


def _stop_reason(message: Any) -> Any:
    metadata = getattr(message, "response_metadata", None) or {}
    incomplete = metadata.get("incomplete_details")  # OpenAI's Responses API sets this key
    if isinstance(incomplete, Mapping) and incomplete.get("reason"):
        return incomplete["reason"]
    return next((metadata[name] for name in _STOP_REASON_KEYS if metadata.get(name)), None)
