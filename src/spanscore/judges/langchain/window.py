"""Chat model → the window that its integration knows of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["window_of"]


def window_of(model: Any) -> int | None:
    """Return how many tokens a model reads, by its LangChain profile; None where it has none, as a model that is not known."""
    profile = getattr(model, "profile", None)
    told = profile.get("max_input_tokens") if isinstance(profile, Mapping) else None
    return told if isinstance(told, int) and told > 0 else None
