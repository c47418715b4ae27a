"""Docstrings → what each parameter, attribute or key means; no other place has these texts."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel

from spanscore.config.judging import AskedSettings
from spanscore.judges import judge

__all__ = ["meaning_of", "parameters_in", "plain", "summary_of"]

_DESCRIBED_BY: Mapping[type[BaseModel], Any] = {AskedSettings: judge}
"""Section → the function whose parameters are its keys, and whose docstring says what they mean."""
_SECTION = re.compile(r"^(?:Args|Attributes):\n((?:[ ]{4}.*\n|\n)+)", re.MULTILINE)
_PARAMETER = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def parameters_in(documented: Any) -> dict[str, str]:
    """Return parameter or attribute → what the docstring says of it, in Markdown."""
    text = inspect.cleandoc(documented.__doc__ or "") + "\n"
    sections = (match[1] for match in _SECTION.finditer(text))
    return {name: plain(meaning) for section in sections for name, meaning in _PARAMETER.findall(section)}


def summary_of(documented: Any) -> str:
    """Return what stands above a docstring's first heading, in Markdown, a line per paragraph."""
    text = re.split(r"^\w+:\n", inspect.cleandoc(documented.__doc__ or ""), maxsplit=1, flags=re.MULTILINE)[0]
    return "\n\n".join(plain(paragraph) for paragraph in text.strip().split("\n\n"))


def plain(text: str) -> str:
    """Return a docstring's words on one line, as Markdown has them."""
    return " ".join(text.split()).replace("``", "`")


def meaning_of(section: type[BaseModel], key: str) -> str:
    """Return what a key of a section means, by the docstring of the section or of the section that it holds; else empty."""
    meaning = next((meanings[key] for meanings in _sources(section) if key in meanings), "")
    annotation = section.model_fields[key].annotation
    held = [kind for kind in (annotation, *get_args(annotation)) if _is_section(kind)]
    if not meaning and held:
        meaning = summary_of(held[0]).partition("\n\n")[0]
    return re.sub(r"\bNone\b", "`null`", meaning[:1].upper() + meaning[1:])


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _sources(section: type[BaseModel]) -> Iterator[dict[str, str]]:
    classes = [base for base in section.__mro__ if issubclass(base, BaseModel)]
    yield from map(parameters_in, classes)
    yield from (parameters_in(_DESCRIBED_BY[base]) for base in classes if base in _DESCRIBED_BY)
