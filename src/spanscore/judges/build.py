"""Create judges from a chat model, a model name or another judge, and wrap them in the configured middleware."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack
from weakref import WeakValueDictionary

from spanscore.core.prompt import PromptOrder
from spanscore.errors import ConfigurationError
from spanscore.judges.effects.cost import budgeted
from spanscore.judges.effects.limited import limiters_of
from spanscore.judges.effects.stack import MiddlewareSettings, stacked, without_limits
from spanscore.judges.langchain.chat import LangChainJudge, Structured
from spanscore.judges.langchain.models import ClientSettings, named_model
from spanscore.judges.lexical.judge import LexicalJudge
from spanscore.protocols import Judge

# The key is the model's id. A judge keeps its model alive, so the id is not reused while the entry exists.
_shared: WeakValueDictionary[int, Judge] = WeakValueDictionary()
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
        prompt_cache: whether the provider's cache serves questions of a unit with the same beginning. Such questions have no
            schema, because a schema would precede the sample. OpenAI receives them in JSON mode with ``prompt_cache_key``,
            Anthropic as text with ``cache_control``.
        images: whether the model gets the images of a sample. A model that does not gets their markers, and its scores have
            ``spanscore.judge.images_not_shown``. None = by the model's LangChain profile, or by its name if it has no profile.
        prompt_cache_wait: maximum seconds that questions with the same beginning wait until the first of them is answered;
            None: 2 for a chat model; 0: no wait.
        fallback: judges, models or their names, or mappings of arguments of this function (``{"model": …, "base_url": …}``),
            asked in their order while the judge's circuit breaker is open. Scores of a fallback have their own evaluator
            version. The other arguments of this call also apply to each fallback, except address, key and ``model_kwargs``.
            Limits do not apply to a judge that has its own limiter.
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
        return stacked(model, effects)
    timeout = effects.get("timeout")
    bounds: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    inner = LangChainJudge(
        model, structured=structured, prompt_order=prompt_order, prompt_cache=prompt_cache, images=images, **bounds
    )
    return stacked(inner, effects, chat_model=True)


def _fallback_judge(model: Any, settings: Mapping[str, Any]) -> Judge:
    if isinstance(model, Mapping):
        return budgeted(judge(**{**settings, **model}))
    inherited = without_limits(settings) if limiters_of(model) else settings  # a judge with its own limiter keeps it
    return budgeted(judge(model, **inherited))


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
