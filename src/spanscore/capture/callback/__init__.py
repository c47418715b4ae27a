"""The receiver of LangChain's callbacks: the handler on the application's thread, the recorder on the span thread."""
