"""Convert the exceptions of LangChain chat models into ``JudgeError``, by HTTP status and error codes, else by message text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from spanscore.core.codecs.text import retry_after_s
from spanscore.core.log import bases_of, class_name, type_name
from spanscore.errors import JudgeError, JudgeOutOfQuota, JudgeOverloaded, JudgeTimeout, JudgeUnavailable
from spanscore.judges.langchain.message import Exchange, rate_limit_headers

_DECIDED_BY_TEXT = frozenset({400, 402, 403, 404, 413, 422, 429, 500, 501})
"""HTTP statuses for which the message text, if it matches ``_TYPE_PATTERNS``, decides the error type."""
_PARAMETER_STATUSES = frozenset({400, 404, 422, 501})
"""HTTP statuses with which providers refuse a parameter of the request."""
_TYPE_OF_STATUS = {401: "not_allowed", 402: "quota", 403: "not_allowed", 404: "no_such_model", 413: "too_long"}
_TYPE_PATTERNS = {
    "quota": re.compile("insufficient_quota|billing_hard_limit|billing_not_active|insufficient.balance|credit balance"),
    "declined": re.compile("content_filter|content_policy|responsibleai|content management policy|prohibited_content"),
    "too_long": re.compile(
        "context_length|context length|context.window|contextwindow|prompt is too long|input is too long|request_too_large"
        "|too many (input )?tokens|input tokens? (count )?exceed|string_above_max_length"
    ),
    "no_such_model": re.compile("model_not_found|unknown_model|model_not_exist|deploymentnotfound"),
    "not_allowed": re.compile("invalid_api_key|api_key_invalid|permission_error|accessdenied|unrecognizedclient"),
}
"""Error type → texts of providers and gateways that mean it."""
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
_REFUSED = (
    "(?:unsupported|(?:not|n't).{0,4}(?:support|enabled|permitted|allowed|compatible)|deprecated|unrecogni[sz]ed|unknown"
    "|unexpected|extra_forbidden|only the default|only .{1,9} is allowed|cannot both be)"
)
_PARAMETERS |= {
    setting: re.compile(rf"\b(?:{names})\b.{{0,200}}{_REFUSED}|{_REFUSED}.{{0,200}}\b(?:{names})\b", re.DOTALL)
    for setting, names in {
        "system": r"messages\[\d+\]\.role|system.{0,3}(?:role|messages?|prompts?|instructions?)|role.{0,4}system"
        "|developer instruction",
        "temperature": "temperature",
        "top_p": "top_p",
        "max_tokens": "max_(?:completion_|output_)?tokens",
    }.items()
}
"""Parameter, feature or setting of a request → texts of providers that refuse it."""
_NAME = re.compile(r"[\w.\[\]-]{1,60}")
"""A parameter's name or a code: too short and too plain to quote a prompt."""
_MOST_TEXT = 2_000
_DEEPEST = 5
"""Deepest nesting of an error body that is read, and most items of a list in it."""
_LONGEST_WAIT_S = 3_600.0
"""Longest wait by ``Retry-After``: a date in year 9999 would otherwise block an account forever."""


class ProviderRefusal(NamedTuple):
    """A provider's refusal, read by attribute names, so no provider's library is imported.

    Most clients provide a ``status_code``, a ``response`` with headers, and a body with a code and a message. The message is
    searched, because many providers have no codes. It is not part of any error text, because it may quote prompts.

    Attributes:
        status: HTTP status, 400 to 599.
        words: the texts of the error body, in lower case.
        names: ``param`` and ``code`` of the body, as in "param messages, code unsupported_value"; may be empty.
    """

    status: int
    words: str = ""
    headers: Mapping[str, str] = {}
    names: str = ""

    @property
    def error_type(self) -> str | None:
        """The error type of a failure that a retry cannot cure, such as ``quota``; None for a temporary or unknown failure."""
        if self.status in _DECIDED_BY_TEXT:
            error_type = next((name for name, pattern in _TYPE_PATTERNS.items() if pattern.search(self.words)), None)
            if error_type is not None:
                return error_type
        return _TYPE_OF_STATUS.get(self.status)

    @property
    def parameter(self) -> str | None:
        """The refused request parameter: ``schema``, ``n``, a cache parameter or one of ``SETTINGS``; None if unrecognised."""
        if self.status not in _PARAMETER_STATUSES or self.error_type not in (None, "no_such_model"):
            return None
        return next((parameter for parameter, pattern in _PARAMETERS.items() if pattern.search(self.words)), None)

    @property
    def retry_after_s(self) -> float | None:
        """Seconds to wait by ``Retry-After``, an hour at most; None without a readable header."""
        headers = {str(name).lower(): str(value) for name, value in self.headers.items()}
        wait_ms = retry_after_s(headers.get("retry-after-ms", ""))
        wait_s = retry_after_s(headers.get("retry-after", "")) if wait_ms is None else wait_ms / 1000
        return None if wait_s is None else min(wait_s, _LONGEST_WAIT_S)


