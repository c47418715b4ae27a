"""Spans of other libraries → spans in GenAI names: one file per instrumentation."""
