"""Spans that other instrumentations make in this process → units."""
