"""Docstrings → what each parameter, attribute or key means: it is written there, and nowhere else."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from spanscore.judges import judge
from spanscore.settings.judging import AskedSettings

__all__ = ["meaning_of", "parameters_in", "plain", "summary_of"]

_TOLD_BY: Mapping[type[BaseModel], Any] = {AskedSettings: judge}
"""Section → what has its keys for parameters, and says what they mean."""
_SECTION = re.compile(r"^(?:Args|Attributes):\n((?:[ ]{4}.*\n|\n)+)", re.MULTILINE)
_PARAMETER = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def parameters_in(documented: Any) -> dict[str, str]:
    """Return parameter or attribute → what the docstring says of it, in Markdown."""
    text = inspect.cleandoc(documented.__doc__ or "") + "\n"
    sections = (found[1] for found in _SECTION.finditer(text))
    return {name: plain(told) for section in sections for name, told in _PARAMETER.findall(section)}


def summary_of(documented: Any) -> str:
    """Return what stands above a docstring's first heading, in Markdown, a line per paragraph."""
    text = re.split(r"^\w+:\n", inspect.cleandoc(documented.__doc__ or ""), maxsplit=1, flags=re.MULTILINE)[0]
    return "\n\n".join(plain(paragraph) for paragraph in text.strip().split("\n\n"))


def plain(text: str) -> str:
    """Return a docstring's words on one line, as Markdown has them."""
    return " ".join(text.split()).replace("``", "`")


def meaning_of(section: type[BaseModel], key: str) -> str:
    """Return what a key of a section means, by the docstring of the section or of the section that it holds; else empty."""
    told = next((told[key] for told in _tellers(section) if key in told), "")
    if not told and _is_section(inner := section.model_fields[key].annotation):
        told = summary_of(inner).partition("\n\n")[0]
    return re.sub(r"\bNone\b", "`null`", told[:1].upper() + told[1:])


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _tellers(section: type[BaseModel]) -> Iterator[dict[str, str]]:
    classes = [one for one in section.__mro__ if issubclass(one, BaseModel)]
    yield from (parameters_in(one) for one in classes)
    yield from (parameters_in(_TOLD_BY[one]) for one in classes if one in _TOLD_BY)
