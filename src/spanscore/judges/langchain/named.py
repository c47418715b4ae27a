"""``provider:model`` → LangChain's chat model or embeddings of this name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.judges.langchain.langchain_openai import openai

__all__ = ["named_embeddings", "named_model"]


def named_model(name: str) -> Any:
    """Return the chat model of this name, as ``init_chat_model`` reads it.

    Raises:
        ConfigurationError: a library is missing (the message holds the ``pip install`` line), or there is no such provider.
    """
    return _named(name, "judge", "ChatOpenAI", "langchain.chat_models", "init_chat_model")


def named_embeddings(name: str) -> Any:
    """Return the embeddings of this name, as ``init_embeddings`` reads it.

    Raises:
        ConfigurationError: likewise.
    """
    return _named(name, "embeddings", "OpenAIEmbeddings", "langchain.embeddings", "init_embeddings")


def _named(name: str, role: str, of_openai: str, module: str, maker: str) -> Any:
    provider, _, model = name.partition(":")
    if provider == "openai" and model:
        return openai(of_openai, model, role)
    try:
        make = getattr(import_module(module), maker)
    except ImportError as error:
        raise NotReadyError(f"{role} {name!r} needs LangChain. Install it with: pip install langchain") from error
    try:
        return make(name)
    except ImportError as error:  # names the provider's package and its pip line
        raise NotReadyError(f"{role} {name!r}: {error}") from error
    except Exception as error:
        what = f"{role} {name!r} cannot be made: {type(error).__name__}: {error}."
        raise ConfigurationError(f"{what} Use 'provider:model', the object itself, or 'lexical'") from error
