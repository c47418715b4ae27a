"""LangChain callbacks → spans: the handler on the application's thread, the recorder on the span thread."""
