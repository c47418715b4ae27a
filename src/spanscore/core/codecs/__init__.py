"""Codecs: JSON, GenAI messages, LangChain values, stored samples and OTLP ↔ the values of ``core``."""
