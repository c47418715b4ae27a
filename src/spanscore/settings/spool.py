"""Spool: where jobs wait on a disk, so that they outlive the process, and others may score them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Literal, get_args

from spanscore.errors import ConfigurationError
from spanscore.settings.kinds import FilePath, PositiveSeconds, SettingsPart, Size

__all__ = ["Spool", "SpoolSettings", "spool_in"]

_Sync = Literal["full", "normal"]
MAX_BYTES: Final = 1_000_000_000
MAX_AGE_S: Final = 7 * 86_400.0
LEASE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Spool:
    """A file in which units wait for their scores: what is in it outlives the process, and other processes may score it.

    It holds prompts and answers, as the redactor leaves them; only its owner may read it, and what is done is wiped. What a
    unit was chosen by goes along: who scores it throws no dice.

    Attributes:
        path: of the file, on a disk of this machine; made where it is not there.
        sync: ``full``: what is in it survives the loss of power. ``normal``: the end of the process alone, ``kill -9`` too; a
            unit costs a third.
        max_bytes: of the file, bytes; past it units are ``queue_full``.
        max_age: seconds after which a unit in it is ``expired``.
        lease: seconds after which the units of a process that has stopped are others'; of one that has ended they are at once.
        allow_network_disk: whether it may lie on one, where locks hold only if the server is right.
        score_here: whether this process scores: its own units, and those that nobody does. False: it captures and writes, and
            ``spanscore worker`` scores; then units end ``delegated`` here.

    Raises:
        ConfigurationError: a number is too small, or ``sync`` is none of these.
    """

    path: str | Path
    sync: _Sync = "full"
    max_bytes: int = MAX_BYTES
    max_age: float = MAX_AGE_S
    lease: float = LEASE_S
    allow_network_disk: bool = False
    score_here: bool = True

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_age", "lease"):
            if isinstance(given := getattr(self, name), str) or not given > 0:
                raise ConfigurationError(f"spool.{name} is {given!r}; allowed is a number above 0")
        if self.sync not in get_args(_Sync):
            raise ConfigurationError(f"spool.sync is {self.sync!r}; allowed are {', '.join(get_args(_Sync))}")


class SpoolSettings(SettingsPart):
    """A file in which units wait for their scores: what is in it outlives the process, and other processes may score it.

    It holds prompts and answers, as the redactor leaves them.

    Attributes:
        path: of the file, on a disk of this machine, seen from the working directory; made where it is not there.
        sync: ``full``: what is in it survives the loss of power. ``normal``: the end of the process alone, ``kill -9`` too; a
            unit costs a third.
        max_bytes: of the file; past it units are ``queue_full``.
        max_age: after which a unit in it is ``expired``.
        lease: after which the units of a process that has stopped are others'; of one that has ended they are at once.
        allow_network_disk: whether it may lie on one, where locks hold only if the server is right.
        score_here: whether the process that captures scores, too. ``false``: it captures and writes, and ``spanscore worker``
            scores.
    """

    path: FilePath
    sync: _Sync = "full"
    max_bytes: Size = MAX_BYTES
    max_age: PositiveSeconds = MAX_AGE_S
    lease: PositiveSeconds = LEASE_S
    allow_network_disk: bool = False
    score_here: bool = True


def spool_in(given: SpoolSettings | None) -> Spool | None:
    """Return the spool of a configuration."""
    return None if given is None else Spool(**{one.name: getattr(given, one.name) for one in fields(Spool)})