class ParameterRefused(JudgeError):
    """The provider refused a parameter of the request, such as ``schema``, ``n`` or ``temperature``."""

    def __init__(self, parameter: str, status: int) -> None:
        super().__init__(f"the judge's provider refused {parameter}: HTTP {status}", error_type=f"http_{status}")
        self.parameter = parameter


def find_refusal(exchange: Exchange) -> ProviderRefusal | None:
    """Return the refusal in a response: by its HTTP status, or by the error in its body, because some gateways answer 200."""
    error = exchange.json_body.get("error")
    status = _status(exchange.status) or (_status(error.get("code")) if isinstance(error, Mapping) else None)
    body = error or exchange.json_body
    return None if status is None else ProviderRefusal(status, _error_text(body), exchange.headers, _names(body))


def _find_in_exception(error: BaseException) -> ProviderRefusal | None:
    """Return the refusal in an exception of most clients; None without an HTTP status."""
    response = getattr(error, "response", None)
    for holder in (error, response):
        for attribute in ("status_code", "status", "code", "http_status"):
            if (status := _status(getattr(holder, attribute, None))) is not None:
                body = getattr(error, "body", None) or getattr(error, "details", None) or str(error)
                headers = getattr(response, "headers", None) or {}
                return ProviderRefusal(status, _error_text(body), headers, _names(body))
    return None


def _find_in_boto(error: BaseException) -> ProviderRefusal | None:
    """Return the refusal in an exception of AWS's clients, which hold the response as a dict."""
    response = getattr(error, "response", None)
    if not isinstance(response, Mapping):
        return None
    metadata = response.get("ResponseMetadata") or {}
    body = response.get("Error") or {}
    status = 429 if "throttling" in str(body.get("Code")).lower() else _status(metadata.get("HTTPStatusCode"))
    return None if status is None else ProviderRefusal(status, _error_text(body), metadata.get("HTTPHeaders") or {})


