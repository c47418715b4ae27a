"""Create LangChain's chat model or embeddings from ``provider:model``, and read a model's key, address and account."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict, Unpack
from urllib.parse import urlsplit

from pydantic import SecretStr

from spanscore.config.credentials import HOW_TO_GIVE
from spanscore.core.log import module_of, type_name
from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.judges.effects.account import Account
from spanscore.judges.langchain.errors import without_input
from spanscore.judges.langchain.langchain_openai import openai

KEYS: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "azure_openai": ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"),
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "fireworks": ("FIREWORKS_API_KEY",),
    "google_genai": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "mistralai": ("MISTRAL_API_KEY",),
    "nvidia": ("NVIDIA_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
    "perplexity": ("PPLX_API_KEY", "PERPLEXITY_API_KEY"),
    "together": ("TOGETHER_API_KEY",),
    "xai": ("XAI_API_KEY",),
}
"""Provider → environment variables of its key, as LangChain's integrations read them; one of them is enough.

Providers that are not listed take credentials of another kind."""


def missing_key(name: str) -> str | None:
    """Return the environment variables, joined by "or", one of which must be set; None if one is, or for unknown providers."""
    provider, colon, _ = name.strip().partition(":")
    wanted = KEYS.get(provider, ()) if colon else ()
    return None if not wanted or any(os.environ.get(key) for key in wanted) else " or ".join(wanted)


_SEPARATE_SETTINGS = ("model", "base_url")
_PLACEHOLDER_KEY = "none"
"""Key for a client that requires a key, if the server requires none."""


class ClientSettings(TypedDict, total=False):
    """Keywords of ``judge()`` for the client of a model that is given by name."""

    base_url: str | None
    api_key_env: str | None
    api_key_file: str | Path | None
    model_kwargs: Mapping[str, Any] | None


def _check_address(address: str) -> None:
    parts = urlsplit(address)
    if parts.username or parts.password:
        raise ConfigurationError(f"base_url holds a password; {HOW_TO_GIVE}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"base_url is {address!r}; it is http://… or https://…")


def _read_key(variable: str | None, file: str | Path | None) -> str | None:
    if variable is not None and file is not None:
        raise ConfigurationError("api_key_env and api_key_file are both given; one of them holds the key")
    if variable is not None:
        if not re.fullmatch(r"[A-Za-z_]\w*", variable):  # not quoted, because the name may be the key itself
            raise ConfigurationError(
                "api_key_env names no variable of the environment; write a name, such as JUDGE_API_KEY"
            )
        key = os.environ.get(variable, "").strip()
        if not key:
            named = f"{variable} is" if variable.isupper() else "it is"
            raise NotReadyError(f"api_key_env names a variable, but {named} not set in the environment")
        return key
    if file is None:
        return None
    path = Path(file)
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise NotReadyError(f"api_key_file: {path} cannot be read: {why}") from None
    if len(key.split()) != 1:
        raise NotReadyError(f"api_key_file: {path} holds {'more than a' if key else 'no'} key")
    return key


def named_model(name: str, **client: Unpack[ClientSettings]) -> Any:
    """Create the chat model of a name. The name has the syntax of ``init_chat_model``.

    If ``base_url`` is set, no key of ``KEYS`` is sent there: only a key configured for this judge, or ``none`` if the client
    requires a key. The name must then have a provider, because LangChain would guess one and send that provider's key.

    Raises:
        ConfigurationError: the provider is unknown, or a setting is invalid; no message contains a key.
        NotReadyError: a library is missing (the message has the ``pip install`` line), or the configured variable or file does
            not contain a key.
    """
    arguments = dict(client.get("model_kwargs") or {})
    for argument in arguments:
        if argument.endswith("api_key"):
            raise ConfigurationError(f"model_kwargs names {argument!r}; {HOW_TO_GIVE}")
        if argument in _SEPARATE_SETTINGS:
            raise ConfigurationError(
                f"model_kwargs contains {argument!r}, which is a setting of its own: move it one level up"
            )
    key = _read_key(client.get("api_key_env"), client.get("api_key_file"))
    if (address := client.get("base_url")) is not None:
        _check_address(address)
        provider, _, model = name.partition(":")
        if not model:
            raise ConfigurationError(
                f"base_url applies only to a judge given as 'provider:model', such as 'openai:{name}'"
            )
        arguments["base_url"] = address
        key = key or (_PLACEHOLDER_KEY if provider.replace("-", "_").lower() in KEYS else None)
    if key is not None:
        arguments["api_key"] = SecretStr(key)
    return _create(name, "judge", "ChatOpenAI", "langchain.chat_models", "init_chat_model", arguments)


def named_embeddings(name: str) -> Any:
    """Create the embeddings of a name. The name has the syntax of ``init_embeddings``.

    Raises:
        ConfigurationError: the provider is unknown.
        NotReadyError: a library is missing (the message has the ``pip install`` line).
    """
    return _create(name, "embeddings", "OpenAIEmbeddings", "langchain.embeddings", "init_embeddings", {})


def _create(name: str, role: str, openai_class: str, module: str, factory_name: str, arguments: dict[str, Any]) -> Any:
    provider, _, model = name.partition(":")
    if provider == "openai" and model:
        return openai(openai_class, model, role, arguments)
    try:
        make = getattr(import_module(module), factory_name)
    except ImportError as error:
        raise NotReadyError(f"{role} {name!r} needs LangChain. Install it with: pip install langchain") from error
    try:
        if "base_url" in arguments:  # LangChain must not guess the provider, whose key it would send there
            return make(model, model_provider=provider, **arguments)
        return make(name, **arguments)
    except ImportError as error:  # names the provider's package and its pip line
        raise NotReadyError(f"{role} {name!r}: {error}") from error
    except Exception as error:
        what = f"{role} {name!r} cannot be made: {type(error).__name__}: {without_input(error).rstrip('.')}."
        raise ConfigurationError(f"{what} Use 'provider:model', the object itself, or 'lexical'") from error


_SALT = os.urandom(16)
"""Random salt of this process, so that hashes of two processes never match, and no key can be recovered from one."""
_NAME_FIELDS = ("model_name", "model", "model_id", "deployment_name")
_URLS = ("base_url", "api_base", "azure_endpoint", "endpoint_url", "endpoint", "anthropic_api_url", "host", "url")
"""Fields that contain the address of a model."""
_OWNER_FIELDS = ("openai_organization", "default_headers", "credentials_profile_name", "project")
"""Fields that, besides the key, distinguish two accounts at the same address."""


def account_of_model(model: Any) -> Account:
    """Return the account of a chat model or embeddings.

    Two objects have the same account if provider, model, address and secrets are equal. An object with neither address nor
    secret has an account of its own.
    """
    address, key = _address(model), _hash_secrets(model)
    return Account(_provider(model), model_name(model), address, key if address or key else f"object {id(model)}")


def is_in_process(model: Any) -> bool:
    """Return whether a model has neither an address nor a key, and so seems to run in this process. False for a runnable that
    is no model.
    """
    is_model = hasattr(model, "_llm_type") or hasattr(model, "embed_documents")
    return is_model and not _address(model) and not _hash_secrets(model)


def model_name(model: Any) -> str:
    """Return a model's configured name, or the name of its class if no name is configured."""
    names = (getattr(model, attribute, None) for attribute in _NAME_FIELDS)
    return next((name for name in names if isinstance(name, str) and name), type_name(model))


