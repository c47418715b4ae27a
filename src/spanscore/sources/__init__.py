"""Where spans are kept → whole traces, still the bytes of OTLP: one file per store."""
