"""What judges said beside their verdicts → rows of ``status()``: to what a metric applies, and what contradicts itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from spanscore.monitoring.health import Applicability

__all__ = ["applies_rows", "contradiction_rows"]


def applies_rows(applies: Mapping[str, Applicability | None]) -> Iterator[str]:
    """Yield a row per metric with a condition."""
    for metric, share in applies.items():
        yield f"{metric} {'has judged nothing to which it might apply' if share is None else share}"


def contradiction_rows(contradictions: Mapping[str, int]) -> Iterator[str]:
    """Yield a row per metric whose judges spoke against their own verdicts."""
    for metric, verdicts in contradictions.items():
        what = "1 verdict contradicts its" if verdicts == 1 else f"{verdicts:,} verdicts contradict their"
        yield f"{metric}: {what} own reason; nothing was changed, read some (spanscore.judge.self_contradictions on the spans)"
