"""ReplayState: how far a replay is, for ``status()``."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ReplayState"]


class ReplayState(NamedTuple):
    """What a replay has read, left out and scored so far.

    Attributes:
        traces: that were read.
        read: units in them, within the time that was asked for.
        skipped: scores that were not made, as the store has them; one of each metric and unit.
        scored: scores that were made.
        usd: what their judges cost; None while no price is known.
    """

    traces: int
    read: int
    skipped: int
    scored: int
    usd: float | None

    def __str__(self) -> str:
        told = f"replay: {self.read:,} unit{'' if self.read == 1 else 's'} of {self.traces:,} read"
        told += f"; {self.skipped:,} scores there already, {self.scored:,} made"
        return told if self.usd is None else f"{told}; {_amount(self.usd)} USD so far"


def _amount(usd: float) -> str:
    return f"{usd:,.2f}" if usd >= 1 or not usd else f"{usd:.2g}"
