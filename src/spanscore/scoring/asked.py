"""The accounts that a metric asks, and the lane of metrics that it waits with."""

from __future__ import annotations

from collections.abc import Hashable

from spanscore.judges.effects.middleware import account_of
from spanscore.protocols import Metric

__all__ = ["accounts_asked", "asks_a_judge", "lane_of"]


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
