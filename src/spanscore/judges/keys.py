"""Provider → the environment variables that hold its key: what is missing can be said without asking the provider."""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["KEYS", "missing_key", "takes_key"]

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
"""As LangChain's integrations read them; any one will do. Providers that are not here take credentials of another kind."""


def missing_key(name: str) -> str | None:
    """Return the variables of which one must be set for ``provider:model``; None where one is, or the provider is not known."""
    provider, colon, _ = name.strip().partition(":")
    wanted = KEYS.get(provider, ()) if colon else ()
    return None if not wanted or any(os.environ.get(key) for key in wanted) else " or ".join(wanted)


def takes_key(provider: str) -> bool:
    """Whether a provider is known to take a key, without which its client is not made."""
    return provider in KEYS
