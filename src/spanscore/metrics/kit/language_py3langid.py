"""Detection of a text's language, by py3langid (extra ``checks``)."""

from __future__ import annotations

from typing import Any

from spanscore.errors import MissingExtraError


def detectable_languages() -> frozenset[str]:
    """Return the detectable languages as two-letter codes of ISO 639-1. The first call takes half a second.

    Raises:
        MissingExtraError: py3langid is not installed.
    """
    return frozenset(code for code, _ in _library().rank(""))


def language_of(text: str) -> str:
    """Return the most likely language of a text as a two-letter code of ISO 639-1."""
    return str(_library().classify(text.encode("utf-8", "replace").decode())[0])


def _library() -> Any:
    try:
        import py3langid
    except ImportError as error:
        raise MissingExtraError("py3langid", "checks") from error
    return py3langid
