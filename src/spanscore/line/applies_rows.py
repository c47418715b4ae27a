"""What judges said beside their verdicts → rows of ``status()``: to how much of traffic a metric with a condition applies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from spanscore.monitoring.applicability import Applicability

__all__ = ["applies_rows"]


def applies_rows(applies: Mapping[str, Applicability | None]) -> Iterator[str]:
    """Yield a row per metric with a condition."""
    for metric, share in applies.items():
        yield f"{metric} {'has judged nothing to which it might apply' if share is None else share}"
