"""``"openai:…"`` → OpenAI's chat model or embeddings, without the ``langchain`` package that other providers' names need."""

from __future__ import annotations

from typing import Any

from spanscore.errors import ConfigurationError, MissingExtraError

__all__ = ["openai"]


def openai(kind: str, model: str, role: str) -> Any:
    """Return OpenAI's chat model or embeddings of this name, configured by their own environment variables.

    Args:
        kind: the library's class.
        model: its model.
        role: what it is wanted for, in messages.

    Raises:
        ConfigurationError: the library or its key is missing; the message says what to do.
    """
    try:
        import langchain_openai
    except ImportError as error:
        raise MissingExtraError("langchain-openai", "openai") from error
    try:
        return getattr(langchain_openai, kind)(model=model)
    except Exception as error:  # a missing key, mostly: the client's message names the variable
        raise ConfigurationError(f"{role} 'openai:{model}' cannot be made: {error}") from error
