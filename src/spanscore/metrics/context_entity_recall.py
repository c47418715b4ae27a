"""ContextEntityRecall: are the names, dates and figures of the reference in the retrieved contexts?"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pydantic import BaseModel

from spanscore.core.prompt import Passages
from spanscore.core.sample import SingleTurnSample
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import JudgedMetric, together
from spanscore.metrics.kit.step import Step


class Entities(BaseModel):
    """Entities, once each."""

    entities: list[str]


EXTRACT_ENTITIES_REFERENCE: Step[Entities] = Step(
    name="extract_entities_reference",
    instruction="""\
List the entities in the text: names of people, places, organisations, works and products, dates, amounts and figures.
Copy each as the text writes it, once, without articles or titles. A text without any gives an empty list.""",
    output=Entities,
    fields={"text": "reference"},
)
EXTRACT_ENTITIES_CONTEXTS = replace(
    EXTRACT_ENTITIES_REFERENCE, name="extract_entities_contexts", fields={"text": "retrieved_contexts"}
)


class ContextEntityRecall(JudgedMetric):
    """Which share of the reference's names, dates and figures do the retrieved contexts mention?

    Formula: different entities that both texts have / different entities of the reference. Entities are compared after
    Unicode normalisation (NFKC), without case and with single spaces. Range [0, 1], higher is better.

    Fields: ``reference``, ``retrieved_contexts``. Judge calls: 2 (``extract_entities_reference``,
    ``extract_entities_contexts``), concurrently. The score is undefined if the reference has no entity.

    Blind spot: statements about the entities; other names of the same thing ("NYC"); both lists are the judge's choice.

    Source: ragas 0.4.3's ``ContextEntityRecall``. Deviations: the score is undefined instead of 0 if the reference has no
    entity; an entity that is listed twice counts once (ragas divides by the length of the list); case, width and white space
    do not count (ragas compares the exact text); no small term in the denominator.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "context_entity_recall"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("reference", "retrieved_contexts")}
    questions = (EXTRACT_ENTITIES_REFERENCE, EXTRACT_ENTITIES_CONTEXTS)

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Let the judge list the entities of the reference and of the contexts, then compare the lists."""
        context = Passages.of(sample.retrieved_contexts)
        listed = await together(
            self.ask(step, {"text": text})
            for step, text in ((EXTRACT_ENTITIES_REFERENCE, sample.reference), (EXTRACT_ENTITIES_CONTEXTS, context))
        )
        reference, retrieved = (_by_key(entities.entities) for entities in listed)
        if not reference:
            return Finding(value=None, reason="the reference names no entity")
        missing = [entity for key, entity in reference.items() if key not in retrieved]
        there = len(reference) - len(missing)
        explanation = f"{there} of {len(reference)} entities of the reference are in the contexts."
        if missing:
            explanation += f" Missing: {', '.join(missing)}."
        return Finding(value=there / len(reference), explanation=explanation)


def _by_key(entities: Iterable[str]) -> dict[str, str]:
    """Return normalised key → entity as written; entities with an empty key are left out."""
    keyed = {" ".join(unicodedata.normalize("NFKC", entity).casefold().split()): entity for entity in entities}
    return {key: entity for key, entity in keyed.items() if key}
