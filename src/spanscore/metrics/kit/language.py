"""The language of the texts that a metric reads, as its maker names it."""

from __future__ import annotations

from typing import Final

from spanscore.core.printable import did_you_mean
from spanscore.errors import ConfigurationError

__all__ = ["LANGUAGES", "language_wanted"]

_NAMES: Final = """
    am:Amharic ar:Arabic bg:Bulgarian da:Danish de:German el:Greek en:English es:Spanish fa:Persian fr:French
    hi:Hindi hy:Armenian it:Italian ja:Japanese kk:Kazakh km:Khmer ko:Korean lo:Lao mr:Marathi my:Burmese nl:Dutch
    pl:Polish pt:Portuguese ru:Russian sk:Slovak th:Thai ur:Urdu zh:Chinese
"""
LANGUAGES: Final = {code: name for code, _, name in (pair.partition(":") for pair in _NAMES.split())}
"""Two letters of ISO 639-1 → the language's name in English."""


def language_wanted(metric: str, given: str | None) -> str | None:
    """Return a language as two letters, from those or from its name in English; None = none is named.

    Raises:
        ConfigurationError: it is none of ``LANGUAGES``.
    """
    by_name = {name.casefold(): code for code, name in LANGUAGES.items()}
    wanted = given.strip().casefold() if isinstance(given, str) else given
    if wanted is None or wanted in LANGUAGES:
        return wanted
    if wanted in by_name:
        return by_name[wanted]
    meant = did_you_mean(str(wanted), [*LANGUAGES, *by_name])
    raise ConfigurationError(
        f"{metric}: language is {given!r}; {meant and f'{meant} '}Known are {', '.join(sorted(by_name))}, or two letters ('de')"
    )
