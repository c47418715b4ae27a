"""Whom a metric asks: what it waits for, and whom it waits with."""

from __future__ import annotations

import dis
from collections.abc import Hashable
from functools import cache
from inspect import CO_COROUTINE
from types import CodeType
from typing import Final

from spanscore.judges.effects.effect import account_of
from spanscore.protocols import Metric

__all__ = ["accounts_asked", "asks_a_judge", "awaits_nothing", "lane_of"]

_WAIT: Final = frozenset({"GET_AWAITABLE", "GET_ANEXT", "BEFORE_ASYNC_WITH", "SEND", "YIELD_FROM", "YIELD_VALUE"})
"""Instructions of which a coroutine has one wherever it awaits; some are of other Pythons than this."""


def accounts_asked(metric: Metric) -> tuple[Hashable, ...]:
    """Return the accounts of a metric's judge and embeddings; none for one that asks nobody, or by means of its own."""
    asked = (getattr(metric, name, None) for name in ("_judge", "_embedder"))
    return tuple(account_of(one) for one in asked if one is not None)


def asks_a_judge(metric: Metric) -> bool:
    """Whether a metric asks a judge or embeddings, also by means of its own that tell their model."""
    return bool(accounts_asked(metric) or getattr(metric, "_judge_model", ""))


def lane_of(metric: Metric) -> Hashable:
    """Return what metrics share that wait for the same answers, or compute in the same pool; else a metric's own name."""
    return accounts_asked(metric) or ("computes" if metric.cpu_bound else metric.name)


def awaits_nothing(metric: Metric) -> bool:
    """Whether a metric's ``score`` is written without an ``await``: then it is done where it is begun, and needs no task."""
    score = metric.score
    code = getattr(getattr(score, "__func__", score), "__code__", None)
    return isinstance(code, CodeType) and _awaits_nothing(code)


@cache
def _awaits_nothing(code: CodeType) -> bool:
    is_coroutine = bool(code.co_flags & CO_COROUTINE)
    return is_coroutine and _WAIT.isdisjoint(one.opname for one in dis.get_instructions(code))
