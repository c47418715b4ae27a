"""Collect: units of which a condition holds are written to a file, as cases of a data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from spanscore.errors import ConfigurationError
from spanscore.settings.conditions import CaseCondition, condition_of
from spanscore.settings.kinds import FilePath, SettingsPart, Size
from spanscore.settings.sizes import bytes_of

__all__ = ["Collect", "CollectSettings", "collect_in"]

MAX_BYTES: Final = 100_000_000
LEAST_BYTES: Final = 10_000
"""Half of it holds a case of some size."""


@dataclass(frozen=True, slots=True)
class Collect:
    """Units of which a condition holds become cases of a data set, appended to a file of this machine.

    The file holds what users wrote, as the redactor leaves it; only its owner may read it, whatever its mode was.

    Attributes:
        when: conditions, any of which will do: ``"faithfulness<0.5"``, on the metric's own scale, or ``"harmless=fail"``.
        out: of the file, JSON lines as ``spanscore collect`` writes them; made where it is not there, in a folder that is.
            Equal questions are one case, as far as this process has written them.
        max_bytes: of it and the one before, which ends in ``.1``: a number, or a text such as ``"100MB"``. At half of this the
            one becomes the other.

    Raises:
        ConfigurationError: there is no condition, one cannot be read, or ``max_bytes`` is too small.
    """

    when: Sequence[str]
    out: str | Path
    max_bytes: int | str = MAX_BYTES

    def __post_init__(self) -> None:
        if isinstance(self.when, str) or not self.when:
            raise ConfigurationError(f"collect.when is {self.when!r}; write for example ['faithfulness<0.5']")
        if self.most_bytes < LEAST_BYTES:
            raise ConfigurationError(f"collect.max_bytes is {self.max_bytes!r}; allowed is {LEAST_BYTES:,} or more")
        self.conditions  # noqa: B018  (raises)

    @property
    def conditions(self) -> tuple[CaseCondition, ...]:
        """The conditions as they are read."""
        return tuple(condition_of(text) for text in self.when)

    @property
    def most_bytes(self) -> int:
        """Bytes of both files at most."""
        try:
            return bytes_of(self.max_bytes) if isinstance(self.max_bytes, str) else self.max_bytes
        except ValueError as error:
            raise ConfigurationError(f"collect.max_bytes: {error}") from None

    @property
    def path(self) -> Path:
        """The file, wherever the process goes."""
        return Path(self.out).expanduser().resolve()


def _condition(text: str) -> str:
    try:
        condition_of(text)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return text


class CollectSettings(SettingsPart):
    """Units of which a condition holds become cases of a data set, appended to a file of this machine. It holds what users
    wrote, as the redactor leaves it; only its owner may read it, whatever its mode was.

    Attributes:
        when: conditions, any of which will do: ``faithfulness<0.5``, on the metric's own scale, or ``harmless=fail``.
        out: file, JSON lines, seen from the working directory; made where it is not there, in a folder that is.
        max_bytes: of it and the one before, which ends in ``.1``: at half of this the one becomes the other.
    """

    when: Annotated[list[Annotated[str, AfterValidator(_condition)]], Field(min_length=1)]
    out: FilePath
    max_bytes: Annotated[Size, Field(ge=LEAST_BYTES)] = MAX_BYTES


def collect_in(given: CollectSettings | None) -> Collect | None:
    """Return what a configuration collects."""
    return None if given is None else Collect(tuple(given.when), given.out, given.max_bytes)