def _status(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and 400 <= value < 600 else None  # noqa: PLR2004  (refusals, in HTTP)


def _names(body: Any) -> str:
    """Return the parameter and the code that an error body names, as text; empty without either."""
    error = body.get("error", body) if isinstance(body, Mapping) else {}
    names = ((name, error.get(name)) for name in ("param", "code")) if isinstance(error, Mapping) else ()
    return ", ".join(f"{name} {value}" for name, value in names if isinstance(value, str) and _NAME.fullmatch(value))


def _error_text(body: Any) -> str:
    return " ".join(_find_texts(body))[:_MOST_TEXT].lower()


def _find_texts(body: Any, depth: int = 0) -> Iterator[str]:
    """Yield all texts of an error body; a parameter's name as ``param=n``, because it may be a single letter."""
    if isinstance(body, str):
        yield body[:_MOST_TEXT]
    elif depth < _DEEPEST and isinstance(body, Mapping):
        for name, value in body.items():
            yield from (f"{name}={text}" if name == "param" else text for text in _find_texts(value, depth + 1))
    elif depth < _DEEPEST and isinstance(body, list):
        for value in body[:_DEEPEST]:
            yield from _find_texts(value, depth + 1)


_TRANSIENT = frozenset({408, 409, 425, *range(500, 600)})
"""HTTP statuses after which a retry may succeed."""
_OVERLOADED = frozenset({429, 529})
_UNAVAILABLE = 503
"""Status of a failure, or of a refusal for load if it has ``Retry-After``."""
_FIRST_REDIRECT = 300
_LOAD_CLASSES = ("RateLimit", "Overloaded", "Throttl", "TooManyRequests", "ResourceExhausted")
_CONNECTION_CLASSES = ("OSError", "Connect", "Unavailable", "ServiceBusy", "RemoteProtocol", "ReadError", "WriteError")
_UNUSABLE = {"LengthFinishReason": "cut", "ContentFilterFinishReason": "declined", "ContextOverflow": "too_long"}
"""Part of an exception's class name → error type, for responses that OpenAI's client or LangChain rejects."""
_MOST_CAUSES = 8
"""Most chained exceptions that are inspected; a chain may be a cycle."""


def judge_error(error: Exception, step: str, exchange: Exchange | None = None) -> JudgeError:
    """Return the ``JudgeError`` for a client's exception.

    Its text has the exception's class and the HTTP status, and not the exception's message, which may quote prompts.

    Args:
        step: name of the prompt, with which the text begins.
        exchange: the exchange that the client's transport recorded; None if the client has another transport.
    """
    causes = list(causes_of(error))
    own_error = next((cause for cause in causes if isinstance(cause, JudgeError)), None)
    if own_error is not None:
        return own_error
    in_response = None if exchange is None else find_refusal(exchange)
    refusals = (_find_in_exception(cause) or _find_in_boto(cause) or in_response for cause in causes)
    refusal = next(filter(None, refusals), None)
    if refusal is not None:
        details = "; ".join(filter(None, (type_name(error), refusal.names)))
        return _error_of_refusal(refusal, f"{step}: the judge's provider answered HTTP {refusal.status} ({details})")
    classes = {class_name(kind) for cause in causes for kind in bases_of(type(cause))}
    return _error_without_refusal(classes, step, type_name(error), exchange or Exchange(0.0, 0, 0))


def _error_of_refusal(refusal: ProviderRefusal, text: str) -> JudgeError:
    status, limits, wait_s = refusal.status, rate_limit_headers(refusal.headers), refusal.retry_after_s
    if refusal.parameter is not None:
        return ParameterRefused(refusal.parameter, status)
    if refusal.error_type == "quota":
        return JudgeOutOfQuota(text, headers=limits)
    if refusal.error_type is not None:
        return JudgeError(text, error_type=refusal.error_type)
    is_load = status in _OVERLOADED or (status == _UNAVAILABLE and wait_s is not None)
    kind = JudgeOverloaded if is_load else JudgeUnavailable if status in _TRANSIENT else JudgeError
    return kind(text, error_type=f"http_{status}", retry_after_s=wait_s, headers=limits)


def _error_without_refusal(classes: set[str], step: str, name: str, exchange: Exchange) -> JudgeError:
    """Return the error for a call without a refusal: the provider was not reached, or its answer is unusable.

    Args:
        classes: names of the exception's classes, and of those of its causes.
        step: name of the prompt, with which the text begins.
        name: name of the exception's class.
        exchange: the exchange that the client's transport recorded.
    """
    text = f"{step}: the judge raised {name}"
    trouble = next((trouble for word, trouble in _UNUSABLE.items() if _has_word(classes, word)), None)
    if trouble is not None:
        return _error_with_tokens(text, trouble, exchange)
    if _has_word(classes, "Timeout"):
        return JudgeTimeout(text)
    if _has_word(classes, *_LOAD_CLASSES):
        return JudgeOverloaded(text)
    if exchange.is_whole:  # the whole answer arrived, but the client could not read it
        trouble = "unparseable" if exchange.body.strip() and not exchange.json_body else "empty"
        if exchange.status is not None and exchange.status >= _FIRST_REDIRECT:
            trouble = f"http_{exchange.status}"
        return _error_with_tokens(f"{step}: the judge's answer could not be read ({name})", trouble, exchange)
    if _has_word(classes, *_CONNECTION_CLASSES):
        return _connection_error(text, step, name, exchange)
    return JudgeError(text)  # one common type: exception classes are unbounded, error types must be few


def _connection_error(text: str, step: str, name: str, exchange: Exchange) -> JudgeError:
    """Return the error for a connection that was not made, or that broke during the answer: then with ``text``."""
    if exchange.status is None:
        text = f"{step}: the judge could not be reached ({name})"
    away = JudgeUnavailable(text, error_type="connection")
    away.response_started = exchange.status is not None
    return away


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
    return "; ".join(f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}".removeprefix(": ") for entry in errors)
