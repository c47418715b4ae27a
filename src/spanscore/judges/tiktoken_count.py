"""Count the tokens of texts: by tiktoken if it is installed with its vocabulary, else by a rule of thumb."""

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
"""Encoding → file name of its vocabulary in tiktoken's cache (the SHA-1 of its URL)."""
_CHARACTERS_PER_TOKEN = 4.0
"""Characters per token in English prose and JSON: within a fifth of cl100k_base on spanscore's prompts."""
loaded_counters: dict[str, Callable[[str], int]] = {}
"""Model → function that counts tokens by the model's own tokenizer, once ``load_counter`` has loaded it."""


class TokenCounter(NamedTuple):
    """A counter of tokens.

    Attributes:
        name: the counting method, for reports.
        count: text → number of tokens.
    """

    name: str
    count: Callable[[str], int]


_APPROXIMATE = TokenCounter("about, 4 characters a token", lambda text: round(len(text) / _CHARACTERS_PER_TOKEN))


@cache
def counter(encoding: str = "cl100k_base") -> TokenCounter:
    """Return the best counter that works without a network: tiktoken would download a missing vocabulary."""
    chosen = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    folder = Path(chosen) if chosen else Path(tempfile.gettempdir()) / "data-gym-cache"
    if encoding not in _VOCABULARIES or not (folder / _VOCABULARIES[encoding]).is_file():
        return _APPROXIMATE
    try:
        import tiktoken
    except ImportError:
        return _APPROXIMATE
    loaded = tiktoken.get_encoding(encoding)
    return TokenCounter(encoding, lambda text: len(loaded.encode(text, disallowed_special=())))


def load_counter(model: str) -> None:
    """Load a model's own tokenizer, if it has one with a local vocabulary. Blocks for some 0.5 s; never raises."""
    try:
        from tiktoken.model import encoding_name_for_model

        own = counter(encoding_name_for_model(model))
    except Exception:  # noqa: BLE001  (not installed, or a model without this tokenizer: its tokens are estimated by bytes)
        return
    if own is not _APPROXIMATE:
        loaded_counters[model] = own.count
