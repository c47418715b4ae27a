"""Receivers: runs, spans and samples come in by callback, span processor, OTLP, submit() or a store; no scoring."""
