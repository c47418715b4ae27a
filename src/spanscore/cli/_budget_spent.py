"""The line by which a command reports that ``judge.budget`` is spent, and how to go on."""

from __future__ import annotations

__all__ = ["budget_spent"]


def budget_spent(unscored: int, how: str) -> str:
    """Return the line.

    Args:
        unscored: scores that ended ``budget_exhausted``.
        how: the options that go on from here without paying twice, as in "with --out FILE".
    """
    return (
        f"judge.budget is spent: {unscored:,} scores ended as 'budget', and nothing was sent for them. Run the command again "
        f"in the next window (windows are aligned to UTC) {how}, or raise judge.budget."
    )
