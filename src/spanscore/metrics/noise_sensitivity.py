"""NoiseSensitivity: which share of the answer is wrong because of the retrieved contexts?"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from spanscore.core.prompt import Passages
from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Scale
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import JudgedMetric, ask_concurrently, refuse_unknown
from spanscore.metrics.kit.statements import EXTRACT_STATEMENTS, VERIFY_STATEMENTS, Aligned, align
from spanscore.metrics.kit.step import OwnPrompts, Step

NoiseMode = Literal["relevant", "irrelevant"]

# The extractions omit the examples of Faithfulness, because each sample would pay for them twice.
_EXTRACT = replace(EXTRACT_STATEMENTS, examples=())
EXTRACT_REFERENCE = replace(_EXTRACT, name="extract_statements_reference", fields={"question": "user_input"})
EXTRACT_RESPONSE = replace(_EXTRACT, name="extract_statements_response")
VERIFY_REFERENCE = replace(VERIFY_STATEMENTS, name="verify_reference_statements")
VERIFY_RESPONSE = replace(VERIFY_STATEMENTS, name="verify_response_statements")
VERIFY_AGAINST_REFERENCE = replace(
    VERIFY_STATEMENTS, name="verify_response_against_reference", fields={"context": "reference"}
)


class NoiseSensitivity(JudgedMetric):
    """Which share of the answer's statements is wrong, and comes from the retrieved contexts?

    Formula: a context is relevant when it supports a statement of the reference; a statement of the answer is wrong when the
    reference does not support it. ``mode="relevant"``: wrong statements that a relevant context supports / all statements of
    the answer. The answer repeats wrong information from relevant contexts. ``mode="irrelevant"``: wrong statements that an
    irrelevant context supports and no relevant context supports / all statements of the answer. The answer relies on
    irrelevant contexts. Range [0, 1], lower is better.

    Fields: ``user_input``, ``response``, ``reference``, ``retrieved_contexts``. Judge calls: 2N + 3 for N contexts. Both
    extractions are concurrent (``extract_statements_reference``, ``extract_statements_response``), then all verdicts
    (``verify_reference_statements`` and ``verify_response_statements`` per context, ``verify_response_against_reference``).
    The score is undefined if a field is empty; no call is made then. It is also undefined if the answer or the reference has
    no statement; no verdict is requested then.

    Blind spot: errors that no context supports (invented facts, which Faithfulness measures); omissions of the answer. A
    statement that is true and missing in the reference counts as wrong.

    Source: Ru et al., "RAGChecker" (2024), section 3.3.2, as in ragas 0.4.3's ``NoiseSensitivity``. Deviations: verdicts are
    matched to statements. A statement without a verdict counts as not supported; the explanation has their number. A surplus
    verdict is ignored. An answer without any matching verdict is an error. In these three cases ragas applies NumPy's
    broadcasting rules or raises an error. The score is undefined if the answer or the reference has no statement (ragas raises
    an error for the reference), or if a field is empty (ragas raises an error). An answer with a verdict other than 0 and 1 is
    repaired once; a second one is an error. An unknown mode is an error.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores.
        mode: ``"relevant"`` or ``"irrelevant"``.
        pass_at: lowest quality (1 − value) that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.

    Raises:
        ConfigurationError: ``mode`` or another argument is invalid.
    """

    base_version = "2"
    requires: Mapping[str, tuple[str, ...]] = {
        "single_turn": ("user_input", "response", "reference", "retrieved_contexts")
    }
    scale = Scale(direction="lower")
    questions = (EXTRACT_REFERENCE, EXTRACT_RESPONSE, VERIFY_REFERENCE, VERIFY_RESPONSE, VERIFY_AGAINST_REFERENCE)

    def __init__(
        self,
        judge: Any,
        *,
        name: str = "noise_sensitivity",
        mode: NoiseMode = "relevant",
        pass_at: float | None = None,
        prompts: OwnPrompts | None = None,
    ) -> None:
        super().__init__(judge, name=name, pass_at=pass_at, prompts=prompts)
        refuse_unknown(name, "mode", mode, NoiseMode)
        self.mode: NoiseMode = mode

    def beginning(self, kind: str) -> tuple[str, int]:
        """Return an empty name and 0: no field is common, because most questions begin with a single context."""
        return "", 0

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Extract the statements of the reference and the answer, then verify them against each context."""
        if empty := [field for field in self.requires["single_turn"] if not getattr(sample, field)]:
            return Finding(value=None, reason=f"{' and '.join(empty)} is empty")
        extracted = await ask_concurrently(
            self.ask(step, {"question": sample.user_input, "answer": text})
            for step, text in ((EXTRACT_REFERENCE, sample.reference), (EXTRACT_RESPONSE, sample.response))
        )
        reference, response = (answer.statements for answer in extracted)
        for statements, side in ((response, "answer"), (reference, "reference")):
            if not statements:
                return Finding(value=None, reason=f"the {side} states nothing that could be checked")
        verdicts: list[Coroutine[Any, Any, Aligned]] = []
        for context in (Passages.of([text]) for text in sample.retrieved_contexts or ()):
            verdicts.append(self._verdicts(VERIFY_REFERENCE, context, reference))
            verdicts.append(self._verdicts(VERIFY_RESPONSE, context, response))
        verdicts.append(self._verdicts(VERIFY_AGAINST_REFERENCE, sample.reference or "", response))
        *by_context, truth = await ask_concurrently(verdicts)
        return self._to_finding(response, by_context[::2], by_context[1::2], truth)

    async def _verdicts(self, step: Step[Any], context: str, statements: Sequence[str]) -> Aligned:
        answer = await self.ask(step, {"context": context, "statements": statements})
        return align(statements, answer.statements)

    def _to_finding(
        self, statements: Sequence[str], reference: list[Aligned], response: list[Aligned], truth: Aligned
    ) -> Finding:
        """Return the score. ``reference`` and ``response`` have the verdicts by each context, ``truth`` by the reference."""
        relevant = [aligned.supported > 0 for aligned in reference]
        noisy_statements = []
        for index, statement in enumerate(statements):
            verdicts = zip(relevant, response, strict=True)
            supporting = {is_relevant for is_relevant, aligned in verdicts if aligned.supports(index)}
            is_noise = True in supporting if self.mode == "relevant" else supporting == {False}
            if is_noise and not truth.supports(index):
                noisy_statements.append(statement)
        lines = [
            f"{len(noisy_statements)} of {len(statements)} statements are wrong and come from {self.mode} contexts; "
            f"{sum(relevant)} of {len(reference)} contexts are relevant.",
            *(f"Wrong: {statement}" for statement in noisy_statements),
        ]
        if missing := sum(aligned.missing for aligned in (*reference, *response, truth)):
            lines.append(f"No verdict, counted as not supported: {missing} times.")
        return Finding(value=len(noisy_statements) / len(statements), explanation="\n".join(lines))
