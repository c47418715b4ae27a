"""Spans of other libraries → spans in GenAI names, one file per way of writing them."""
