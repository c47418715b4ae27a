"""Chat model, name or judge → Judge, with limits around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from spanscore.errors import ConfigurationError
from spanscore.judges.effects.limits import Limited, Retrying, Timed
from spanscore.judges.langchain.chat import LangChainJudge, named_model
from spanscore.judges.langchain.langchain_openai import openai_model
from spanscore.judges.lexical.judge import LexicalJudge
from spanscore.judges.prices import Priced
from spanscore.protocols import Judge

__all__ = ["judge", "reads_instructions", "shared_judge"]

_MAX_CONCURRENCY = 16
_TIMEOUT_S = 30.0
_ATTEMPTS = 3

# Keyed by the model's id: a judge holds its model, so the id is taken for as long as the entry lives.
_shared: WeakValueDictionary[int, Retrying] = WeakValueDictionary()


def judge(
    model: Any,
    *,
    max_concurrency: int | None = None,
    timeout: float | None = None,
    attempts: int | None = None,
    structured: bool = True,
    prices: Mapping[str, Sequence[float]] | None = None,
) -> Judge:
    """Return a judge. Metrics that are given the same one share its limits.

    Args:
        model: a LangChain chat model; the name of one as ``init_chat_model`` reads it (``"openai:gpt-4o-mini"``);
            ``"lexical"`` for the offline judge; or a Judge, which is returned as it is, or wrapped in what is asked for here.
        max_concurrency: questions at once; 16 when None.
        timeout: seconds for one attempt, waiting for a place not counted; 30 when None.
        attempts: the first one included; 3 when None.
        structured: False asks a chat model in plain text from the start.
        prices: model as its provider names it in the answer → USD per million tokens (input, output), such as
            ``{"gpt-4o-mini": (0.15, 0.60)}``, which is the price of ``gpt-4o-mini-2024-07-18`` too. What is not in it has no
            cost; spanscore brings no prices of its own, as they would age.

    Raises:
        ConfigurationError: it is none of these, a price is none, or its library is missing (the message holds the
            ``pip install`` line).
    """
    if model == "lexical":
        return LexicalJudge()
    if isinstance(model, str):
        model = _chat_model(model.strip())
    if not callable(getattr(model, "ask", None)):
        model = LangChainJudge(model, structured=structured)
        max_concurrency = _MAX_CONCURRENCY if max_concurrency is None else max_concurrency
        timeout = _TIMEOUT_S if timeout is None else timeout
        attempts = _ATTEMPTS if attempts is None else attempts
    wrapped: Judge = model if prices is None else Priced(model, prices)
    wrapped = wrapped if timeout is None else Timed(wrapped, timeout)
    wrapped = wrapped if max_concurrency is None else Limited(wrapped, max_concurrency)
    return wrapped if attempts is None else Retrying(wrapped, attempts)


def shared_judge(model: Any) -> Judge:
    """Return ``judge(model)``, the same one for the same chat model: metrics that share a model share its limits."""
    if isinstance(model, str) or callable(getattr(model, "ask", None)):
        return judge(model)
    known = _shared.get(id(model))
    if known is None:  # without prices: those who give some make their judge by judge(model, prices=…)
        known = Retrying(Limited(Timed(LangChainJudge(model), _TIMEOUT_S), _MAX_CONCURRENCY), _ATTEMPTS)
        _shared[id(model)] = known
    return known


def reads_instructions(judge: Judge) -> bool:
    """Whether a judge goes by what a question says, as a model does, and not by the name of its step (``protocols.Judge``)."""
    while isinstance(judge, Limited | Priced | Retrying | Timed):
        judge = judge.judge
    return getattr(judge, "reads_instructions", False) is True


def _chat_model(name: str) -> Any:
    """Return LangChain's chat model of this name (``provider:model``)."""
    if not name:
        raise ConfigurationError("judge is empty. Use 'provider:model', a chat model, or 'lexical'")
    provider, _, model = name.partition(":")
    return openai_model(model) if provider == "openai" and model else named_model(name)
