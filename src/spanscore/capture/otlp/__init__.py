"""Spans that arrive as OTLP requests, from any language → units."""
