"""Chat model, name or judge → Judge, with effects around it."""

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

# Keyed by the model's id: a judge holds its model, so the id is taken for as long as the entry lives.
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
    """Return a judge. All that ask the same account share its limits, however they were made.

    Args:
        model: a LangChain chat model; the name of one as ``init_chat_model`` reads it (``"openai:gpt-4o-mini"``);
            ``"lexical"`` for the offline judge; or a Judge, which is returned as it is, or wrapped in what is asked for here.
        base_url: where a model that is given by name is asked; its provider's usual address when None. With one of its own, the
            application's key is not sent there.
        api_key_env: the variable of the environment that holds the key of a model that is given by name.
        api_key_file: the file that does.
        model_kwargs: what else a model that is given by name is made with: ``{"temperature": 0}``.
        structured: how a chat model is asked for the form of an answer: ``auto`` (its integration's way; in text, where the
            provider has none), ``schema``, ``tools``, ``json``, or ``text``.
        prompt_order: ``evidence_first``: questions about one sample begin with it, and a provider's cache serves all of them.
            ``instruction_first``: the instruction stands in front of the sample. A part of the version of every metric.
        prompt_cache: whether the provider's cache serves questions of a unit that begin alike. Such questions have no schema,
            which would stand in front of the sample: OpenAI's are in JSON mode with ``prompt_cache_key``, Anthropic's in text
            with ``cache_control``.
        prompt_cache_wait: seconds that such questions wait at most for the answer to the first of them; 2 around a chat model
            when None, 0 = none waits.
        fallback: judges, models or their names, or a mapping of arguments of this function (``{"model": …, "base_url": …}``),
            asked in their order while the judge is away (its breaker is open). What they say is an evaluator version of its
            own. What else is set here holds for each of them, but not address, key and parameters; nor limits for a judge that
            has its own.
        cache: ``"memory"``: a question that was answered within the last hour is not asked again, and its answer costs nothing;
            or the path of a file, which processes may share, and which keeps answers (never questions) until it is removed.
        max_input_tokens: tokens of one question, by estimate; of a longer one, contexts and middle turns are left out. None:
            the model's window, where it is known, else 100,000, less room for the answer.
        max_attempts: the first one included; 4 around a chat model when None.
        max_concurrency: the most questions at once of a chat model's account, which finds its own level below it; 64 when None,
            1 for a model that runs in this process.
        timeout: seconds for one attempt, waiting not counted; 30 around a chat model when None.
        queue_timeout: seconds after which a question waits no longer for its account; 600 when None.
        requests_per_minute: of the account, where its provider does not tell what is left.
        tokens_per_minute: likewise, of questions and answers.
        prices: model as its provider names it in the answer → USD per million tokens (input, output), such as
            ``{"gpt-4o-mini": (0.15, 0.60)}``, which is the price of ``gpt-4o-mini-2024-07-18`` too. What is not in it has no
            cost; spanscore brings no prices of its own, as they would age.

    Raises:
        ConfigurationError: there is no such model, a setting cannot be, or a library is missing (the message holds the
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
    """Return ``judge(model)``, the same one for the same chat model: metrics that share a model share its limits."""
    if isinstance(model, str) or callable(getattr(model, "ask", None)):
        return judge(model)
    known = _shared.get(id(model))
    if known is None:  # without prices: those who give some make their judge by judge(model, prices=…)
        known = _shared[id(model)] = judge(model)
    return known
