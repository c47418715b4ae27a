"""Two steps that metrics share: extract the statements of a text, and verify statements against a context."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BaseModel

from spanscore.core.prompt import Example
from spanscore.errors import JudgeUnparseable
from spanscore.metrics.kit.condition import BinaryAnswer
from spanscore.metrics.kit.step import Step

NonBlankStatements = Annotated[list[str], AfterValidator(lambda statements: [*filter(key_of, statements)])]
"""Statements in a judge's answer; blank statements are removed."""


class Statements(BaseModel):
    """Statements, each understandable on its own."""

    statements: NonBlankStatements


class StatementVerdict(BaseModel):
    """One statement, why, and whether the context supports it."""

    statement: str
    reason: str = ""
    verdict: BinaryAnswer


class Verdicts(BaseModel):
    """One verdict per statement."""

    statements: list[StatementVerdict]


EXTRACT_STATEMENTS: Step[Statements] = Step(
    name="extract_statements",
    instruction="""\
The evidence holds a question and an answer to it. List what the answer claims, each claim as one short sentence of one fact \
that can be checked on its own: names in place of pronouns, the question's words where the answer only makes sense with them.
Add nothing, correct nothing. Leave out greetings, questions and remarks that claim nothing; what remains may be nothing.""",
    output=Statements,
    examples=(
        Example(
            evidence={
                "question": "Who built the lighthouse on Skerry Point?",
                "answer": "Ada Holm, in 1888. Happy travels!",
            },
            output={
                "statements": [
                    "Ada Holm built the lighthouse on Skerry Point.",
                    "The lighthouse on Skerry Point was built in 1888.",
                ]
            },
        ),
    ),
    fields={"question": "user_input", "answer": "response"},
)

VERIFY_STATEMENTS: Step[Verdicts] = Step(
    name="verify_statements",
    instruction="""\
The evidence holds a context and a list of statements. Decide for each whether the context alone supports it.
Verdict 1: a careful reader would agree that the context says so, or that it follows directly. Verdict 0: the context \
contradicts it, differs in a number, name, date or condition, or does not speak of it. What you know from elsewhere does not \
count.
One row per statement, in order, the statement copied word for word, a short reason before the verdict.""",
    output=Verdicts,
    fields={"context": "retrieved_contexts"},
)


@dataclass(frozen=True, slots=True)
class Aligned:
    """The judge's verdicts on statements, in the order of the statements.

    Attributes:
        rows: one row per statement, in the statements' order; None for a statement without a verdict.
        extra: number of rows that match no statement.
    """

    rows: tuple[StatementVerdict | None, ...]
    extra: int

    @property
    def supported(self) -> int:
        """Number of statements that the judge found supported."""
        return sum(map(self.supports, range(len(self.rows))))

    @property
    def missing(self) -> int:
        """Number of statements without a verdict."""
        return sum(1 for row in self.rows if row is None)

    def supports(self, index: int) -> bool:
        """Whether the judge found the statement at this index supported; False without a verdict."""
        row = self.rows[index]
        return row is not None and row.verdict == 1

    def unsupported(self, statements: Sequence[str]) -> Iterator[str]:
        """Yield an explanation for each statement that does not count as supported."""
        for statement, row in zip(statements, self.rows, strict=True):
            if row is None:
                yield f"no verdict, counted as not supported: {statement}"
            elif row.verdict == 0:
                yield f"not supported: {statement}" + (f" ({row.reason})" if row.reason else "")


def align(statements: Sequence[str], rows: Sequence[StatementVerdict]) -> Aligned:
    """Match the judge's rows to statements by text.

    If there are as many rows as statements, a row without a match belongs to the statement at its position: the judge changed
    the text. A statement without a row gets the row of an equal statement.

    Raises:
        JudgeUnparseable: no row matches a statement, because the answer is empty or about other statements.
    """
    keys = [*map(key_of, statements)]
    matched, extra = _match_rows(keys, rows)
    row_by_key = {key: row for key, row in zip(keys, matched, strict=True) if row is not None}
    if statements and not row_by_key:
        raise JudgeUnparseable(f"none of the {len(rows)} verdicts belongs to one of the {len(statements)} statements")
    return Aligned(tuple(row or row_by_key.get(key) for key, row in zip(keys, matched, strict=True)), extra)


def _match_rows(keys: Sequence[str], rows: Sequence[StatementVerdict]) -> tuple[list[StatementVerdict | None], int]:
    """Return the row of each statement, by its key; None without a row. Also return the number of rows without a statement."""
    indices_by_key: dict[str, list[int]] = {}
    for index, key in enumerate(keys):
        indices_by_key.setdefault(key, []).append(index)
    matched: list[StatementVerdict | None] = [None] * len(keys)
    unmatched: list[int] = []
    for number, row in enumerate(rows):
        if indices := indices_by_key.get(key_of(row.statement)):
            matched[indices.pop(0)] = row
        else:
            unmatched.append(number)
    reworded = [number for number in unmatched if len(rows) == len(keys) and matched[number] is None]
    for number in reworded:
        matched[number] = rows[number]
    return matched, len(unmatched) - len(reworded)


def key_of(statement: str) -> str:
    """Return a statement normalised in case, character width and white space, without ``.``, ``!`` and quotes at its ends."""
    text = unicodedata.normalize("NFKC", statement).casefold()
    return re.sub(r"\s+", " ", text).strip(" .!\"'")
