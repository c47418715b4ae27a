"""A chat model or embeddings → the account that answers for it: whom it asks, at which address, with whose key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any
from urllib.parse import urlsplit

from spanscore.core.log import module_of, type_name
from spanscore.judges.effects.account import Account

__all__ = ["account_of_model", "is_in_process", "model_name"]

_SALT = os.urandom(16)
"""Of this process: outside of it a hash says nothing of the key, and cannot be looked up."""
_NAMES = ("model_name", "model", "model_id", "deployment_name")
_ADDRESSES = ("base_url", "api_base", "azure_endpoint", "endpoint_url", "endpoint", "anthropic_api_url", "host", "url")
_WHOSE = ("openai_organization", "default_headers", "credentials_profile_name", "project")
"""Beside its key, what tells an account from another at the same address."""


def account_of_model(model: Any) -> Account:
    """Return the account of a chat model or embeddings. Equal objects, and objects of one name, have the same.

    What has neither address nor key is nobody's service: such an object is an account of its own.
    """
    address, key = _address(model), _key(model)
    return Account(_provider(model), model_name(model), address, key if address or key else f"object {id(model)}")


def is_in_process(model: Any) -> bool:
    """Whether a model computes in this process: it has neither address nor key. Of a runnable that is no model nobody knows."""
    is_model = hasattr(model, "_llm_type") or hasattr(model, "embed_documents")
    return is_model and not _address(model) and not _key(model)


def model_name(model: Any) -> str:
    """Return a model's configured name; its class where it has none."""
    named = (getattr(model, attribute, None) for attribute in _NAMES)
    return next((name for name in named if isinstance(name, str) and name), type_name(model))


def _provider(model: Any) -> str:
    """Return the provider in the word that the model's own spans have (``ls_provider``); its package where it says none."""
    says = getattr(model, "_get_ls_params", None)
    named = says().get("ls_provider") if callable(says) else None
    if named:
        return str(named)
    if getattr(model, "azure_endpoint", None):
        return "azure"
    package = module_of(type(model)).partition(".")[0]
    return package.removeprefix("langchain_") if package.startswith("langchain_") else type_name(model).lower()


def _address(model: Any) -> str:
    """Return host, port and path of where it asks; empty where nothing says. What may be secret in a URL stays out."""
    client = getattr(model, "root_client", None) or getattr(model, "client", None)
    clients = (client, getattr(client, "_client", None), getattr(client, "meta", None))  # Stainless's resources; boto's
    given = [getattr(one, name, None) for name in ("base_url", "endpoint_url") for one in clients]
    given += [getattr(model, name, None) for name in _ADDRESSES]
    address = next((str(one) for one in given if (isinstance(one, str) and one) or hasattr(one, "raw_path")), "")
    parts = urlsplit(address if "//" in address else f"//{address}")
    return f"{parts.netloc.rpartition('@')[2].lower()}{parts.path.rstrip('/')}"


def _key(model: Any) -> str:
    """Return a hash of all that is secret about it; of what makes keys, as a function does, which one it is."""
    secrets = sorted(_secrets(model))
    return blake2b(repr(secrets).encode(), key=_SALT, digest_size=16).hexdigest() if secrets else ""


def _secrets(model: Any) -> Iterator[tuple[str, str]]:
    for name in getattr(type(model), "model_fields", ()):
        value = getattr(model, name, None)
        if callable(reveal := getattr(value, "get_secret_value", None)):
            yield name, str(reveal())
        elif value and name in _WHOSE:
            yield name, repr(value)
        elif callable(value) and name.endswith(("_api_key", "_token_provider")):
            yield name, str(id(value))
