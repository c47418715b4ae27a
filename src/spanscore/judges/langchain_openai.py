"""``"openai:gpt-4o-mini"`` → ChatOpenAI, without the ``langchain`` package that other providers' names need."""

from __future__ import annotations

from typing import Any

from spanscore.errors import ConfigurationError, MissingExtraError

__all__ = ["openai_model"]


def openai_model(model: str) -> Any:
    """Return OpenAI's chat model of this name, configured by its own environment variables.

    Raises:
        ConfigurationError: the library or its key is missing; the message says what to do.
    """
    try:
        from langchain_openai import ChatOpenAI
    except ImportError as error:
        raise MissingExtraError("langchain-openai", "openai") from error
    try:
        return ChatOpenAI(model=model)
    except Exception as error:  # a missing key, mostly: the client's message names the variable
        raise ConfigurationError(f"judge 'openai:{model}' cannot be made: {error}") from error
