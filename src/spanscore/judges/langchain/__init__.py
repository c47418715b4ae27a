"""LangChain chat models and embeddings → judges and embedders."""
