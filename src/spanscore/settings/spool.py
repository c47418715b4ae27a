"""Where units wait on a disk, so that they outlive the process, and others may score them."""

from __future__ import annotations

from typing import ClassVar, Literal

from spanscore.settings.kinds import AnyPath, PositiveSeconds, SettingsPart, Size

__all__ = ["Spool"]


class Spool(SettingsPart):
    """A file in which units wait for their scores: what is in it outlives the process, and other processes may score it.

    It holds prompts and answers, as the redactor leaves them; only its owner may read it, and what is done is wiped. A unit's
    sampling decision goes along: the process that scores it draws no second time.

    Attributes:
        path: path of the file, on a disk of this machine, seen from the working directory; made where it is not there.
        sync: ``full``: what is in it survives the loss of power. ``normal``: the end of the process alone, ``kill -9`` too; a
            unit costs a third.
        max_bytes: size of the file; past it units are ``queue_full``.
        max_age: age after which a unit in it is ``expired``.
        lease: time after which the units of a process that has stopped are others'; of one that has ended they are at once.
        allow_network_disk: whether it may lie on one, where locks hold only if the server is right.
        score_here: whether this process scores: its own units, and those that no other does. ``false``: it captures and writes,
            and ``spanscore worker`` scores; then units end ``delegated`` here.
    """

    section: ClassVar[str] = "spool"
    path: AnyPath
    sync: Literal["full", "normal"] = "full"
    max_bytes: Size = 1_000_000_000
    max_age: PositiveSeconds = 7 * 86_400.0
    lease: PositiveSeconds = 60.0
    allow_network_disk: bool = False
    score_here: bool = True
