"""FactualCorrectness: do the answer and the reference claim the same facts?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel

from spanscore.core.prompt import Example
from spanscore.core.sample import SingleTurnSample
from spanscore.metrics.kit.averages import Mode, check_beta, f_beta, ratio
from spanscore.metrics.kit.base import LANGUAGES, Finding, parse_language
from spanscore.metrics.kit.judged import JudgedMetric, ask_concurrently, refuse_unknown
from spanscore.metrics.kit.statements import VERIFY_STATEMENTS, Aligned, NonBlankStatements, Verdicts, align
from spanscore.metrics.kit.step import OwnPrompts, Step

Level = Literal["low", "high"]
Recall = Literal["mixed", "claims"]


class Claims(BaseModel):
    """Claims, each understandable on its own."""

    claims: NonBlankStatements


VERIFY_RESPONSE = replace(VERIFY_STATEMENTS, name="verify_response_claims", fields={"context": "reference"})
VERIFY_REFERENCE = replace(VERIFY_STATEMENTS, name="verify_reference_claims", fields={"context": "response"})
_DECOMPOSE = """\
The evidence is a text. List the facts it claims, each as one sentence that can be checked without the rest (names in place of \
pronouns). {atomicity} {coverage} Add nothing, correct nothing. A text without claims gives an empty list."""
_ATOMICITY: Mapping[str, str] = {
    "low": "Keep facts that stand together in one sentence together.",
    "high": "One fact in each: split lists, dates, places and reasons off.",
}
_COVERAGE: Mapping[str, str] = {
    "low": "Leave out side remarks that the text would be as true without.",
    "high": "Leave no fact out, however small.",
}
_TEXT = "Ada Holm, an engineer from Skerry, built the lighthouse in 1888; it still guides ships."
_EXAMPLES: Mapping[tuple[str, str], list[str]] = {
    ("low", "low"): ["Ada Holm built the lighthouse in 1888.", "The lighthouse still guides ships."],
    ("low", "high"): [
        "Ada Holm, an engineer from Skerry, built the lighthouse in 1888.",
        "The lighthouse still guides ships.",
    ],
    ("high", "low"): [
        "Ada Holm built the lighthouse.",
        "The lighthouse was built in 1888.",
        "The lighthouse still guides ships.",
    ],
    ("high", "high"): [
        "Ada Holm was an engineer.",
        "Ada Holm came from Skerry.",
        "Ada Holm built the lighthouse.",
        "The lighthouse was built in 1888.",
        "The lighthouse still guides ships.",
    ],
}


def _decompose(name: str, atomicity: Level, coverage: Level, language: str | None) -> Step[Claims]:
    instruction = _DECOMPOSE.format(atomicity=_ATOMICITY[atomicity], coverage=_COVERAGE[coverage])
    return Step(
        name=name,
        instruction=instruction if language is None else f"{instruction} Write the facts in {LANGUAGES[language]}.",
        output=Claims,
        examples=(Example(evidence={"response": _TEXT}, output={"claims": _EXAMPLES[atomicity, coverage]}),),
    )


class FactualCorrectness(JudgedMetric):
    """Do the answer and the reference claim the same facts?

    Formula: the answer's claims are checked against the reference: TP is the number of supported claims, FP that of the others.
    The reference's claims are checked against the answer: FN is the number of unsupported claims. precision =
    TP / (TP + FP); recall = TP / (TP + FN), or with ``recall="claims"`` the share of the reference's claims that the answer
    supports; f1 = the F-beta of both. Range [0, 1], higher is better. The counts are in the explanation.

    Fields: ``response``, ``reference``. Judge calls: 4 (``decompose_response`` then ``verify_response_claims``, concurrently
    ``decompose_reference`` then ``verify_reference_claims``); 2 for precision; a text without claims is not verified. With
    ``mode="precision"``, an answer without claims scores 0. Otherwise the score is undefined if neither text has a claim, and
    with ``recall="claims"`` also if the reference has none.

    Blind spot: the default recall mixes two counts: TP are claims of the answer, FN are claims of the reference. An answer
    that splits one fact into five claims therefore has a better recall. A side remark counts as much as the main point.

    Source: ragas 0.4.3's ``FactualCorrectness``; the idea of precision over atomic claims is Min et al., "FActScore" (2023).
    Deviations: ``recall="claims"``; verdicts are matched to claims, and a claim without a verdict counts as not supported; a
    verdict other than 0 and 1 is repaired once, then an error; an empty list is not verified, and the score is undefined if
    both lists are empty (ragas: 0); the value is not rounded to two decimals; no small term in the denominators.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores.
        mode: ``"f1"``, ``"precision"`` or ``"recall"``.
        beta: weight of recall relative to precision.
        atomicity: with ``"high"``, the judge splits claims more finely.
        coverage: with ``"high"``, the judge keeps side remarks.
        recall: ``"mixed"`` (ragas's formula) or ``"claims"``.
        language: language of the claims that the judge writes, ``"de"`` or ``"german"``, and of ``adapt``. None = the judge
            chooses.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.

    Raises:
        ConfigurationError: ``mode``, ``beta``, a level, ``recall``, ``language`` or another argument is invalid.
    """

    base_version = "2"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("response", "reference")}

    def __init__(
        self,
        judge: Any,
        *,
        name: str = "factual_correctness",
        mode: Mode = "f1",
        beta: float = 1.0,
        atomicity: Level = "low",
        coverage: Level = "low",
        recall: Recall = "mixed",
        language: str | None = None,
        pass_at: float | None = None,
        prompts: OwnPrompts | None = None,
    ) -> None:
        refuse_unknown(name, "mode", mode, Mode)
        refuse_unknown(name, "atomicity", atomicity, Level)
        refuse_unknown(name, "coverage", coverage, Level)
        refuse_unknown(name, "recall", recall, Recall)
        self._language = parse_language(name, language)
        self._response = _decompose("decompose_response", atomicity, coverage, self._language), VERIFY_RESPONSE
        self._reference = _decompose("decompose_reference", atomicity, coverage, self._language), VERIFY_REFERENCE
        self.questions = self._response if mode == "precision" else (*self._response, *self._reference)
        super().__init__(judge, name=name, pass_at=pass_at, prompts=prompts)
        self.mode = mode
        self.beta = check_beta(beta)
        self.recall = recall

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Check the claims of each text against the other text, concurrently."""
        response, reference = sample.response or "", sample.reference or ""
        questions = [self._check_claims(*self._response, text=response, context=reference)]
        if self.mode != "precision":
            questions.append(self._check_claims(*self._reference, text=reference, context=response))
        of_response, *rest = await ask_concurrently(questions)
        explanation = f"The answer, against the reference: {of_response}"
        precision = ratio(of_response.supported, len(of_response.claims))
        if not rest:
            return Finding(value=precision, explanation=explanation)
        (of_reference,) = rest
        return Finding(
            value=self._value(precision, of_response, of_reference),
            # the reason is used only without a value
            reason="the reference claims nothing" if of_response.claims else "neither text claims anything",
            explanation=f"{explanation}\nThe reference, against the answer: {of_reference}",
        )

    def _value(self, precision: float, response: _CheckedClaims, reference: _CheckedClaims) -> float | None:
        if not reference.claims and (self.recall == "claims" or not response.claims):
            return None
        if self.recall == "claims":
            recall = ratio(reference.supported, len(reference.claims))
        else:
            unsupported = len(reference.claims) - reference.supported
            recall = ratio(response.supported, response.supported + unsupported)
        return recall if self.mode == "recall" else f_beta(precision, recall, beta=self.beta)

    async def _check_claims(
        self, decompose: Step[Claims], verify: Step[Verdicts], *, text: str, context: str
    ) -> _CheckedClaims:
        claims = (
            await self.ask(decompose, {"response": text})
        ).claims  # one prompt for both texts: ``response`` is either
        if not claims:
            return _CheckedClaims((), Aligned((), 0))
        verdicts = await self.ask(verify, {"context": context, "statements": claims})
        return _CheckedClaims(tuple(claims), align(claims, verdicts.statements))


@dataclass(frozen=True, slots=True)
class _CheckedClaims:
    """The claims of one text, and which of these claims the other text supports."""

    claims: tuple[str, ...]
    verdicts: Aligned

    @property
    def supported(self) -> int:
        return self.verdicts.supported

    def __str__(self) -> str:
        lines = [f"  {line}" for line in self.verdicts.unsupported(self.claims)]
        return "\n".join([f"{self.supported} of {len(self.claims)} claims are supported.", *lines])
