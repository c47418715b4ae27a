"""The question of metrics that split a conversation or an answer into parts and give each part a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.condition import BinaryAnswer
from spanscore.metrics.kit.statements import key_of


class PartVerdict(BaseModel):
    """A part in a few words, why, and whether it is done (1) or not (0)."""

    part: str
    reason: str = ""
    verdict: BinaryAnswer


class PartVerdicts(BaseModel):
    """One row per part; no row if there is no part."""

    parts: list[PartVerdict]


def share_of_parts(rows: Sequence[PartVerdict], *, done: str, nothing: str) -> Finding:
    """Return the share of parts with verdict 1; rows without words do not count.

    Args:
        done: end of the explanation's first line, behind "1 of 2 parts", such as "of the question are answered".
        nothing: reason of an undefined score, if there is no part.
    """
    parts = [row for row in rows if key_of(row.part)]
    if not parts:
        return Finding(value=None, reason=nothing)
    open_parts = [row for row in parts if not row.verdict]
    lines = [f"{len(parts) - len(open_parts)} of {len(parts)} {done}."]
    lines += [f"Not: {row.part}" + (f" ({row.reason})" if row.reason else "") for row in open_parts]
    return Finding(value=1 - len(open_parts) / len(parts), explanation="\n".join(lines))
