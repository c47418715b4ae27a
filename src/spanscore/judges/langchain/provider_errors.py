"""Any provider's exception → JudgeError: by what the provider answered, else by the words in the names of its classes."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from spanscore.core.log import bases_of, class_name, type_name
from spanscore.errors import JudgeError, JudgeOutOfQuota, JudgeOverloaded, JudgeTimeout, JudgeUnavailable
from spanscore.judges.langchain.exchange import Exchange, limits_in
from spanscore.judges.langchain.refusal import ParameterRefused, ProviderRefusal, refusal_of

__all__ = ["judge_error", "without_input"]

_MAY_PASS = frozenset({408, 409, 425, *range(500, 600)})
_OVERLOADED = frozenset({429, 529})
_AWAY_FOR_NOW = 503
_FIRST_REDIRECT = 300
_LOADED = ("RateLimit", "Overloaded", "Throttl", "TooManyRequests", "ResourceExhausted")
_AWAY = ("OSError", "Connect", "Unavailable", "ServiceBusy", "RemoteProtocol", "ReadError", "WriteError")
_TROUBLES = {"LengthFinishReason": "cut", "ContentFilterFinishReason": "declined", "ContextOverflow": "too_long"}
"""Of OpenAI's client and LangChain's: what they raise over an answer that is there."""
_MOST_CAUSES = 5


def judge_error(error: Exception, step: str, heard: Exchange | None = None) -> JudgeError:
    """Return the error a judge raises for it. Its text names class and status, never the message, which quotes prompts.

    Args:
        heard: what the client's transport heard; None for a client whose transport is not ours.
    """
    causes = list(_causes(error))
    ours = next((cause for cause in causes if isinstance(cause, JudgeError)), None)
    if ours is not None:
        return ours
    text = f"{step}: the judge raised {type_name(error)}"
    refusal = next((found for cause in causes if (found := refusal_of(cause, heard))), None)
    if refusal is not None:
        about = "; ".join(filter(None, (type_name(error), refusal.names)))
        return _refused(refusal, f"{step}: the judge's provider answered HTTP {refusal.status} ({about})")
    classes = {class_name(kind) for cause in causes for kind in bases_of(type(cause))}
    return _failed(classes, text, heard or Exchange(0.0, 0, 0))


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


def _failed(classes: set[str], text: str, heard: Exchange) -> JudgeError:
    """Return the error for a call that no provider refused: it was not reached, or what it answered is of no use."""
    trouble = next((trouble for word, trouble in _TROUBLES.items() if _names(classes, word)), None)
    if trouble is not None:
        return _billed(text, trouble, heard)
    if _names(classes, "Timeout"):
        return JudgeTimeout(text)
    if _names(classes, *_LOADED):
        return JudgeOverloaded(text)
    if heard.is_whole:
        return _billed(text, _of_no_use(heard), heard)
    if _names(classes, *_AWAY):
        away = JudgeUnavailable(text, error_type="connection")
        away.response_started = heard.status is not None
        return away
    return JudgeError(text)  # whose type is one for all that nobody knows: classes are without number


def _of_no_use(heard: Exchange) -> str:
    """Return what is wrong with an answer that came whole, and that the client could not read."""
    if heard.status is not None and heard.status >= _FIRST_REDIRECT:
        return f"http_{heard.status}"
    return "unparseable" if heard.body.strip() and not heard.said else "empty"


def _billed(text: str, error_type: str, heard: Exchange) -> JudgeError:
    sent, received, _ = heard.tokens
    return JudgeError(text, error_type=error_type, headers=heard.headers, input_tokens=sent, output_tokens=received)


def _names(classes: set[str], *words: str) -> bool:
    return any(word in name for name in classes for word in words)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__


def without_input(error: Exception) -> str:
    """Return what an error says; one of pydantic's without what it was given, in which a key may stand."""
    if not isinstance(error, ValidationError):
        return str(error)
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in found)
