"""Context precision and recall, by a judge, by entities, by the ids of documents, or by string similarity."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar

from pydantic import BaseModel

from spanscore.core.prompt import Passages
from spanscore.core.sample import SingleTurnSample
from spanscore.errors import ConfigurationError, JudgeUnparseable
from spanscore.metrics.kit.averages import average_precision, reaches
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.condition import BinaryAnswer
from spanscore.metrics.kit.distances_rapidfuzz import DistanceMeasure, similarity
from spanscore.metrics.kit.judged import JudgedMetric, NamedMetric, ask_concurrently
from spanscore.metrics.kit.statements import key_of
from spanscore.metrics.kit.step import Step


class ContextVerdict(BaseModel):
    """Why, and whether the context was of use for the answer."""

    reason: str = ""
    verdict: BinaryAnswer


JUDGE_CONTEXT: Step[ContextVerdict] = Step(
    name="judge_context",
    instruction="""\
The evidence holds a question, its answer and one context that a search found. Was this context useful to arrive at the answer?
Verdict 1: it holds at least one fact that the answer states or rests on.
Verdict 0: it does not, even if it is about the same subject.
Give a short reason first.""",
    output=ContextVerdict,
    fields={"question": "user_input", "context": "retrieved_contexts"},
)


class _LLMContextPrecision(JudgedMetric):
    """Base class of the precisions by a judge. ``_answer`` is the field that the judge is shown as the answer."""

    questions = (JUDGE_CONTEXT,)
    _answer: ClassVar[str]

    def beginning(self, kind: str) -> tuple[str, int]:
        """Return no common first field, because each question of a sample begins with a different context."""
        return "", 0

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Judge each context separately, all concurrently."""
        shown = {"question": sample.user_input, "answer": getattr(sample, self._answer)}
        verdicts = await ask_concurrently(
            self.ask(JUDGE_CONTEXT, {**shown, "context": Passages.of([context])})
            for context in sample.retrieved_contexts or ()
        )
        return _precision_finding([bool(verdict.verdict) for verdict in verdicts])


class LLMContextPrecisionWithReference(_LLMContextPrecision):
    """Are the retrieved contexts that help to reach the reference answer ranked before the other contexts?

    Formula: average precision: the mean, over the ranks i of useful contexts, of (useful contexts up to i) / i; 0 if no
    context is useful. Range [0, 1], higher is better.

    Fields: ``user_input``, ``retrieved_contexts`` (best rank first), ``reference``. Judge calls: N for N contexts
    (``judge_context``), concurrently. The score is undefined if no context was retrieved.

    Blind spot: contexts that were not found. One useful context alone scores 1, whichever contexts are missing (ContextRecall
    measures missing contexts). Useless contexts behind the last useful context do not lower the value. Each context is judged
    alone, so two contexts that help only together count as useless.

    Source: ragas 0.4.3's ``LLMContextPrecisionWithReference`` (``ContextPrecision``). Deviations: the score is undefined
    instead of 0 if no context was retrieved; a verdict other than 0 and 1 is repaired once, then an error; no small term in
    the denominator, so a perfect order is 1; missing fields are detected before the first judge call.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "llm_context_precision_with_reference"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("user_input", "retrieved_contexts", "reference")}
    _answer = "reference"


class LLMContextPrecisionWithoutReference(_LLMContextPrecision):
    """Are the retrieved contexts that the answer used ranked before the others? Runs online, because it needs no reference.

    Formula: average precision: the mean, over the ranks i of useful contexts, of (useful contexts up to i) / i; 0 if no
    context is useful. Range [0, 1], higher is better.

    Fields: ``user_input``, ``retrieved_contexts`` (best rank first), ``response``. Judge calls: N for N contexts
    (``judge_context``), concurrently. The score is undefined if no context was retrieved.

    Blind spot: each context that the given answer used is useful: a wrong answer makes its wrong context useful. Contexts
    that were not found, and useless contexts behind the last useful context, do not lower the value.

    Source: ragas 0.4.3's ``LLMContextPrecisionWithoutReference`` (``ContextUtilization``). Deviations: the score is undefined
    instead of 0 if no context was retrieved; a verdict other than 0 and 1 is repaired once, then an error; no small term in
    the denominator, so a perfect order is 1; missing fields are detected before the first judge call.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "llm_context_precision_without_reference"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("user_input", "retrieved_contexts", "response")}
    _answer = "response"


ContextPrecision = LLMContextPrecisionWithReference
"""Short name of ``LLMContextPrecisionWithReference``."""
ContextUtilization = LLMContextPrecisionWithoutReference
"""Short name of ``LLMContextPrecisionWithoutReference``."""


def _precision_finding(relevant: list[bool]) -> Finding:
    """Return the average precision of contexts, with the useful ranks as its explanation; undefined without contexts."""
    ranks = ", ".join(str(rank) for rank, flag in enumerate(relevant, 1) if flag)
    return Finding(
        value=average_precision(relevant),
        reason="nothing was retrieved, so there is no order",
        explanation=f"Useful ranks: {ranks or 'none'} of {len(relevant)}." if relevant else None,
    )


