"""Create judges from a chat model, a model name or another judge, and wrap them in the configured middleware."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack
from weakref import WeakValueDictionary

from spanscore.core.prompt import PromptOrder
from spanscore.errors import ConfigurationError
from spanscore.judges.effects.cost import budgeted
from spanscore.judges.effects.limited import gates_of
from spanscore.judges.effects.stack import MiddlewareSettings, stacked, without_limits
from spanscore.judges.langchain.chat import LangChainJudge, Structured
from spanscore.judges.langchain.models import ClientSettings, named_model
from spanscore.judges.lexical.judge import LexicalJudge
from spanscore.protocols import Judge

# The key is the model's id: a judge keeps its model alive, so the id is not reused while the entry exists.
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
    **effects: Unpack[MiddlewareSettings],
) -> Judge:
    """Return a judge. All judges that ask the same account share its limits, however they were created.

    Args:
        model: a LangChain chat model; a model name in the syntax of ``init_chat_model`` (``"openai:gpt-4o-mini"``);
            ``"lexical"`` for the offline judge; or a Judge, which is returned unchanged, or wrapped as configured here.
        base_url: endpoint of a model that is given by name; None: the provider's usual address. With another address, the
            application's key is not sent there.
        api_key_env: environment variable with the key of a model that is given by name.
        api_key_file: path of a file with the key of a model that is given by name.
        model_kwargs: further arguments of a model that is given by name, such as ``{"temperature": 0}``.
        structured: mode of structured output of a chat model: ``auto`` (its integration's choice; text if the provider
            supports none), ``schema``, ``tools``, ``json``, or ``text``.
        prompt_order: ``evidence_first``: questions about one sample begin with it, and a provider's cache serves all of them.
            ``instruction_first``: the instruction comes before the sample. The order is part of every metric's version.
        prompt_cache: whether the provider's cache serves questions of a unit with the same beginning. Such questions have no
            schema, which would come before the sample: OpenAI's are in JSON mode with ``prompt_cache_key``, Anthropic's in
            text with ``cache_control``.
        prompt_cache_wait: longest wait, in seconds, of questions with a cacheable beginning for the first one's answer;
            None: 2 for a chat model; 0: no wait.
        fallback: judges, models or their names, or mappings of arguments of this function (``{"model": …, "base_url": …}``),
            asked in their order while the judge is away (its breaker is open). Scores of a fallback have their own evaluator
            version. Other arguments given here also apply to each fallback, except address, key and ``model_kwargs``, and
            except limits for a judge with its own.
        cache: ``"memory"``: a question that was answered within the last hour is not asked again, and its answer costs nothing;
            or the path of a file, which processes may share, and which keeps answers (never questions) until it is removed.
        max_input_tokens: maximum estimated tokens of one question; contexts and middle turns of a longer one are left out.
            None: the model's window, or 100,000 if it is unknown, less room for the answer.
        max_attempts: most attempts, the first one included; None: 4 for a chat model.
        max_concurrency: most concurrent questions of a chat model's account, which adapts its own level below it; None: 64, or
            1 for a model that runs in this process.
        timeout: seconds for one attempt, waiting not counted; None: 30 for a chat model.
        queue_timeout: longest wait of a question for its account, in seconds; None: 600.
        requests_per_minute: limit of the account; None: only the provider's rate-limit headers, if any.
        tokens_per_minute: limit of the account, input and output tokens; None: only the provider's rate-limit headers, if any.
        prices: model name in the provider's answers → USD per million tokens (input, output), such as
            ``{"gpt-4o-mini": (0.15, 0.60)}``, which is the price of ``gpt-4o-mini-2024-07-18`` too. Answers of unlisted models
            have no cost; spanscore includes no prices, as they would become outdated.

    Raises:
        ConfigurationError: the model is unknown, a setting is invalid, or a library is missing (the message has the
            ``pip install`` line).
    """
    if fallback := effects.pop("fallback", None):
        likewise = {"structured": structured, "prompt_order": prompt_order, "prompt_cache": prompt_cache, **effects}
        effects["fallback"] = [_stand_in(one, likewise) for one in fallback]
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
    inner = LangChainJudge(model, structured=structured, prompt_order=prompt_order, prompt_cache=prompt_cache, **bounds)
    return stacked(inner, effects, chat_model=True)


def _stand_in(asked: Any, settings: Mapping[str, Any]) -> Judge:
    if isinstance(asked, Mapping):
        return budgeted(judge(**{**settings, **asked}))
    return budgeted(judge(asked, **(without_limits(settings) if gates_of(asked) else settings)))


def _refuse_client(client: ClientSettings) -> None:
    given = [name for name, value in client.items() if value]
    if given:
        raise ConfigurationError(
            f"{given[0]} is for a judge that is given as 'provider:model': this one has no client to make"
        )


def shared_judge(model: Any) -> Judge:
    """Return ``judge(model)``, the same judge for the same chat model: metrics that share a model share its limits."""
    if isinstance(model, str) or callable(getattr(model, "ask", None)):
        return judge(model)
    known = _shared.get(id(model))
    if known is None:  # without prices: judge(model, prices=…) creates a judge with prices
        known = _shared[id(model)] = judge(model)
    return known
