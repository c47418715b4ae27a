"""Convert the exceptions of LangChain chat models into ``JudgeError``, by HTTP status and error codes, else by message text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from spanscore.core.codecs.text import retry_after_s
from spanscore.core.log import bases_of, class_name, type_name
from spanscore.errors import JudgeError, JudgeOutOfQuota, JudgeOverloaded, JudgeTimeout, JudgeUnavailable
from spanscore.judges.langchain.message import Exchange, limits_in

_SAID_IN_WORDS = frozenset({400, 402, 403, 404, 413, 422, 429, 500, 501})
"""HTTP statuses for which the message text, if it matches ``_WORDS``, decides the error type."""
_OF_FORM = frozenset({400, 404, 422, 501})
_OF_STATUS = {401: "not_allowed", 402: "quota", 403: "not_allowed", 404: "no_such_model", 413: "too_long"}
_WORDS = {
    "quota": re.compile("insufficient_quota|billing_hard_limit|billing_not_active|insufficient.balance|credit balance"),
    "declined": re.compile("content_filter|content_policy|responsibleai|content management policy|prohibited_content"),
    "too_long": re.compile(
        "context_length|context length|context.window|contextwindow|prompt is too long|input is too long|request_too_large"
        "|too many (input )?tokens|input tokens? (count )?exceed|string_above_max_length"
    ),
    "no_such_model": re.compile("model_not_found|unknown_model|model_not_exist|deploymentnotfound"),
    "not_allowed": re.compile("invalid_api_key|api_key_invalid|permission_error|accessdenied|unrecognizedclient"),
}
_PARAMETERS: dict[str, re.Pattern[str]] = {
    "prompt_cache_key": re.compile("prompt_cache_key"),
    "cache_control": re.compile("cache_control"),
    "schema": re.compile(
        "response_?format|json_?schema|response_?schema|structured.output|output_config|guided_json|json mode|tool_choice"
        "|support.{0,12} tool|tools? .{0,20}not supported|function call.{0,20}not (supported|enabled)"
    ),
    "n": re.compile(
        r"\bparam=n\b|\bn (>|must be|is not|should be)|'n'|multiple (choices|completions|candidates)|candidate_?count"
    ),
}
_UNKNOWN = (
    "(?:unsupported|(?:not|n't).{0,4}(?:support|enabled|permitted|allowed|compatible)|deprecated|unrecogni[sz]ed|unknown"
    "|unexpected|extra_forbidden|only the default|only .{1,9} is allowed|cannot both be)"
)
_PARAMETERS |= {
    setting: re.compile(rf"\b(?:{names})\b.{{0,200}}{_UNKNOWN}|{_UNKNOWN}.{{0,200}}\b(?:{names})\b", re.DOTALL)
    for setting, names in {
        "system": r"messages\[\d+\]\.role|system.{0,3}(?:role|messages?|prompts?|instructions?)|role.{0,4}system"
        "|developer instruction",
        "temperature": "temperature",
        "top_p": "top_p",
        "max_tokens": "max_(?:completion_|output_)?tokens",
    }.items()
}
_NAME = re.compile(r"[\w.\[\]-]{1,60}")
"""A parameter's name or a code; no text that could quote a prompt."""
_MOST_TEXT = 2_000
_DEEPEST = 5
_LONGEST_S = 3_600.0
"""Longest wait by ``Retry-After``: a wrong clock, or a date in year 9999, would otherwise block an account forever."""


