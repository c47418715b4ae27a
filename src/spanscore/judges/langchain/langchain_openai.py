"""``"openai:…"`` → OpenAI's chat model or embeddings, without the ``langchain`` package that other providers' names need."""

from __future__ import annotations

from typing import Any

from spanscore.errors import ConfigurationError, MissingExtraError

__all__ = ["openai_embeddings", "openai_model"]


def openai_model(model: str) -> Any:
    """Return OpenAI's chat model of this name, configured by its own environment variables.

    Raises:
        ConfigurationError: the library or its key is missing; the message says what to do.
    """
    return _made("ChatOpenAI", model, "judge")


def openai_embeddings(model: str) -> Any:
    """Return OpenAI's embeddings of this name, configured likewise.

    Raises:
        ConfigurationError: the library or its key is missing; the message says what to do.
    """
    return _made("OpenAIEmbeddings", model, "embeddings")


def _made(kind: str, model: str, role: str) -> Any:
    try:
        import langchain_openai
    except ImportError as error:
        raise MissingExtraError("langchain-openai", "openai") from error
    try:
        return getattr(langchain_openai, kind)(model=model)
    except Exception as error:  # a missing key, mostly: the client's message names the variable
        raise ConfigurationError(f"{role} 'openai:{model}' cannot be made: {error}") from error
