"""``provider:model`` → LangChain's chat model or embeddings of this name."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Unpack

from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.judges.langchain.client_settings import ClientSettings, client_settings
from spanscore.judges.langchain.langchain_openai import openai
from spanscore.judges.langchain.provider_errors import without_input

__all__ = ["named_embeddings", "named_model"]


def named_model(name: str, **client: Unpack[ClientSettings]) -> Any:
    """Return the chat model of this name, as ``init_chat_model`` reads it.

    Raises:
        ConfigurationError: a library is missing (the message holds the ``pip install`` line), there is no such provider, or it
            cannot be made with these settings.
    """
    made_with = client_settings(name.partition(":")[0], client)
    return _named(name, "judge", "ChatOpenAI", "langchain.chat_models", "init_chat_model", made_with)


def named_embeddings(name: str) -> Any:
    """Return the embeddings of this name, as ``init_embeddings`` reads it.

    Raises:
        ConfigurationError: likewise.
    """
    return _named(name, "embeddings", "OpenAIEmbeddings", "langchain.embeddings", "init_embeddings", {})


def _named(name: str, role: str, of_openai: str, module: str, maker: str, made_with: dict[str, Any]) -> Any:
    provider, _, model = name.partition(":")
    if provider == "openai" and model:
        return openai(of_openai, model, role, made_with)
    try:
        make = getattr(import_module(module), maker)
    except ImportError as error:
        raise NotReadyError(f"{role} {name!r} needs LangChain. Install it with: pip install langchain") from error
    try:
        return make(name, **made_with)
    except ImportError as error:  # names the provider's package and its pip line
        raise NotReadyError(f"{role} {name!r}: {error}") from error
    except Exception as error:
        what = f"{role} {name!r} cannot be made: {type(error).__name__}: {without_input(error)}."
        raise ConfigurationError(f"{what} Use 'provider:model', the object itself, or 'lexical'") from error
