"""Long-running services: ``serve``, ``worker``, the OTLP proxy and the Kafka source. The commands are in ``cli/``."""
