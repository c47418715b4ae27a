"""AnswerCorrectness: does the answer agree with the reference, in facts and in wording?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, cast

from pydantic import BaseModel, model_validator

from spanscore.core.prompt import Example
from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Scale
from spanscore.errors import ConfigurationError
from spanscore.judges.embeddings import embedder_name
from spanscore.metrics.kit.averages import NO_LENGTH, beta_wanted, f_beta_of_counts, similarity, wanted_embedder
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import JudgedMetric, together
from spanscore.metrics.kit.statements import EXTRACT_STATEMENTS, Statements, key_of
from spanscore.metrics.kit.step import OwnPrompts, Step

_TWO = 2


class Sorted(BaseModel):
    """One statement and why it stands where it stands."""

    statement: str
    reason: str = ""


class Classification(BaseModel):
    """Statements of the answer that the reference supports (TP) or not (FP), and of the reference the answer lacks (FN)."""

    TP: list[Sorted] = []
    FP: list[Sorted] = []
    FN: list[Sorted] = []

    @model_validator(mode="after")
    def _sorts_something(self) -> Classification:
        """Reject an answer without any statement, because the judge had at least one statement to sort."""
        if not (self.TP or self.FP or self.FN):
            raise ValueError("nothing is sorted")
        return self


EXTRACT_RESPONSE: Step[Statements] = replace(EXTRACT_STATEMENTS, name="extract_statements_response")
EXTRACT_REFERENCE: Step[Statements] = replace(
    EXTRACT_STATEMENTS, name="extract_statements_reference", fields={"question": "user_input"}
)
CLASSIFY_STATEMENTS: Step[Classification] = Step(
    name="classify_statements",
    instruction="""\
The evidence is a question, the statements of an answer, and those of the right answer (ground_truth). Sort them, copied word \
for word, each with a short reason:
TP: statements of the answer that the ground truth says or implies.
FP: the other statements of the answer: contradicted, different in a number, name or condition, or not in the ground truth.
FN: statements of the ground truth that the answer neither says nor implies.
Each statement of the answer stands in exactly one of TP and FP.""",
    output=Classification,
    examples=(
        Example(
            evidence={
                "question": "Who built the lighthouse, and when?",
                "answer": ["Ada Holm built the lighthouse.", "It was built in 1898."],
                "ground_truth": ["The lighthouse was built by Ada Holm.", "The lighthouse was built in 1888."],
            },
            output={
                "TP": [{"statement": "Ada Holm built the lighthouse.", "reason": "The ground truth names her."}],
                "FP": [{"statement": "It was built in 1898.", "reason": "The ground truth says 1888."}],
                "FN": [{"statement": "The lighthouse was built in 1888.", "reason": "The answer has another year."}],
            },
        ),
    ),
    fields={"question": "user_input"},
)


class AnswerCorrectness(JudgedMetric):
    """Does the answer state the facts of the reference, no more and no less?

    Formula: (w1 · F + w2 · S) / (w1 + w2). F is the F-beta over statements: TP of the answer in the reference, FP of the answer
    not in it, FN of the reference not in the answer; 1 when neither states anything, 0 when one of them does not. S is the
    cosine of the two embedded texts. Range [-w2/(w1+w2), 1], higher is better; the quality is max(0, value).

    Fields: ``user_input``, ``response``, ``reference``. Judge calls: 3 (``extract_statements_response`` and
    ``extract_statements_reference`` side by side, ``classify_statements``); 2 when one text states nothing; none when w1 is 0.
    One request for embeddings, none when w2 is 0. A vector of a model that is not finite, empty or
    all zeros is a ``judge_error``; the statements are then not classified.

    Blind spot: S is high for a wrong answer in the right words, so even a false one seldom gets below 0.2: choose
    ``pass_at`` by looking at real scores, or set ``weights=(1, 0)``. Right statements that the reference
    does not have count as false.

    Source: ragas 0.4.3's ``AnswerCorrectness``. Deviations: a statement of the answer that was not sorted is an FP, and one
    sorted twice counts once, as an FP if it is in both (ragas counts rows); equal statements that were sorted once are sorted
    alike; empty ones do not count; no call is made if its weight is 0 or its answer is known; nothing sorted at all is
    repaired once and then an error (ragas: F = 0); a vector without a length is an error.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        embeddings: LangChain embeddings, an Embedder, or ``"lexical"``; None with the lexical judge, or if w2 is 0.
        name: name of the metric in its scores.
        weights: (w1, w2), of facts and of wording; not negative, not both 0.
        beta: how many times as much recall counts as precision.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    base_version = "2"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("user_input", "response", "reference")}
    questions = (EXTRACT_RESPONSE, EXTRACT_REFERENCE, CLASSIFY_STATEMENTS)

    def __init__(
        self,
        judge: Any,
        embeddings: Any = None,
        *,
        name: str = "answer_correctness",
        weights: Sequence[float] = (0.75, 0.25),
        beta: float = 1.0,
        pass_at: float | None = None,
        prompts: OwnPrompts | None = None,
    ) -> None:
        facts, wording = _shares(name, weights)
        self.scale = Scale(range=(-wording, 1.0), negatives_are_zero=True)
        super().__init__(judge, name=name, pass_at=pass_at, prompts=prompts)
        self.weights = (facts, wording)
        self.beta = beta_wanted(beta)
        if wording:
            self._embedder = wanted_embedder(name, embeddings, self._judge)
            self.embeddings = embedder_name(self._embedder)

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Extract the statements of both texts and embed the texts, concurrently; then classify the statements."""
        found = await together(
            (
                self._stated(EXTRACT_RESPONSE, sample.user_input, sample.response),
                self._stated(EXTRACT_REFERENCE, sample.user_input, sample.reference),
                self._near(sample),
            )
        )
        said, wanted, near = cast("tuple[list[str], list[str], float | None]", found)
        if near is None:
            return Finding(value=None, reason=NO_LENGTH)
        counts = await self._counts(sample, said, wanted)
        facts, wording = self.weights
        return Finding(
            value=facts * counts.value(self.beta) + wording * near, explanation=f"{counts}Wording: {near:.2f}."
        )

    async def _stated(self, step: Step[Statements], question: str | None, text: str | None) -> list[str]:
        if not self.weights[0]:
            return []
        return (await self.ask(step, {"question": question, "answer": text})).statements

    async def _near(self, sample: SingleTurnSample) -> float | None:
        if not self.weights[1]:
            return 0.0
        return await similarity(self._embedder, sample.reference or "", sample.response or "")

    async def _counts(self, sample: SingleTurnSample, said: list[str], wanted: list[str]) -> _SortedStatements:
        if not said or not wanted:  # all statements are wrong or missing, so the judge is not called
            return _SortedStatements(0, tuple(said), tuple(wanted))
        evidence = {"question": sample.user_input, "answer": said, "ground_truth": wanted}
        return _counted(said, wanted, await self.ask(CLASSIFY_STATEMENTS, evidence))


@dataclass(frozen=True, slots=True)
class _SortedStatements:
    """The number of right statements of the answer, its wrong statements, and the missing ones of the reference."""

    right: int
    wrong: tuple[str, ...]
    missed: tuple[str, ...]

    def value(self, beta: float) -> float:
        if not (self.right or self.wrong or self.missed):
            return 1.0
        return f_beta_of_counts(self.right, len(self.wrong), len(self.missed), beta=beta)

    def __str__(self) -> str:
        if not (self.right or self.wrong or self.missed):
            return ""
        lines = [f"{self.right} statements are right, {len(self.wrong)} wrong, {len(self.missed)} missing."]
        lines += [f"Wrong: {statement}" for statement in self.wrong]
        lines += [f"Missing: {statement}" for statement in self.missed]
        return "\n".join([*lines, ""])


def _counted(said: Sequence[str], wanted: Sequence[str], found: Classification) -> _SortedStatements:
    """Match the judge's rows with the statements. A statement of the answer in both TP and FP, or in neither, is wrong."""
    wrong, _ = _matched(said, found.FP)
    right, rewritten = _matched(said, found.TP, taken=wrong)
    right += _equal(said, right, taken=wrong)
    right += _free(said, wrong + right)[:rewritten]
    missed, rewritten = _matched(wanted, found.FN)
    missed += _equal(wanted, missed)
    missed += _free(wanted, missed)[:rewritten]
    return _SortedStatements(
        len(right),
        tuple(said[place] for place in _free(said, right)),
        tuple(wanted[place] for place in sorted(missed)),
    )


