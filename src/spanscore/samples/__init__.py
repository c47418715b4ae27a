"""Makes samples from spans: one normalizer per instrumentation, one extractor per field. No scores."""
