"""Compare: by what the sums are told apart so that two releases can be compared on live traffic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from spanscore import semconv
from spanscore.errors import ConfigurationError
from spanscore.settings.kinds import SettingsPart

__all__ = ["Compare", "CompareSettings", "compare_in"]


@dataclass(frozen=True, slots=True)
class Compare:
    """What tells two releases apart: the sums are kept per value of it, and ``spanscore compare`` reads them.

    Attributes:
        by: an attribute of the resource (``service.version``), a key of the run's metadata, an attribute of the unit's root
            (``gen_ai.prompt.version``), ``gen_ai.request.model``, or ``spanscore.evaluator.version``. The first eight values
            that come are told apart; any other is ``other``, none at all ``unknown``. They leave as a label: of metadata and
            attributes by way of the redactor.

    Raises:
        ConfigurationError: ``by`` is no text, is empty, or holds prompts or answers.
    """

    by: str

    def __post_init__(self) -> None:
        if not isinstance(self.by, str) or not self.by.strip():
            raise ConfigurationError(f"compare.by is {self.by!r}; name what differs: 'service.version'")
        if semconv.is_content(self.by):
            raise ConfigurationError(f"compare.by is {self.by!r}, which quotes what users write, and would be a label")


class CompareSettings(SettingsPart):
    """Two releases on live traffic: the sums are kept per value of what tells them apart, for ``spanscore compare``.

    Attributes:
        by: attribute of the resource (``service.version``), key of the run's metadata, attribute of the unit's root
            (``gen_ai.prompt.version``), ``gen_ai.request.model``, or ``spanscore.evaluator.version``. The first eight values
            that come are told apart; any other is ``other``, none at all ``unknown``. They leave as a label: of metadata and
            attributes by way of the redactor.
    """

    by: Annotated[str, Field(min_length=1)]


def compare_in(given: CompareSettings | None) -> Compare | None:
    """Return what a configuration says of it."""
    return None if given is None else Compare(given.by)
