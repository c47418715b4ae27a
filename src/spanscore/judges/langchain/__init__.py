"""Judges and embedders that use LangChain chat models and embeddings."""
