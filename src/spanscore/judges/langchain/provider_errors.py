"""Any provider's exception → JudgeError, told by its shape: no provider's library is imported.

The clients of this field agree on little more than a ``status_code``, a ``response`` with headers, and words in the
names of their classes.
"""

from __future__ import annotations

import email.utils
import time
from typing import Any

from pydantic import ValidationError

from spanscore.errors import JudgeError, JudgeUnavailable
from spanscore.model.foreign import bases_of, class_name, type_name

__all__ = ["judge_error", "without_input"]

_MAY_PASS = frozenset({408, 409, 425, 429, *range(500, 600)})
_AWAY = ("Timeout", "Connect", "Unavailable", "Overloaded", "RateLimit", "ServiceBusy", "Throttl", "RemoteProtocol")


def judge_error(error: Exception, step: str) -> JudgeError:
    """Return the error a judge raises for it. Its text names class and status, never the message, which quotes prompts."""
    if isinstance(error, JudgeError):
        return error
    status, name = _status(error), type_name(error)
    if status is not None:
        kind = JudgeUnavailable if status in _MAY_PASS else JudgeError
        text = f"{step}: the judge's provider answered HTTP {status} ({name})"
        return kind(text, error_type=f"http_{status}", retry_after_s=_retry_after_s(error))
    if isinstance(error, OSError) or any(word in class_name(cls) for cls in bases_of(type(error)) for word in _AWAY):
        return JudgeUnavailable(f"{step}: the judge could not be reached ({name})", error_type=name)
    return JudgeError(f"{step}: the judge's client raised {name}", error_type=name)


def _status(error: Exception) -> int | None:
    for holder in (error, getattr(error, "response", None)):
        for attribute in ("status_code", "status", "code", "http_status"):
            value = getattr(holder, attribute, None)
            if isinstance(value, int) and 100 <= value < 600:  # noqa: PLR2004  (the HTTP status codes)
                return int(value)
    return None


def _retry_after_s(error: Exception) -> float | None:
    headers: Any = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        if millis := headers.get("retry-after-ms"):
            return max(0.0, float(millis) / 1000)
        if seconds := headers.get("retry-after") or headers.get("Retry-After"):
            return _seconds(str(seconds))
    except (AttributeError, TypeError, ValueError):
        return None
    return None


def _seconds(value: str) -> float:
    """Read both forms of RFC 9110: a number of seconds, or a date."""
    try:
        return max(0.0, float(value))
    except ValueError:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())


def without_input(error: Exception) -> str:
    """Return what an error says; one of pydantic's without what it was given, in which a key may stand."""
    if not isinstance(error, ValidationError):
        return str(error)
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in found)
