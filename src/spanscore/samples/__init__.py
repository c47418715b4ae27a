"""Spans → samples: normalizers per instrumentation, extractors per field; no score."""
