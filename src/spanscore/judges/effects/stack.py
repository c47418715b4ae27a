"""Wrap a judge in the configured middleware, in a fixed order.

    FallingBack(Cached(BatchedVotes(CacheFilled(Budgeted(RateLimited(Priced(judge)))))))

A chat model has all layers, ``FallingBack`` only with fallbacks. A user's own judge has only the configured layers.
``RateLimited`` has attempts, deadlines and limits; the votes of a score are one question to it.

The order matters. The timeout does not run while a question waits for its place. A question that waits for its next attempt
has no place. Every attempt has its cost. A question with a cached answer skips all other layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Annotated, Any, TypedDict, get_type_hints

from spanscore.errors import ConfigurationError
from spanscore.judges.effects.cache import Cached, CacheSetting
from spanscore.judges.effects.cost import Priced, budgeted
from spanscore.judges.effects.limited import FallingBack, RateLimited, Windowed, limiters_of, with_batched_votes
from spanscore.judges.effects.middleware import layers
from spanscore.judges.effects.prefix import PROMPT_CACHE_WAIT_S, CacheFilled
from spanscore.protocols import Judge


class MiddlewareSettings(TypedDict, total=False):
    """Keyword of ``judge()`` → the type of its setting, and the middleware; the outermost first. New middleware is added here.

    All limits are settings of one middleware, ``RateLimited``. A user's own judge has it only if one of its settings is given,
    or a fallback, which needs its breaker. ``Cached`` wraps every chat model, because the caller of a run may decide whether it
    keeps answers.
    """

    fallback: Annotated[Sequence[Any] | None, FallingBack]
    cache: Annotated[CacheSetting, Cached]
    prompt_cache_wait: Annotated[float | None, CacheFilled]
    queue_timeout: Annotated[float | None, RateLimited]
    requests_per_minute: Annotated[float | None, RateLimited]
    tokens_per_minute: Annotated[float | None, RateLimited]
    max_attempts: Annotated[int | None, RateLimited]
    max_concurrency: Annotated[int | None, RateLimited]
    timeout: Annotated[float | None, RateLimited]
    max_input_tokens: Annotated[int | None, Windowed]
    prices: Annotated[Mapping[str, Sequence[float]] | None, Priced]


_OUTERMOST_FIRST: dict[str, Any] = {
    keyword: hint.__metadata__[0] for keyword, hint in get_type_hints(MiddlewareSettings, include_extras=True).items()
}
_KEYWORDS = [*_OUTERMOST_FIRST]
_WAIT = "prompt_cache_wait"
"""This layer is inside of ``BatchedVotes``, because the votes of a score are one question and do not wait for each other."""
_LIMITER_KEYWORDS = [keyword for keyword in _KEYWORDS if _OUTERMOST_FIRST[keyword] is RateLimited]
_OUTSIDE = [keyword for keyword in _KEYWORDS[: _KEYWORDS.index(_LIMITER_KEYWORDS[0])] if keyword != _WAIT]
_INSIDE = _KEYWORDS[_KEYWORDS.index(_LIMITER_KEYWORDS[-1]) + 1 :]
_ONLY_GIVEN: Mapping[str, Any] = {"max_attempts": 1, "timeout": inf}
"""Limits of a user's own judge that are not given: one attempt without a deadline."""


def stacked(judge: Judge, settings: Mapping[str, Any], *, chat_model: bool = False) -> Judge:
    """Return a judge wrapped in the middleware that has a setting.

    Args:
        judge: the judge to wrap.
        settings: keyword → setting; None counts as missing.
        chat_model: whether ``RateLimited`` wraps it in any case.

    Raises:
        TypeError: a keyword is unknown.
        ConfigurationError: a setting is invalid.
    """
    values = _check_settings(judge, settings)
    if chat_model:
        values = {"cache": None, _WAIT: PROMPT_CACHE_WAIT_S, **values}  # a run may bring a cache of answers
    limits, has_limiter = _part(values, _LIMITER_KEYWORDS), bool(limiters_of(judge))
    if limits and has_limiter:  # a question would hold one place, and wait for another
        raise ConfigurationError(
            f"{min(limits)} is given around a judge that has its limits: give it to the call that creates that judge"
        )
    if values and not has_limiter:  # innermost: each attempt is paid for, and waiting outside of it costs nothing
        values = {"prices": {}, **values}
    judge = _wrapped(judge, values, _INSIDE)
    needs_breaker = chat_model or ("fallback" in values and not has_limiter)
    if needs_breaker or limits:
        judge = RateLimited(judge, **{**({} if needs_breaker else _ONLY_GIVEN), **limits})
    # A budget is outside of the waits, and inside of cache and fallback; without these, ``judges/ask.py`` adds it.
    judge = budgeted(judge) if {"cache", "fallback"} & values.keys() else judge
    return _wrapped(with_batched_votes(_with_wait(judge, values)), values, _OUTSIDE)


def _with_wait(judge: Judge, settings: Mapping[str, Any]) -> Judge:
    """Return a judge with one layer that waits for the first question. With two layers, a question would wait for itself."""
    waits = any(isinstance(layer, CacheFilled) for layer in layers(judge))
    return judge if waits else _wrapped(judge, settings, [_WAIT])


def _check_settings(judge: Judge, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are not None."""
    if unknown := settings.keys() - _OUTERMOST_FIRST.keys():
        raise TypeError(f"judge() got an unexpected keyword argument {min(unknown)!r}; it takes {_KEYWORDS}")
    effects = {keyword: setting for keyword, setting in settings.items() if setting is not None}
    if effects and hasattr(judge, "jurors"):
        raise ConfigurationError(f"{min(effects)} is given around a jury: give it to the jury's own judges")
    return effects


def without_limits(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are allowed for a judge with its own limits."""
    return {keyword: setting for keyword, setting in settings.items() if keyword not in _LIMITER_KEYWORDS}


def _wrapped(judge: Judge, values: Mapping[str, Any], keywords: Sequence[str]) -> Judge:
    for keyword in reversed(keywords):
        if keyword in values:
            judge = _OUTERMOST_FIRST[keyword](judge, values[keyword])
    return judge


def _part(values: Mapping[str, Any], keywords: Sequence[str]) -> dict[str, Any]:
    return {keyword: values[keyword] for keyword in keywords if keyword in values}