def _matched(statements: Sequence[str], rows: Sequence[Sorted], taken: Sequence[int] = ()) -> tuple[list[int], int]:
    """Return the places of the statements that rows repeat, each place once, and the number of rows with another text."""
    open_places: dict[str, list[int]] = {key_of(statement): [] for statement in statements}
    for place in _free(statements, taken):
        open_places[key_of(statements[place])].append(place)
    rewritten, places = 0, []
    for row in rows:
        left = open_places.get(key_of(row.statement))
        if left is None:
            rewritten += 1
        elif left:
            places.append(left.pop(0))
    return places, rewritten


def _equal(statements: Sequence[str], found: Sequence[int], taken: Sequence[int] = ()) -> list[int]:
    """Return the free places with the text of a found place and of no taken one: the judge sorted equal statements once."""
    sorted_keys = {key_of(statements[place]) for place in found} - {key_of(statements[place]) for place in taken}
    return [place for place in _free(statements, [*found, *taken]) if key_of(statements[place]) in sorted_keys]


def _free(statements: Sequence[str], taken: Sequence[int]) -> list[int]:
    return [place for place in range(len(statements)) if place not in set(taken)]


def _shares(name: str, weights: Any) -> tuple[float, float]:
    """Return two weights as shares of 1."""
    given = list(weights) if isinstance(weights, Sequence) and not isinstance(weights, str) else []
    known = [
        float(w) for w in given if isinstance(w, int | float) and not isinstance(w, bool) and isfinite(w) and w >= 0
    ]
    if len(known) != _TWO or len(given) != _TWO or not sum(known):
        raise ConfigurationError(
            f"{name}: weights is {weights!r}; it is two numbers, of facts and of wording, not negative and not both 0"
        )
    facts, wording = known
    return facts / (facts + wording), wording / (facts + wording)
