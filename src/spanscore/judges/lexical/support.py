"""Statement, context → what speaks against the one being in the other, by words, numbers, names and denials."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from operator import itemgetter

from spanscore.judges.lexical.words import OPPOSITES, Words, akin, sentences, words

__all__ = ["among", "objection", "share_of"]

_SUPPORTED = 0.5
"""Least share of a statement's content words that one place of its context must hold. Tuned on the tuning half alone."""


def objection(statement: str, context: str) -> str | None:
    """Say why the context does not support the statement, None when nothing speaks against it."""
    said = words(statement)
    places = _windows(context)
    if not places:
        return "There is no context."
    everywhere = words(context)
    if foreign := sorted(said.numbers - everywhere.numbers):
        return f"The context does not have {', '.join(foreign)}."
    if foreign := sorted(name for name in said.names if not among(name, everywhere.content)):
        return f"The context does not name {', '.join(foreign)}."
    share, best = max(((share_of(said, place, of_nothing=1.0), place) for place in places), key=itemgetter(0))
    if share < _SUPPORTED:
        return f"Only {share:.0%} of its words are in any one place of the context."
    return _denial(said, best) or _opposite(said, best)


def _denial(said: Words, place: Words) -> str | None:
    if any(among(stem, place.denied) for stem in said.denied):
        return None  # both deny the same
    if denied := sorted(stem for stem in said.affirmed if _only_denied(stem, place)):
        return f"The context denies it: {', '.join(denied)}."
    if denied := sorted(stem for stem in said.denied if among(stem, place.affirmed)):
        return f"The context says so, the statement denies it: {', '.join(denied)}."
    return "The statement denies something, the context does not." if said.denied and not place.denied else None


def _only_denied(stem: str, place: Words) -> bool:
    return among(stem, place.denied) and not among(stem, place.affirmed)


def _opposite(said: Words, place: Words) -> str | None:
    opposed = [stem for stem in said.content for other in OPPOSITES.get(stem, ()) if other in place.content]
    opposed = [stem for stem in opposed if not among(stem, place.content)]
    return f"The context says the opposite of {', '.join(opposed)}." if opposed else None


def _windows(context: str) -> list[Words]:
    single = sentences(context)
    return [words(text) for text in (*single, *(f"{one} {other}" for one, other in pairwise(single)))]


def among(stem: str, stems: Iterable[str]) -> bool:
    """Whether a stem, or one of its family, is among others."""
    return any(akin(stem, other) for other in stems)


def share_of(wanted: Words, place: Words, *, of_nothing: float) -> float:
    """Return the share of a text's content words and numbers that another holds; ``of_nothing`` where it has none."""
    count = len(wanted.content) + len(wanted.numbers)
    held = sum(among(stem, place.content) for stem in wanted.content) + len(wanted.numbers & place.numbers)
    return held / count if count else of_nothing
