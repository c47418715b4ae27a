"""Scores and units → one HTML page, or a summary that a terminal can print."""

from spanscore.report.funnel import FunnelStep
from spanscore.report.ranking import Worst
from spanscore.report.rows import ReportRow
from spanscore.report.summaries import Bucket, MetricSummary, ReportSummary, summarize
from spanscore.report.writing import summary, write, write_scores

__all__ = [
    "Bucket",
    "FunnelStep",
    "MetricSummary",
    "ReportRow",
    "ReportSummary",
    "Worst",
    "summarize",
    "summary",
    "write",
    "write_scores",
]
