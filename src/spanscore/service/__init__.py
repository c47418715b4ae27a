"""``spanscore serve``: OTLP in over gRPC and HTTP, scores out."""