_IMAGE_MODELS = re.compile(
    r"gpt-4o|gpt-4\.1|gpt-4-turbo|gpt-5|gpt-6|claude-|gemini-|gemma-3|gemma-4|llama-4|pixtral|llava|vision|-vl|2\.5vl"
)
"""Parts of the names of models that read images, for models without a LangChain profile."""


def profile_of(model: Any) -> Mapping[str, Any]:
    """Return the LangChain profile of a chat model; empty without one."""
    profile = getattr(model, "profile", None)
    return profile if isinstance(profile, Mapping) else {}


def takes_images(model: Any) -> bool:
    """Whether a chat model reads images: by its LangChain profile, or by its name if the profile does not state it."""
    stated = profile_of(model).get("image_inputs")
    if isinstance(stated, bool):
        return stated
    return _IMAGE_MODELS.search(model_name(model).lower()) is not None


def _provider(model: Any) -> str:
    """Return the provider that LangChain puts on the model's spans (``ls_provider``), otherwise one by the model's package."""
    parameters = getattr(model, "_get_ls_params", None)
    provider = parameters().get("ls_provider") if callable(parameters) else None
    if provider:
        return str(provider)
    if getattr(model, "azure_endpoint", None):
        return "azure"
    package = module_of(type(model)).partition(".")[0]
    return package.removeprefix("langchain_") if package.startswith("langchain_") else type_name(model).lower()


def _address(model: Any) -> str:
    """Return host, port and path of a model's endpoint; empty if unknown. Credentials and query of the URL are left out."""
    client = getattr(model, "root_client", None) or getattr(model, "client", None)
    # The clients of OpenAI, Anthropic and boto3.
    clients = (client, getattr(client, "_client", None), getattr(client, "meta", None))
    urls = [getattr(each, name, None) for name in ("base_url", "endpoint_url") for each in clients]
    urls += [getattr(model, name, None) for name in _URLS]
    address = next((str(url) for url in urls if (isinstance(url, str) and url) or hasattr(url, "raw_path")), "")
    parts = urlsplit(address if "//" in address else f"//{address}")
    return f"{parts.netloc.rpartition('@')[2].lower()}{parts.path.rstrip('/')}"


def _hash_secrets(model: Any) -> str:
    """Return a hash of a model's secrets; empty if it has none. A function that returns a key is hashed by its ``id()``."""
    secrets = sorted(_find_secrets(model))
    return blake2b(repr(secrets).encode(), key=_SALT, digest_size=16).hexdigest() if secrets else ""


def _find_secrets(model: Any) -> Iterator[tuple[str, str]]:
    for name in getattr(type(model), "model_fields", ()):
        value = getattr(model, name, None)
        if callable(reveal := getattr(value, "get_secret_value", None)):
            yield name, str(reveal())
        elif value and name in _OWNER_FIELDS:
            yield name, repr(value)
        elif callable(value) and name.endswith(("_api_key", "_token_provider")):
            yield name, str(id(value))
