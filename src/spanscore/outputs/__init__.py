"""Sinks, OpenTelemetry providers, instruments and collected cases; no decision on what is scored."""
