"""Units of which a condition holds are written to a file, as cases of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, Field

from spanscore.errors import ConfigurationError
from spanscore.settings.conditions import CaseCondition, condition_of
from spanscore.settings.kinds import AnyPath, Items, SettingsPart, Size

__all__ = ["Collect"]

LEAST_BYTES: Final = 10_000
"""Half of it holds a case of some size."""


def _check_condition(text: str) -> str:
    try:
        condition_of(text)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return text


class Collect(SettingsPart):
    """Units of which a condition holds become cases of a data set, appended to a file of this machine. It holds what users
    wrote, as the redactor leaves it; only its owner may read it, whatever its mode was.

    Attributes:
        when: conditions, any of which will do: ``faithfulness<0.5``, on the metric's own scale, or ``harmless=fail``.
        out: file, JSON lines as ``spanscore collect`` writes them, seen from the working directory; made where it is not there,
            in a folder that is. Equal questions are one case, as far as this process has written them.
        max_bytes: size of it and the one before, which ends in ``.1``: at half of this the one becomes the other.
    """

    section: ClassVar[str] = "collect"
    when: Annotated[Items[Annotated[str, AfterValidator(_check_condition)]], Field(min_length=1)]
    out: AnyPath
    max_bytes: Annotated[Size, Field(ge=LEAST_BYTES)] = 100_000_000

    @property
    def conditions(self) -> tuple[CaseCondition, ...]:
        """The conditions as they are read."""
        return tuple(condition_of(text) for text in self.when)

    @property
    def path(self) -> Path:
        """The file, wherever the process goes."""
        return Path(self.out).expanduser().resolve()
