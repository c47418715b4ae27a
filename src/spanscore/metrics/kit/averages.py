"""Counts and ranks → one number: the averages that several metrics share. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from spanscore.errors import ConfigurationError

__all__ = ["Mode", "average_precision", "beta_wanted", "f_beta", "f_beta_of_counts", "ratio"]


Mode = Literal["f1", "precision", "recall"]


def ratio(part: float, whole: float) -> float:
    """Return part / whole, 0 where the whole is 0."""
    return part / whole if whole else 0.0


def f_beta(precision: float, recall: float, *, beta: float = 1.0) -> float:
    """Return the weighted harmonic mean of precision and recall, 0…1; 0 when both are 0.

    Args:
        precision: 0…1.
        recall: 0…1.
        beta: above 0; how many times as much recall counts as precision. 1 = both the same.

    Source: van Rijsbergen, "Information Retrieval" (1979), chapter 7.
    """
    return ratio((1 + beta**2) * precision * recall, beta**2 * precision + recall)


def f_beta_of_counts(right: int, wrong: int, missed: int, *, beta: float = 1.0) -> float:
    """Return ``f_beta`` of true positives, false positives and false negatives; a share of nothing is 0."""
    return f_beta(ratio(right, right + wrong), ratio(right, right + missed), beta=beta)


def beta_wanted(beta: float) -> float:
    """Return a beta as a float.

    Raises:
        ConfigurationError: it is not a number above 0.
    """
    if isinstance(beta, bool) or not isinstance(beta, int | float) or not 0 < beta < float("inf"):
        raise ConfigurationError(f"beta is {beta!r}; it is a number above 0: more than 1 favours recall")
    return float(beta)


def average_precision(relevant: Sequence[bool]) -> float | None:
    """Return the mean, over the relevant ranks, of the share of relevant items up to that rank; 0…1.

    Args:
        relevant: one flag per item, best rank first.

    Returns:
        0 when no item is relevant, None when there is no item.

    Source: Manning, Raghavan and Schütze, "Introduction to Information Retrieval" (2008), section 8.4, over the retrieved
    relevant items alone: relevant ones that were not retrieved are unknown.
    """
    if not relevant:
        return None
    ranks = [rank for rank, flag in enumerate(relevant, 1) if flag]
    return ratio(sum(found / rank for found, rank in enumerate(ranks, 1)), len(ranks))
