"""Stored samples → scores, with the same parts that score live traces."""

from spanscore.dataset.reading import Bad, read_samples
from spanscore.dataset.result import Result, Summary
from spanscore.dataset.rows import Row
from spanscore.dataset.scoring import Scoring, evaluate, evaluate_sync

__all__ = ["Bad", "Result", "Row", "Scoring", "Summary", "evaluate", "evaluate_sync", "read_samples"]
