"""The reference cases of tests/data/vectors, and functions that run them (the README there describes both)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spanscore.core.sample import MultiTurnSample, Sample, SingleTurnSample
from spanscore.core.score import Score
from spanscore.metrics.catalog.registry import RENAMED, built_ins
from spanscore.testing import ScriptedEmbeddings, ScriptedJudge, build_metric

VECTORS = Path(__file__).parents[1] / "data" / "vectors"
FUNCTIONS = ("ensember", "ragas_score")
"""Files about a function rather than a metric."""
_FILE = {name: before for before, name in RENAMED.items()}
"""Metric → its file, if the file has the metric's earlier name."""


def content_of(name: str) -> dict[str, Any]:
    """Return a file; without one, a file without cases: a metric of our own."""
    file = VECTORS / f"{_FILE.get(name, name)}.json"
    return dict(json.loads(file.read_text("utf-8"))) if file.exists() else {"metric": name, "cases": []}


def cases_of(name: str) -> list[dict[str, Any]]:
    """Return the cases of a file."""
    return list(content_of(name)["cases"])


def metrics_with_cases() -> Iterator[str]:
    """Yield the names of the metrics that have a file."""
    yield from (name for name in sorted(built_ins()) if cases_of(name))


def run(name: str, case: dict[str, Any], judge: ScriptedJudge) -> Score:
    """Score a case's sample; raises only for an invalid parameter or conversation."""
    embeddings = ScriptedEmbeddings(case.get("embeddings") or {})
    metric: Any = build_metric(name, judge=judge, embeddings=embeddings, **case["params"])
    score: Score = metric.score_sync(_sample(case["sample"]))
    return score


def _sample(fields: dict[str, Any]) -> Sample:
    kind = MultiTurnSample if isinstance(fields.get("user_input"), list) else SingleTurnSample
    return kind.model_validate(fields)
