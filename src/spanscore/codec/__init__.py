"""Foreign shapes ↔ ours: what LangChain hands to a callback, what the OpenTelemetry SDK keeps in a span."""
