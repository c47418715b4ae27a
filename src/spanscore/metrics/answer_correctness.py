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
from spanscore.metrics.kit.averages import NO_WORDS, check_beta, f_beta_of_counts, make_embedder, text_cosine
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import JudgedMetric, ask_concurrently
from spanscore.metrics.kit.statements import EXTRACT_STATEMENTS, Statements, key_of
from spanscore.metrics.kit.step import OwnPrompts, Step


class ClassifiedStatement(BaseModel):
    """One statement, and the judge's reason for its class."""

    statement: str
    reason: str = ""


class Classification(BaseModel):
    """TP: statements of the answer that the reference has. FP: its other statements. FN: statements that the answer omits."""

    TP: list[ClassifiedStatement] = []
    FP: list[ClassifiedStatement] = []
    FN: list[ClassifiedStatement] = []

    @model_validator(mode="after")
    def _check_not_empty(self) -> Classification:
        """Reject an answer without any statement: the judge got at least one statement to sort."""
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

    Formula: (w1 · F + w2 · S) / (w1 + w2). F is the F-beta over statements. TP: statements of the answer that the reference
    has. FP: the other statements of the answer. FN: statements of the reference that the answer does not have. F is 1 if
    neither text has a statement, and 0 if only one text has statements. S is the cosine of the two embedded texts. Range
    [-w2/(w1+w2), 1], higher is better; the quality is max(0, value).

    Fields: ``user_input``, ``response``, ``reference``. Judge calls: 3 (concurrently
    ``extract_statements_response`` and ``extract_statements_reference``, then ``classify_statements``); 2 if a text has no
    statement; none if w1 is 0. One request for embeddings is made; none if w2 is 0. If a model's vector is empty, all zeros
    or not finite, the outcome is ``judge_error``. If a lexical vector is all zeros (a text without words), the score is
    undefined. In both cases the statements are not classified.

    Blind spot: S is high for a wrong answer with the right words. A wrong answer therefore seldom scores below 0.2. Choose
    ``pass_at`` from real scores, or set ``weights=(1, 0)``. A right statement that the reference does not have counts as
    wrong.

    Source: ragas 0.4.3's ``AnswerCorrectness``. Deviations: a statement of the answer that the judge did not sort is an FP. A
    statement that the judge sorted twice counts once; in both TP and FP, it counts as FP (ragas counts rows). If the judge
    sorted only one of several equal statements, the others get the same class. Empty statements do not count. A call is
    skipped if the weight of its part is 0, or if its result is certain. If the judge sorts no statement, its answer is
    repaired once; a second empty answer is an error (ragas: F = 0). A model's vector with norm 0 is an error.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        embeddings: LangChain embeddings, an Embedder, or ``"lexical"``; None is allowed with the lexical
            judge, or if w2 is 0.
        name: name of the metric in its scores.
        weights: (w1, w2), of facts and of wording; not negative, not both 0.
        beta: weight of recall relative to precision.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.

    Raises:
        ConfigurationError: ``embeddings`` is missing or unknown, or ``weights``, ``beta`` or another argument is invalid.
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
        self.beta = check_beta(beta)
        if wording:
            self._embedder = make_embedder(name, embeddings, self._judge)
            self.embeddings = embedder_name(self._embedder)

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Extract the statements of both texts and embed the texts, concurrently; then classify the statements."""
        results = await ask_concurrently(
            (
                self._extract_statements(EXTRACT_RESPONSE, sample.user_input, sample.response),
                self._extract_statements(EXTRACT_REFERENCE, sample.user_input, sample.reference),
                self._measure_similarity(sample),
            )
        )
        response_statements, reference_statements, similarity_of_texts = cast(
            "tuple[list[str], list[str], float | None]", results
        )
        if similarity_of_texts is None:
            return Finding(value=None, reason=NO_WORDS)
        counts = await self._classify(sample, response_statements, reference_statements)
        facts, wording = self.weights
        return Finding(
            value=facts * counts.value(self.beta) + wording * similarity_of_texts,
            explanation=f"{counts}Wording: {similarity_of_texts:.2f}.",
        )

    async def _extract_statements(self, step: Step[Statements], question: str | None, text: str | None) -> list[str]:
        if not self.weights[0]:
            return []
        return (await self.ask(step, {"question": question, "answer": text})).statements

    async def _measure_similarity(self, sample: SingleTurnSample) -> float | None:
        if not self.weights[1]:
            return 0.0
        return await text_cosine(self._embedder, sample.reference or "", sample.response or "")

    async def _classify(
        self, sample: SingleTurnSample, response_statements: list[str], reference_statements: list[str]
    ) -> _SortedStatements:
        if not response_statements or not reference_statements:  # all statements are wrong or missing: no judge call
            return _SortedStatements(0, tuple(response_statements), tuple(reference_statements))
        evidence = {
            "question": sample.user_input,
            "answer": response_statements,
            "ground_truth": reference_statements,
        }
        classification = await self.ask(CLASSIFY_STATEMENTS, evidence)
        # A statement of the answer in both TP and FP, or in neither, is wrong.
        wrong, _ = _match_rows(response_statements, classification.FP)
        right = _find_statements(response_statements, classification.TP, excluded=wrong)
        missed = _find_statements(reference_statements, classification.FN)
        return _SortedStatements(
            len(right),
            tuple(response_statements[index] for index in _other_indices(response_statements, right)),
            tuple(reference_statements[index] for index in sorted(missed)),
        )


@dataclass(frozen=True, slots=True)
class _SortedStatements:
    """The number of right statements of the answer, its wrong statements, and the missing statements of the reference."""

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


def _find_statements(
    statements: Sequence[str], rows: Sequence[ClassifiedStatement], excluded: Sequence[int] = ()
) -> list[int]:
    """Return the indices of the statements that the rows are about, without the excluded indices.

    A row is about the statement with its text, and about equal statements without a row, unless an equal one is excluded. A row
    with another text is about the first statement without a row.
    """
    matched, reworded = _match_rows(statements, rows, excluded)
    keys = {key_of(statements[index]) for index in matched} - {key_of(statements[index]) for index in excluded}
    matched += [
        index for index in _other_indices(statements, [*matched, *excluded]) if key_of(statements[index]) in keys
    ]
    return matched + _other_indices(statements, [*matched, *excluded])[:reworded]


def _match_rows(
    statements: Sequence[str], rows: Sequence[ClassifiedStatement], excluded: Sequence[int] = ()
) -> tuple[list[int], int]:
    """Return the indices of the statements that rows repeat, each index once, and the number of rows with another text."""
    indices_by_key: dict[str, list[int]] = {key_of(statement): [] for statement in statements}
    for index in _other_indices(statements, excluded):
        indices_by_key[key_of(statements[index])].append(index)
    matched, reworded = [], 0
    for row in rows:
        indices = indices_by_key.get(key_of(row.statement))
        if indices is None:
            reworded += 1
        elif indices:
            matched.append(indices.pop(0))
    return matched, reworded


def _other_indices(statements: Sequence[str], indices: Sequence[int]) -> list[int]:
    return sorted({*range(len(statements))} - {*indices})


def _shares(name: str, weights: Any) -> tuple[float, float]:
    parts = list(weights) if isinstance(weights, Sequence) and not isinstance(weights, str) else []
    numbers = [float(part) for part in parts if isinstance(part, int | float) and not isinstance(part, bool)]
    valid = [number for number in numbers if isfinite(number) and number >= 0]
    match valid:
        case [facts, wording] if len(parts) == len(valid) and facts + wording:
            return facts / (facts + wording), wording / (facts + wording)
    raise ConfigurationError(
        f"{name}: weights is {weights!r}; give two numbers, for facts and for wording, not negative and not both 0"
    )
