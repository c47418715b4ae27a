"""Destinations of scores: sinks, OpenTelemetry providers, instruments and collected cases. No sampling decisions."""
