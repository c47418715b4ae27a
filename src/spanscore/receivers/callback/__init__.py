"""Live runs → spans: the callback handler on the application's thread, the recorder on the span thread."""