class ProviderRefusal(NamedTuple):
    """A provider's refusal, read by attribute names, so no provider's library is imported.

    Most clients provide a ``status_code``, a ``response`` with headers, and a body with a code and a message. The message is
    searched because many providers have no codes. The message is not shown, because it quotes prompts.

    Attributes:
        status: HTTP status, 400 to 599.
        words: the texts of the error body, in lower case.
        headers: the response headers, unchanged.
        names: ``param`` and ``code`` of the body, as in "param messages, code unsupported_value"; may be empty.
    """

    status: int
    words: str = ""
    headers: Mapping[str, str] = {}
    names: str = ""

    @property
    def trouble(self) -> str | None:
        """The error type of a failure that a retry cannot cure, such as ``quota``; None if it may pass or is unknown."""
        if self.status in _SAID_IN_WORDS:
            name = next((trouble for trouble, pattern in _WORDS.items() if pattern.search(self.words)), None)
            if name is not None:
                return name
        return _OF_STATUS.get(self.status)

    @property
    def parameter(self) -> str | None:
        """The refused request parameter: ``schema``, ``n``, a cache parameter or one of ``SETTINGS``; None if unrecognised."""
        if self.status not in _OF_FORM or self.trouble not in (None, "no_such_model"):
            return None
        return next((parameter for parameter, pattern in _PARAMETERS.items() if pattern.search(self.words)), None)

    @property
    def retry_after_s(self) -> float | None:
        """Seconds to wait by ``Retry-After``, an hour at most; None without a readable header."""
        named = {str(name).lower(): str(value) for name, value in self.headers.items()}
        millis = retry_after_s(named.get("retry-after-ms", ""))
        waits_s = retry_after_s(named.get("retry-after", "")) if millis is None else millis / 1000
        return None if waits_s is None else min(waits_s, _LONGEST_S)


class ParameterRefused(JudgeError):
    """The provider refused a parameter of the request, such as ``schema``, ``n`` or ``temperature``."""

    def __init__(self, parameter: str, status: int) -> None:
        super().__init__(f"the judge's provider refused {parameter}: HTTP {status}", error_type=f"http_{status}")
        self.parameter = parameter


def refusal_in(exchange: Exchange) -> ProviderRefusal | None:
    """Return the refusal in a response: by its HTTP status, or by the error in its body, because some gateways answer 200."""
    error = exchange.said.get("error")
    status = _status(exchange.status) or (_status(error.get("code")) if isinstance(error, Mapping) else None)
    body = error or exchange.said
    return None if status is None else ProviderRefusal(status, _words(body), exchange.headers, _names(body))


def _in_exception(error: BaseException) -> ProviderRefusal | None:
    response = getattr(error, "response", None)
    for holder in (error, response):
        for attribute in ("status_code", "status", "code", "http_status"):
            if (status := _status(getattr(holder, attribute, None))) is not None:
                body = getattr(error, "body", None) or getattr(error, "details", None) or str(error)
                return ProviderRefusal(status, _words(body), getattr(response, "headers", None) or {}, _names(body))
    return None


def _in_boto(error: BaseException) -> ProviderRefusal | None:
    """Return the refusal in an exception of AWS's clients, which hold the response as a dict."""
    response = getattr(error, "response", None)
    if not isinstance(response, Mapping):
        return None
    about = response.get("ResponseMetadata") or {}
    said = response.get("Error") or {}
    status = 429 if "throttling" in str(said.get("Code")).lower() else _status(about.get("HTTPStatusCode"))
    return None if status is None else ProviderRefusal(status, _words(said), about.get("HTTPHeaders") or {})


