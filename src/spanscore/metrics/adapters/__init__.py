"""Metrics of other libraries as metrics of ours: one file per library."""
