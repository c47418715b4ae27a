"""Scores and units → one HTML page, or a summary that a terminal can print."""

from spanscore.report.ranking import Worst
from spanscore.report.rows import Row
from spanscore.report.summaries import Bucket, MetricSummary, Step, Summary, summarize
from spanscore.report.writing import summary, write, write_scores

__all__ = [
    "Bucket",
    "MetricSummary",
    "Row",
    "Step",
    "Summary",
    "Worst",
    "summarize",
    "summary",
    "write",
    "write_scores",
]
