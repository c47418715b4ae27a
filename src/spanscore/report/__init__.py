"""Reports on scores and units: one HTML page, or a summary that a terminal can print."""

from spanscore.report.page import summary, write, write_scores
from spanscore.report.rows import ReportRow, WorstUnit
from spanscore.report.summaries import Bucket, FunnelStep, MetricSummary, ReportSummary, summarize

__all__ = [
    "Bucket",
    "FunnelStep",
    "MetricSummary",
    "ReportRow",
    "ReportSummary",
    "WorstUnit",
    "summarize",
    "summary",
    "write",
    "write_scores",
]
