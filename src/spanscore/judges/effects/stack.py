"""Wrap a judge in the configured middleware, in a fixed order.

    Cached(BatchedVotes(CacheFilled(Budgeted(RateLimited(Priced(LangChainJudge))))))
        For a chat model. ``RateLimited`` has attempts, deadlines and limits; a vote is one question to it.
    Cached(Retrying(Limited(Timed(Priced(own)))))
        For a user's own judge: only the configured middleware.
    FallingBack(…)                                             around either, if it has fallbacks

The order matters. The timeout does not run while a question waits for its place. A question that waits to be repeated holds no
place. Every attempt has its cost. A question with a cached answer skips all other layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict, get_type_hints

from spanscore.errors import ConfigurationError
from spanscore.judges.effects.cache import Cached, CacheSetting
from spanscore.judges.effects.cost import Priced, budgeted
from spanscore.judges.effects.limited import (
    FallingBack,
    Limited,
    RateLimited,
    Retrying,
    Timed,
    Windowed,
    gates_of,
    gathered,
)
from spanscore.judges.effects.middleware import layers
from spanscore.judges.effects.prefix import PROMPT_CACHE_WAIT_S, CacheFilled
from spanscore.protocols import Judge


class MiddlewareSettings(TypedDict, total=False):
    """Keyword of ``judge()`` → the type of its setting, and the middleware; the outermost first. New middleware is added here.

    For a chat model all limits are settings of one middleware, ``RateLimited``. A user's own judge has it only if one of its
    settings is given, or a fallback, which needs its breaker. ``Cached`` wraps every chat model: the caller of a run may
    decide whether it keeps answers.
    """

    fallback: Annotated[Sequence[Any] | None, FallingBack]
    cache: Annotated[CacheSetting, Cached]
    prompt_cache_wait: Annotated[float | None, CacheFilled]
    queue_timeout: Annotated[float | None, RateLimited]
    requests_per_minute: Annotated[float | None, RateLimited]
    tokens_per_minute: Annotated[float | None, RateLimited]
    max_attempts: Annotated[int | None, Retrying]
    max_concurrency: Annotated[int | None, Limited]
    timeout: Annotated[float | None, Timed]
    max_input_tokens: Annotated[int | None, Windowed]
    prices: Annotated[Mapping[str, Sequence[float]] | None, Priced]


_OUTERMOST_FIRST: dict[str, Any] = {
    keyword: hint.__metadata__[0] for keyword, hint in get_type_hints(MiddlewareSettings, include_extras=True).items()
}
_KEYWORDS = [*_OUTERMOST_FIRST]
_WAIT = "prompt_cache_wait"
"""Inside of ``BatchedVotes``: the ballots of a vote are one question, so none of them waits for another."""
_OF_A_GATE = [keyword for keyword in _KEYWORDS if _OUTERMOST_FIRST[keyword] in (RateLimited, Retrying, Limited, Timed)]
_OUTSIDE = [keyword for keyword in _KEYWORDS[: _KEYWORDS.index(_OF_A_GATE[0])] if keyword != _WAIT]
_INSIDE = _KEYWORDS[_KEYWORDS.index(_OF_A_GATE[-1]) + 1 :]


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
    given = _check_settings(judge, settings)
    if chat_model:
        given = {"cache": None, _WAIT: PROMPT_CACHE_WAIT_S, **given}  # a run may bring a cache of answers
    has_gate = bool(gates_of(judge))
    if has_gate and (limits := _part(given, _OF_A_GATE)):  # a question would hold one place, and wait for another
        raise ConfigurationError(
            f"{min(limits)} is given around a judge that has its limits: give it to the call that creates that judge"
        )
    if given and not has_gate:  # innermost: each attempt is paid for, and waiting outside of it costs nothing
        given = {"prices": {}, **given}
    if chat_model or _needs_gate(given, has_gate=has_gate):
        judge = RateLimited(_wrapped(judge, given, _INSIDE), **_part(given, _OF_A_GATE))
    else:
        judge = _wrapped(judge, given, [*_OF_A_GATE, *_INSIDE])
    # A budget is outside of the waits, and inside of cache and fallback; without these, ``judges/ask.py`` adds it.
    judge = budgeted(judge) if {"cache", "fallback"} & given.keys() else judge
    return _wrapped(gathered(_with_wait(judge, given)), given, _OUTSIDE)


def _with_wait(judge: Judge, settings: Mapping[str, Any]) -> Judge:
    """Return a judge with one layer that waits for the first question: with two, a question would wait for itself."""
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


def _needs_gate(settings: Mapping[str, Any], *, has_gate: bool) -> bool:
    """Whether a user's own judge needs ``RateLimited``: for one of its settings, or for the breaker of a fallback."""
    lacks_breaker = "fallback" in settings and not has_gate
    return lacks_breaker or any(_OUTERMOST_FIRST[keyword] is RateLimited for keyword in settings)


def without_limits(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are allowed for a judge with its own limits."""
    return {keyword: setting for keyword, setting in settings.items() if keyword not in _OF_A_GATE}


def _wrapped(judge: Judge, given: Mapping[str, Any], keywords: Sequence[str]) -> Judge:
    for keyword in reversed(keywords):
        if keyword in given:
            judge = _OUTERMOST_FIRST[keyword](judge, given[keyword])
    return judge


def _part(given: Mapping[str, Any], keywords: Sequence[str]) -> dict[str, Any]:
    return {keyword: given[keyword] for keyword in keywords if keyword in given}