class Attribution(BaseModel):
    """One sentence of the answer, why, and whether the context holds it (1) or not (0)."""

    statement: str
    reason: str = ""
    attributed: BinaryAnswer


class Attributions(BaseModel):
    """One row per sentence of the answer."""

    classifications: list[Attribution]


CLASSIFY_REFERENCE_SENTENCES: Step[Attributions] = Step(
    name="classify_reference_sentences",
    instruction="""\
The evidence holds a question, its answer and a context. Go through the answer sentence by sentence. Attributed 1: the context \
says so, or it follows directly from it. Attributed 0: it does not, or only in part.
What you know from elsewhere does not count. Give one row per sentence, in order: the sentence, a short reason, the flag.""",
    output=Attributions,
    fields={"question": "user_input", "context": "retrieved_contexts"},
)


class LLMContextRecall(JudgedMetric):
    """Which share of the reference answer do the retrieved contexts hold?

    Formula: sentences of the reference that the contexts support / all its sentences. Range [0, 1], higher is better.

    Fields: ``user_input``, ``retrieved_contexts``, ``reference``. Judge calls: 1 (``classify_reference_sentences``), also for
    an empty context list. The score is undefined if the reference is blank and the judge finds no sentence in it.

    Blind spot: contexts that are not needed. A search that returns everything scores 1. The judge itself splits the reference
    into sentences; a long sentence counts as much as a short one.

    Source: ragas 0.4.3's ``LLMContextRecall`` (``ContextRecall``). Deviations: a flag other than 0 and 1 is repaired once,
    then an error (in ragas every non-zero number means yes); an answer without rows for a reference that has words is an
    error (ragas: nan); a row without a sentence does not count; missing fields are detected before the first judge call.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "llm_context_recall"
    base_version = "2"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("user_input", "retrieved_contexts", "reference")}
    questions = (CLASSIFY_REFERENCE_SENTENCES,)

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Let the judge find which sentences of the reference the contexts support."""
        context = Passages.of(sample.retrieved_contexts)
        evidence = {"question": sample.user_input, "context": context, "answer": sample.reference}
        answer = await self.ask(CLASSIFY_REFERENCE_SENTENCES, evidence)
        rows = [row for row in answer.classifications if key_of(row.statement)]
        if not rows:
            if key_of(sample.reference or ""):
                raise JudgeUnparseable("the judge gave no verdict on any sentence of the reference")
            return Finding(value=None, reason="the reference has no sentence")
        held = sum(row.attributed for row in rows)
        lines = [f"{held} of {len(rows)} sentences of the reference are in the contexts."]
        missing = (row for row in rows if not row.attributed)
        lines += [f"Not there: {row.statement}" + (f" ({row.reason})" if row.reason else "") for row in missing]
        return Finding(value=held / len(rows), explanation="\n".join(lines))


ContextRecall = LLMContextRecall
"""Short name of ``LLMContextRecall``."""


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
        listed = await ask_concurrently(
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


class IDBasedContextPrecision(NamedMetric):
    """Which share of the retrieved documents is among those that should have been found?

    Formula: different ids that are in both lists / different retrieved ids. Ids are compared as text: 7 is ``"7"``, and not
    ``"07"``. Range [0, 1], higher is better.

    Fields: ``retrieved_context_ids``, ``reference_context_ids``. Judge calls: none. Undefined when nothing was retrieved; 0
    when nothing should have been.

    Blind spot: the order, repeated documents, and documents as good as those of the reference.

    Source: ragas 0.4.3's ``IDBasedContextPrecision``. Deviations: an undefined score has a reason.

    Args:
        name: name of the metric in its scores.
        pass_at: lowest quality that passes.
    """

    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("retrieved_context_ids", "reference_context_ids")}
    name = "id_based_context_precision"

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Compare the two sets of ids."""
        retrieved, reference = _ids(sample)
        if not retrieved:
            return Finding(value=None, reason="nothing was retrieved")
        right = len(retrieved & reference)
        explanation = f"{right} of {len(retrieved)} retrieved documents are among the expected."
        return Finding(value=right / len(retrieved), explanation=explanation)


class IDBasedContextRecall(NamedMetric):
    """Which share of the documents that should have been found was retrieved?

    Formula: different ids that are in both lists / different reference ids. Ids are compared as text: 7 is ``"7"``, and not
    ``"07"``. Range [0, 1], higher is better.

    Fields: ``retrieved_context_ids``, ``reference_context_ids``. Judge calls: none. Undefined when no document should have been
    found; 0 when nothing was.

    Blind spot: the order, and everything that was retrieved besides.

    Source: ragas 0.4.3's ``IDBasedContextRecall``. Deviations: an undefined score has a reason.

    Args:
        name: name of the metric in its scores.
        pass_at: lowest quality that passes.
    """

    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("retrieved_context_ids", "reference_context_ids")}
    name = "id_based_context_recall"

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Compare the two sets of ids."""
        retrieved, reference = _ids(sample)
        if not reference:
            return Finding(value=None, reason="the reference names no document")
        hits = len(retrieved & reference)
        explanation = f"{hits} of {len(reference)} expected documents were retrieved."
        return Finding(value=hits / len(reference), explanation=explanation)


