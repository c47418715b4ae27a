"""Faithfulness: do the retrieved contexts support the claims of the answer?"""

from __future__ import annotations

from collections.abc import Mapping

from spanscore.core.prompt import Passages
from spanscore.core.sample import SingleTurnSample
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.metrics.kit.statements import EXTRACT_STATEMENTS, VERIFY_STATEMENTS, align


class Faithfulness(JudgedMetric):
    """Which share of the answer's claims do the retrieved contexts support?

    Formula: supported statements / all statements. Range [0, 1], higher is better. A single statement that is not
    supported already costs 1/n.

    Fields: ``user_input``, ``response``, ``retrieved_contexts``. An empty context list is judged, and supports no statement.
    Judge calls: 2 (``extract_statements``, ``verify_statements``); 1 if the answer has no statement; the score is undefined
    then. An answer without any verdict is an error.

    Blind spot: a statement that a wrong context supports counts as supported. The metric does not check truth. An answer to
    only a part of the question can score 1. A score is no better than the judge's split of the answer into statements.

    Source: Es et al., "RAGAS: Automated Evaluation of Retrieval Augmented Generation" (2023), section 3, as in ragas 0.4.3's
    ``Faithfulness``. Deviations: verdicts are matched to statements, so a statement without a row counts as unsupported (the
    explanation lists it) and a row that belongs to no statement is ignored; ragas divides by the rows that came. If one of
    several equal statements has a row, the row applies to all of them. An empty statement does not count. A verdict other
    than 0 and 1 is repaired once, then an error; in ragas every non-zero number means yes. An answer without any verdict is
    an error (ragas: nan). Missing fields are detected before the first judge call.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "faithfulness"
    base_version = "2"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("user_input", "response", "retrieved_contexts")}
    questions = (EXTRACT_STATEMENTS, VERIFY_STATEMENTS)

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Extract the statements of the answer, then verify them against the contexts."""
        extracted = await self.ask(EXTRACT_STATEMENTS, {"question": sample.user_input, "answer": sample.response})
        statements = extracted.statements
        if not statements:
            return Finding(value=None, reason="the answer states nothing that could be checked")
        context = Passages.of(sample.retrieved_contexts)
        verdicts = await self.ask(VERIFY_STATEMENTS, {"context": context, "statements": statements})
        aligned = align(statements, verdicts.statements)
        lines = [f"{aligned.supported} of {len(statements)} statements are supported."]
        lines += [f"{line[0].upper()}{line[1:]}" for line in aligned.unsupported(statements)]
        if aligned.extra:
            lines.append(f"{aligned.extra} verdicts on other statements were ignored.")
        return Finding(value=aligned.supported / len(statements), explanation="\n".join(lines))
