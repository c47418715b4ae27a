"""Texts → number of tokens: by tiktoken where it is here with its vocabulary, else by a rule of thumb."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

_VOCABULARIES = {
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
}
"""Encoding → the name under which tiktoken keeps its vocabulary (the SHA-1 of its address)."""
_CHARACTERS = 4.0
"""Characters of a token in English prose and JSON: within a fifth of cl100k_base on our prompts."""
_loaded: dict[str, Callable[[str], int]] = {}


class TokenCounter(NamedTuple):
    """A counter of tokens.

    Attributes:
        name: how it counts, for the reader of the number.
        count: text → tokens.
    """

    name: str
    count: Callable[[str], int]


_APPROXIMATE = TokenCounter("about, 4 characters a token", lambda text: round(len(text) / _CHARACTERS))


@cache
def counter(encoding: str = "cl100k_base") -> TokenCounter:
    """Return the best counter that works here without a network: tiktoken would fetch a vocabulary that it does not have."""
    if encoding not in _VOCABULARIES or not (_folder() / _VOCABULARIES[encoding]).is_file():
        return _APPROXIMATE
    try:
        import tiktoken
    except ImportError:
        return _APPROXIMATE
    loaded = tiktoken.get_encoding(encoding)
    return TokenCounter(encoding, lambda text: len(loaded.encode(text, disallowed_special=())))


def load_counter(model: str) -> None:
    """Load a model's own tokenizer, where it has one and its vocabulary is here. Blocks for some 0.5 s; never raises."""
    try:
        from tiktoken.model import encoding_name_for_model

        own = counter(encoding_name_for_model(model))
    except Exception:  # noqa: BLE001  (not installed, or another's model: its tokens are told by their bytes)
        return
    if own is not _APPROXIMATE:
        _loaded[model] = own.count


def loaded_counter(model: str) -> Callable[[str], int] | None:
    """Return what counts a model's tokens as the model does; None until that is loaded, and where there is none."""
    return _loaded.get(model)


def _folder() -> Path:
    chosen = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    return Path(chosen) if chosen else Path(tempfile.gettempdir()) / "data-gym-cache"
