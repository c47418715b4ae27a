"""Create judges from a chat model, a model name or another judge, and wrap them in the configured middleware, in a fixed order.

    FallingBack(Cached(BatchedVotes(CacheFilled(Budgeted(RateLimited(Windowed(Priced(judge))))))))

A chat model has all layers; ``FallingBack`` and ``Windowed`` need a setting. A user's own judge has only the configured layers.
``RateLimited`` has attempts, deadlines and limits; the votes of a score are one question to it.

The order matters. The timeout does not run while a question waits for a free place among the concurrent questions. While a
question waits for its next attempt, it occupies no place. Every attempt has its cost. A question with a cached answer skips the
layers inside ``Cached``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Annotated, Any, TypedDict, Unpack, get_type_hints
from weakref import WeakValueDictionary

from spanscore.core.prompt import PromptOrder
from spanscore.errors import ConfigurationError
from spanscore.judges.effects.cache import Cached, CacheSetting
from spanscore.judges.effects.cost import Priced, budgeted
from spanscore.judges.effects.limited import FallingBack, RateLimited, Windowed, limiters_of, with_batched_votes
from spanscore.judges.effects.middleware import layers
from spanscore.judges.effects.prefix import PROMPT_CACHE_WAIT_S, CacheFilled
from spanscore.judges.langchain.chat import LangChainJudge, Structured
from spanscore.judges.langchain.models import ClientSettings, named_model
from spanscore.judges.lexical.judge import LexicalJudge
from spanscore.protocols import Judge


class MiddlewareSettings(TypedDict, total=False):
    """Keyword of ``judge()`` → the type of its setting, and the middleware; the outermost first. New middleware is added here.

    All limits are settings of one middleware, ``RateLimited``. A user's own judge has ``RateLimited`` only if a limit is set,
    or a fallback, which needs the breaker of ``RateLimited``. ``Cached`` wraps every chat model, because a run (``evaluate``)
    may bring a store of answers.
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
"""This layer is inside of ``BatchedVotes`` and gets the votes of a score as one question. Otherwise they would wait for each
other.
"""
_LIMITER_KEYWORDS = [keyword for keyword in _KEYWORDS if _OUTERMOST_FIRST[keyword] is RateLimited]
_OUTSIDE_LIMITS = [keyword for keyword in _KEYWORDS[: _KEYWORDS.index(_LIMITER_KEYWORDS[0])] if keyword != _WAIT]
_INSIDE_LIMITS = _KEYWORDS[_KEYWORDS.index(_LIMITER_KEYWORDS[-1]) + 1 :]
_OWN_JUDGE_DEFAULTS: Mapping[str, Any] = {"max_attempts": 1, "timeout": inf}
"""Default limits of a user's own judge without a fallback: one attempt without a deadline."""

_shared: WeakValueDictionary[int, Judge] = WeakValueDictionary()
"""Id of a chat model → its judge. A judge keeps its model alive, so the id is not reused while the entry exists."""
_OFFLINE = LexicalJudge()