def _ids(sample: SingleTurnSample) -> tuple[set[str], set[str]]:
    retrieved, reference = sample.retrieved_context_ids or (), sample.reference_context_ids or ()
    return set(map(str, retrieved)), set(map(str, reference))


class _ContextStrings(NamedMetric):
    """Base class of the two metrics by string similarity: fields, threshold and distance."""

    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("retrieved_contexts", "reference_contexts")}
    cpu_bound = True

    def __init__(
        self,
        *,
        name: str | None = None,
        threshold: float = 0.5,
        distance_measure: DistanceMeasure = "levenshtein",
        pass_at: float | None = None,
    ) -> None:
        super().__init__(name=name, pass_at=pass_at)
        if not 0.0 <= threshold <= 1.0:
            raise ConfigurationError(f"{self.name}: threshold is {threshold}; it is a similarity, between 0 and 1")
        self.threshold = threshold
        self.distance_measure = distance_measure
        self._similarity = similarity(distance_measure)

    def _has_match(self, text: str, others: Iterable[str]) -> bool:
        return any(reaches(self._similarity(other, text), self.threshold) for other in others)


class NonLLMContextPrecisionWithReference(_ContextStrings):
    """Are the retrieved contexts that resemble a reference context ranked before the other contexts?

    Formula: a retrieved context is right when its similarity to some reference context is at least ``threshold``; of these,
    average precision: the mean, over the ranks i of right contexts, of (right contexts up to i) / i; 0 when none is right.
    Range [0, 1], higher is better.

    Fields: ``retrieved_contexts`` (best rank first), ``reference_contexts``. Judge calls: none. Undefined when nothing was
    retrieved; 0 when no context should have been.

    Blind spot: the letters are compared, not the meaning: a context that was cut elsewhere or paraphrased is wrong.
    Hamming and Jaro suit short texts only.

    Source: ragas 0.4.3's ``NonLLMContextPrecisionWithReference``. Deviations: undefined instead of 0 when nothing was
    retrieved, 0 instead of an exception when there is no reference context; no small term in the denominator, so a
    perfect order is 1.

    Args:
        name: name of the metric in its scores.
        threshold: least similarity that counts, 0…1.
        distance_measure: ``"levenshtein"``, ``"hamming"``, ``"jaro"`` or ``"jaro_winkler"``.
        pass_at: lowest quality that passes.

    Raises:
        ConfigurationError: ``threshold`` is outside 0…1, or ``distance_measure`` or another argument is invalid.
        MissingExtraError: rapidfuzz is not installed (extra ``text``).
    """

    name = "non_llm_context_precision"

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Compare each retrieved context with the reference contexts."""
        reference = sample.reference_contexts or ()
        return _precision_finding([self._has_match(context, reference) for context in sample.retrieved_contexts or ()])


class NonLLMContextRecall(_ContextStrings):
    """Which share of the reference contexts was retrieved, literally or with a similar text?

    Formula: reference contexts with a similarity of at least ``threshold`` to a retrieved context / all reference contexts.
    Range [0, 1], higher is better.

    Fields: ``retrieved_contexts``, ``reference_contexts``. Judge calls: none. Undefined when there is no reference context; 0
    when nothing was retrieved.

    Blind spot: the letters are compared, not the meaning: a context that was cut elsewhere or paraphrased counts as not
    found. Other retrieved contexts do not lower the value.

    Source: ragas 0.4.3's ``NonLLMContextRecall``. Deviations: a similarity equal to the threshold counts, as it does for the
    precision (ragas: only above it); 0 instead of an exception when nothing was retrieved; an undefined score has a reason.

    Args:
        name: name of the metric in its scores.
        threshold: least similarity that counts, 0…1.
        distance_measure: ``"levenshtein"``, ``"hamming"``, ``"jaro"`` or ``"jaro_winkler"``.
        pass_at: lowest quality that passes.

    Raises:
        ConfigurationError: ``threshold`` is outside 0…1, or ``distance_measure`` or another argument is invalid.
        MissingExtraError: rapidfuzz is not installed (extra ``text``).
    """

    name = "non_llm_context_recall"

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Look for each reference context among the retrieved contexts."""
        reference = sample.reference_contexts or ()
        if not reference:
            return Finding(value=None, reason="there is no reference context to be found")
        hits = sum(self._has_match(context, sample.retrieved_contexts or ()) for context in reference)
        explanation = f"{hits} of {len(reference)} reference contexts were retrieved."
        return Finding(value=hits / len(reference), explanation=explanation)
