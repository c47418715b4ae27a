"""What was played → one JSON-able object: the same figures as on the terminal, for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from spanscore.demo.results import Drop, Results, Trace, note_of
from spanscore.demo.run import Played
from spanscore.demo.scenario import STRETCHES

__all__ = ["summary"]


def summary(played: Played, results: Results, *, traces: int = 3) -> dict[str, Any]:
    """Return it. Means and intervals are on the quality scale, [0, 1], 1 good."""
    options, first = played.options, results.open_first()
    return {
        "requests": played.asked,
        "interrupted": played.interrupted,
        "seed": options.seed,
        "model": played.model,
        "rate": options.rate,
        "spans": len(played.spans),
        "eligible": dict(sorted(played.status.eligible.items())),
        "outcomes": {metric: dict(sorted(counts.items())) for metric, counts in sorted(played.status.outcomes.items())},
        "stretches": {stretch: _stretch(results, stretch) for stretch in STRETCHES if results.requests(stretch)},
        "notes": list(played.status.notes),
        "drops": [_drop(drop) for drop in results.drops()],
        "open_first": None if first is None else _trace(first),
        "worst": [_trace(trace) for trace in results.worst(traces)],
        "deliveries": played.deliveries,
    }


def _stretch(results: Results, stretch: str) -> dict[str, Any]:
    first, last = results.requests(stretch) or (0, 0)
    means = {metric: asdict(mean) for metric, mean in results.means[stretch].items()}
    return {"first": first, "last": last, "means": means}


def _drop(drop: Drop) -> dict[str, Any]:
    after = None if drop.after is None else drop.after.mean
    means = {"before": drop.before.mean, "during": drop.during.mean, "after": after}
    return {"metric": drop.metric, "by": drop.by, "clear": drop.clear, **means}


def _trace(trace: Trace) -> dict[str, Any]:
    return {
        "request": trace.number,
        "trace_id": trace.trace_id,
        "stretch": trace.stretch,
        "question": trace.question,
        "answer": trace.answer,
        "retrieved": list(trace.found),
        "scores": {one.metric: one.value for one in trace.evaluations},
        "notes": {one.metric: note_of(one) for one in trace.evaluations},
    }