def judge(
    model: Any,
    *,
    base_url: str | None = None,
    api_key_env: str | None = None,
    api_key_file: str | Path | None = None,
    model_kwargs: Mapping[str, Any] | None = None,
    structured: Structured = "auto",
    prompt_order: PromptOrder = "evidence_first",
    prompt_cache: bool = True,
    images: bool | None = None,
    **effects: Unpack[MiddlewareSettings],
) -> Judge:
    """Return a judge. An account is a combination of provider, address, key and model; all its judges share its limits.

    Args:
        model: a LangChain chat model; a model name in the syntax of ``init_chat_model`` (``"openai:gpt-4o-mini"``);
            ``"lexical"`` for the offline judge; or a Judge, which is returned unchanged, or wrapped as configured here.
        base_url: endpoint of a model that is given by name; None = the provider's usual address. The application's default
            key is not sent to an address other than the provider's; use ``api_key_env`` or ``api_key_file``.
        api_key_env: environment variable with the key of a model that is given by name.
        api_key_file: path of a file with the key of a model that is given by name.
        model_kwargs: further arguments of a model that is given by name, such as ``{"temperature": 0}``.
        structured: mode of structured output of a chat model: ``auto`` (its integration's choice; text if the provider
            supports none), ``schema``, ``tools``, ``json``, or ``text``.
        prompt_order: ``evidence_first``: questions about a sample begin with the sample, so that a provider's cache serves
            all of them. ``instruction_first``: the instruction comes before the sample. The order is part of every metric's
            version.
        prompt_cache: whether questions of a unit with the same beginning use the provider's prompt cache. Such questions have
            no schema, because a schema would precede the sample. OpenAI receives them in JSON mode with ``prompt_cache_key``,
            Anthropic as text with ``cache_control``.
        images: whether the model gets the images of a sample. Without images, it gets a marker for each, and its scores have
            ``spanscore.judge.images_not_shown``. None = by the model's LangChain profile, or by its name if it has no profile.
        prompt_cache_wait: maximum seconds that questions with the same beginning wait until the first of them is answered;
            None: 2 for a chat model; 0: no wait.
        fallback: judges, models or their names, or mappings of arguments of this function (``{"model": …, "base_url": …}``),
            asked in their order while the judge's circuit breaker is open. Scores of a fallback have their own evaluator
            version. The other arguments of this call also apply to each fallback, except address, key and ``model_kwargs``, and
            except the limits if the fallback is a judge with its own limits.
        cache: ``"memory"``: a question that was answered within the last hour is not asked again, and its answer costs
            nothing; or the path of a file with the answers. Processes may share the file. It contains no questions,
            and keeps answers until it is removed.
        max_input_tokens: maximum estimated tokens of a question; contexts and middle turns of a longer question are left out.
            None: the context window (100,000 if unknown) minus the room for the answer.
        max_attempts: maximum number of attempts, including the first; None: 4 for a chat model.
        max_concurrency: maximum number of concurrent questions of a chat model's account. The limiter adapts the actual
            concurrency and never exceeds this maximum. None: 64, or 1 for a model that runs in this process.
        timeout: seconds for one attempt, without the wait before it; None: 30 for a chat model.
        queue_timeout: seconds since this process received the unit (without a unit: since the question was asked) after which
            a question that waits for its account is not sent any more; None: 600.
        requests_per_minute: limit of the account; None = only the provider's rate-limit headers, if any.
        tokens_per_minute: limit of the account, input and output tokens; None = only the provider's rate-limit headers, if
            any.
        prices: model name in the provider's answers → USD per million tokens (input, output), such as
            ``{"gpt-4o-mini": (0.15, 0.60)}``. This price also applies to ``gpt-4o-mini-2024-07-18``. Answers of unlisted
            models have no cost. spanscore includes no prices, because they would become outdated.

    Raises:
        ConfigurationError: the model is unknown, a setting is invalid, or a library is missing (the message has the
            ``pip install`` line).
    """
    if fallback := effects.pop("fallback", None):
        inherited_settings = {
            "structured": structured,
            "prompt_order": prompt_order,
            "prompt_cache": prompt_cache,
            "images": images,
            **effects,
        }
        effects["fallback"] = [_fallback_judge(model, inherited_settings) for model in fallback]
    client: ClientSettings = {
        "base_url": base_url,
        "api_key_env": api_key_env,
        "api_key_file": api_key_file,
        "model_kwargs": model_kwargs,
    }
    if model == "lexical" or not isinstance(model, str):
        _refuse_client(client)
    if model == "lexical":
        return _OFFLINE
    if isinstance(model, str):
        if not model.strip():
            raise ConfigurationError("judge is empty. Use 'provider:model', a chat model, or 'lexical'")
        model = named_model(model.strip(), **client)
    if callable(getattr(model, "ask", None)):
        return wrap_judge(model, effects)
    timeout = effects.get("timeout")
    bounds: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    inner = LangChainJudge(
        model, structured=structured, prompt_order=prompt_order, prompt_cache=prompt_cache, images=images, **bounds
    )
    return wrap_judge(inner, effects, chat_model=True)