def _status(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and 400 <= value < 600 else None  # noqa: PLR2004  (refusals, in HTTP)


def _names(said: Any) -> str:
    """Return the parameter and the code that an error body names, as text; empty without either."""
    inner = said.get("error", said) if isinstance(said, Mapping) else {}
    named = ((name, inner.get(name)) for name in ("param", "code")) if isinstance(inner, Mapping) else ()
    return ", ".join(f"{name} {value}" for name, value in named if isinstance(value, str) and _NAME.fullmatch(value))


def _words(value: Any) -> str:
    return " ".join(_texts(value))[:_MOST_TEXT].lower()


def _texts(said: Any, depth: int = 0) -> Iterator[str]:
    """Yield all texts of an error body; a parameter's name as ``param=n``, as it may be a single letter."""
    if isinstance(said, str):
        yield said[:_MOST_TEXT]
    elif depth < _DEEPEST and isinstance(said, Mapping):
        for name, value in said.items():
            yield from (f"{name}={text}" if name == "param" else text for text in _texts(value, depth + 1))
    elif depth < _DEEPEST and isinstance(said, list):
        for value in said[:_DEEPEST]:
            yield from _texts(value, depth + 1)


_MAY_PASS = frozenset({408, 409, 425, *range(500, 600)})
_OVERLOADED = frozenset({429, 529})
_AWAY_FOR_NOW = 503
_FIRST_REDIRECT = 300
_LOADED = ("RateLimit", "Overloaded", "Throttl", "TooManyRequests", "ResourceExhausted")
_AWAY = ("OSError", "Connect", "Unavailable", "ServiceBusy", "RemoteProtocol", "ReadError", "WriteError")
_TROUBLES = {"LengthFinishReason": "cut", "ContentFilterFinishReason": "declined", "ContextOverflow": "too_long"}
"""Part of an exception's class name → error type, for responses that OpenAI's client or LangChain rejects."""
_MOST_CAUSES = 8
"""Most chained exceptions that are inspected; a chain may be a cycle."""


def judge_error(error: Exception, step: str, exchange: Exchange | None = None) -> JudgeError:
    """Return the ``JudgeError`` for a client's exception, with class and status but no message, which may quote
    prompts.

    Args:
        step: name of the prompt, with which the text begins.
        exchange: the exchange that the client's transport recorded; None if the transport is not this package's.
    """
    causes = list(causes_of(error))
    ours = next((cause for cause in causes if isinstance(cause, JudgeError)), None)
    if ours is not None:
        return ours
    text = f"{step}: the judge raised {type_name(error)}"
    answered = None if exchange is None else refusal_in(exchange)
    refusal = next(filter(None, (_in_exception(cause) or _in_boto(cause) or answered for cause in causes)), None)
    if refusal is not None:
        about = "; ".join(filter(None, (type_name(error), refusal.names)))
        return _refused(refusal, f"{step}: the judge's provider answered HTTP {refusal.status} ({about})")
    classes = {class_name(kind) for cause in causes for kind in bases_of(type(cause))}
    return _failed(classes, text, exchange or Exchange(0.0, 0, 0))


def _refused(refusal: ProviderRefusal, text: str) -> JudgeError:
    status, limits, waits_s = refusal.status, limits_in(refusal.headers), refusal.retry_after_s
    if refusal.parameter is not None:
        return ParameterRefused(refusal.parameter, status)
    if refusal.trouble == "quota":
        return JudgeOutOfQuota(text, headers=limits)
    if refusal.trouble is not None:
        return JudgeError(text, error_type=refusal.trouble)
    is_load = status in _OVERLOADED or (status == _AWAY_FOR_NOW and waits_s is not None)
    kind = JudgeOverloaded if is_load else JudgeUnavailable if status in _MAY_PASS else JudgeError
    return kind(text, error_type=f"http_{status}", retry_after_s=waits_s, headers=limits)


def _failed(classes: set[str], text: str, exchange: Exchange) -> JudgeError:
    """Return the error for a call without a refusal: the provider was not reached, or its answer is unusable."""
    trouble = next((trouble for word, trouble in _TROUBLES.items() if _has_word(classes, word)), None)
    if trouble is not None:
        return _error_with_tokens(text, trouble, exchange)
    if _has_word(classes, "Timeout"):
        return JudgeTimeout(text)
    if _has_word(classes, *_LOADED):
        return JudgeOverloaded(text)
    if exchange.is_whole:  # the whole answer arrived, but the client could not read it
        trouble = "unparseable" if exchange.body.strip() and not exchange.said else "empty"
        if exchange.status is not None and exchange.status >= _FIRST_REDIRECT:
            trouble = f"http_{exchange.status}"
        return _error_with_tokens(text, trouble, exchange)
    if _has_word(classes, *_AWAY):
        away = JudgeUnavailable(text, error_type="connection")
        away.response_started = exchange.status is not None
        return away
    return JudgeError(text)  # one common type: exception classes are unbounded, error types must be few


def _error_with_tokens(text: str, error_type: str, exchange: Exchange) -> JudgeError:
    tokens = exchange.tokens
    return JudgeError(
        text, error_type=error_type, headers=exchange.headers, input_tokens=tokens.input, output_tokens=tokens.output
    )


def _has_word(classes: set[str], *words: str) -> bool:
    return any(word in name for name in classes for word in words)


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, the error first, at most eight."""
    cause: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__


def without_input(error: Exception) -> str:
    """Return an error's text; for a pydantic error without its input, which may contain a key."""
    if not isinstance(error, ValidationError):
        return str(error)
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in errors)
