"""The receivers, which accept runs, spans and samples: by callback, span processor, OTLP, submit() or a store."""