def _fallback_judge(model: Any, settings: Mapping[str, Any]) -> Judge:
    if isinstance(model, Mapping):
        return budgeted(judge(**{**settings, **model}))
    ignored = _LIMITER_KEYWORDS if limiters_of(model) else ()  # a judge with its own limiter keeps its limits
    return budgeted(judge(model, **{name: value for name, value in settings.items() if name not in ignored}))


def _refuse_client(client: ClientSettings) -> None:
    names = [name for name, value in client.items() if value]
    if names:
        raise ConfigurationError(
            f"{names[0]} applies only to a judge given as 'provider:model': no client is made for this judge"
        )


def shared_judge(model: Any) -> Judge:
    """Return ``judge(model)``; calls with the same chat model return the same judge, so that metrics share its limits.

    A shared judge has no prices. To use prices, create the judge with ``judge(model, prices=…)``.
    """
    if isinstance(model, str) or callable(getattr(model, "ask", None)):
        return judge(model)
    shared = _shared.get(id(model))
    if shared is None:
        shared = _shared[id(model)] = judge(model)
    return shared


def wrap_judge(judge: Judge, settings: Mapping[str, Any], *, chat_model: bool = False) -> Judge:
    """Return a judge wrapped in the middleware that has a setting.

    Args:
        settings: keyword → setting; None counts as missing.
        chat_model: whether it has the layers of a chat model even without a setting.

    Raises:
        TypeError: a keyword is unknown.
        ConfigurationError: a setting is invalid.
    """
    settings = _check_settings(judge, settings)
    if chat_model:
        settings = {"cache": None, _WAIT: PROMPT_CACHE_WAIT_S, **settings}  # a run may bring a cache of answers
    limits, has_limiter = _limits_in(settings), bool(limiters_of(judge))
    if limits and has_limiter:  # a question would occupy a place in one limiter while it waits for a place in the other
        raise ConfigurationError(
            f"{min(limits)} is given around a judge that has its limits: give it to the call that creates that judge"
        )
    if settings and not has_limiter:  # ``Priced`` is the innermost layer, so that each attempt is paid for
        settings = {"prices": {}, **settings}
    judge = _wrap(judge, settings, _INSIDE_LIMITS)
    needs_breaker = chat_model or ("fallback" in settings and not has_limiter)
    if needs_breaker or limits:
        judge = RateLimited(judge, **{**({} if needs_breaker else _OWN_JUDGE_DEFAULTS), **limits})
    # A budget is outside of the waits, and inside of cache and fallback; without cache and fallback, ``judges/ask.py`` adds it.
    judge = budgeted(judge) if {"cache", "fallback"} & settings.keys() else judge
    return _wrap(with_batched_votes(_with_wait(judge, settings)), settings, _OUTSIDE_LIMITS)


def _with_wait(judge: Judge, settings: Mapping[str, Any]) -> Judge:
    """Return a judge with one layer that waits for the first question. With two layers, a question would wait for itself."""
    has_wait = any(isinstance(layer, CacheFilled) for layer in layers(judge))
    return judge if has_wait else _wrap(judge, settings, [_WAIT])


def _check_settings(judge: Judge, settings: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := settings.keys() - _OUTERMOST_FIRST.keys():
        raise TypeError(f"judge() got an unexpected keyword argument {min(unknown)!r}; it takes {_KEYWORDS}")
    present = {keyword: setting for keyword, setting in settings.items() if setting is not None}
    if present and hasattr(judge, "jurors"):
        raise ConfigurationError(f"{min(present)} is given around a jury: give it to the jury's own judges")
    return present


def _limits_in(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {keyword: settings[keyword] for keyword in _LIMITER_KEYWORDS if keyword in settings}


def _wrap(judge: Judge, settings: Mapping[str, Any], keywords: Sequence[str]) -> Judge:
    for keyword in reversed(keywords):
        if keyword in settings:
            judge = _OUTERMOST_FIRST[keyword](judge, settings[keyword])
    return judge
