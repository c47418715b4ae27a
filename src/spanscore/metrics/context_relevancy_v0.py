"""ContextRelevancyV0: which share of the retrieved sentences does the question need? Ragas's first published definition."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any, Literal, Self, TypeAlias

from pydantic import BaseModel

from spanscore.core.prompt import Passages
from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Votes
from spanscore.core.threads import run_interruptibly
from spanscore.errors import ConfigurationError
from spanscore.metrics.kit.base import Finding, parse_language
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.metrics.kit.sentence_transformers_pairs import load_cross_encoder
from spanscore.metrics.kit.sentences_pysbd import segmenter
from spanscore.metrics.kit.step import OwnPrompts, Step, ask_votes, check_votes

PairScorer: TypeAlias = Callable[[Sequence[tuple[str, str]]], Sequence[float]]
"""Function from pairs of sentences to similarities, 0 (unrelated) … 1 (the same), such as ``CrossEncoder(…).predict``."""

_CROSS_ENCODER = "cross-encoder/stsb-TinyBERT-L-4"
"""Default model for comparing sentences, as in ragas 0.0.15."""
_INSUFFICIENT = "insufficient information"
_EDGE = r"(?:(?<!\w)|(?!\w))"
"""Any place that is not inside a word: sentences begin and end there. White space would not do: Chinese has none after a full
stop.
"""
_JSON_BEGINS = ("{", "[", "```")


class ExtractedSentences(BaseModel):
    """Sentences of the context, word for word."""

    sentences: list[str]

    @classmethod
    def from_plain_text(cls, text: str, evidence: Mapping[str, Any]) -> Self | None:
        """Read one sentence per line, or the phrase "insufficient information".

        None for broken JSON, and for a single line that is not in the context, because such a line is a remark of the model.
        """
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if not lines or text.lstrip().startswith(_JSON_BEGINS):
            return None
        if len(lines) == 1:
            if _key(lines[0]) == _INSUFFICIENT:
                return cls(sentences=[])
            if not found_in(str(evidence.get("context", "")), lines):
                return None
        return cls(sentences=lines)


EXTRACT_SENTENCES: Step[ExtractedSentences] = Step(
    name="extract_sentences",
    instruction="""\
The evidence holds a question and a context. Copy from the context, word for word, the sentences that are needed to answer the \
question. Change and add nothing. When none is needed, or the question cannot be answered from it, give an empty list.""",
    output=ExtractedSentences,
    fields={"question": "user_input", "context": "retrieved_contexts"},
)


class ContextRelevancyV0(JudgedMetric):
    """Which share of the retrieved sentences is needed to answer the question?

    Formula: agreement × mean over the judge's k answers of min(sentences that the answer lists / sentences of the contexts, 1).
    The agreement of k > 1 answers is the mean over all pairs of answers. With ``"jaccard"``, it is the sentences in both / the
    sentences in either. With a cross-encoder, it is the similarity of each sentence and its best counterpart. Range [0, 1],
    higher is better. The value is 0 if no sentence is needed or present.

    Fields: ``user_input``, ``retrieved_contexts``. Judge calls: k = ``strictness`` (``extract_sentences``), concurrently.
    Lost answers do not count; at least one answer is required.

    Blind spot: a context that answers in one long sentence beats a context that answers in three sentences; the value depends
    on the split into sentences. The score is low for any long context, however good: compare only scores of retrievers over the
    same corpus.

    Source: Es et al., "RAGAS: Automated Evaluation of Retrieval Augmented Generation" (2023), section 3, as in ragas 0.0.15's
    ``ContextRelevancy``; sentences are cut by pysbd. Deviations: sentences are cut by the rules of their script or of
    ``language`` (there: of English); an extracted sentence that is not in the contexts does not count, and a repeated sentence
    counts once; sentences are compared without white space at their ends (there, white space makes the last sentence of an
    answer differ from the same sentence in the middle of another answer); the default agreement is ``"jaccard"``, which needs
    no model; with a cross-encoder both directions count (there: from the first answer to the second).

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores.
        strictness: k, the number of judge calls.
        agreement: ``"jaccard"``; ``"bert_score"``, a local cross-encoder of the extra ``hhem``; or a function from pairs of
            sentences to numbers 0…1, such as ``CrossEncoder(…).predict``.
        cross_encoder: the model of ``"bert_score"``.
        language: language of the texts, ``"de"`` or ``"german"``, whose rules cut the sentences. None = the rules of each
            line's script, which are the English rules for the Latin script.
        pass_at: lowest quality that passes.
        prompts: ``{"extract_sentences": {"instruction": …, "examples": […]}}``, to replace ours.

    Raises:
        ConfigurationError: ``strictness``, ``agreement``, ``language`` or another argument is invalid, or the model of
            ``"bert_score"`` cannot be loaded.
        MissingExtraError: a library is not installed: pysbd (extra ``text``), or sentence-transformers (extra ``hhem``).
    """

    base_version = "2"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("user_input", "retrieved_contexts")}
    questions = (EXTRACT_SENTENCES,)

    def __init__(
        self,
        judge: Any,
        *,
        name: str = "context_relevancy_v0",
        strictness: int = 1,
        agreement: Literal["jaccard", "bert_score"] | PairScorer = "jaccard",
        cross_encoder: str = _CROSS_ENCODER,
        language: str | None = None,
        pass_at: float | None = None,
        prompts: OwnPrompts | None = None,
    ) -> None:
        super().__init__(judge, name=name, pass_at=pass_at, prompts=prompts)
        self.votes = check_votes(strictness)
        self.agreement = agreement
        self.cross_encoder = cross_encoder
        self._pairs = _pair_scorer(agreement, cross_encoder, name)
        self.language = parse_language(self.name, language)
        self._sentences = segmenter(self.language)

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Ask the judge k times, then compare the extracted sentences."""
        context = Passages.of(sample.retrieved_contexts)
        evidence = {"question": sample.user_input, "context": context}
        answers = await ask_votes(lambda i: self.ask(EXTRACT_SENTENCES, evidence, vote_index=i), self.votes)
        # Long texts take long to cut and compare, so this does not run on the loop of all judges.
        finding = await run_interruptibly(None, self._compare_answers, context, answers)
        return replace(finding, votes=Votes(requested=self.votes, received=len(answers)))

    def _compare_answers(self, context: str, answers: Sequence[ExtractedSentences]) -> Finding:
        extracted = [found_in(context, answer.sentences) for answer in answers]
        invented = sum(len(answer.sentences) for answer in answers) - sum(map(len, extracted))
        total = len(self._sentences(context))
        overlaps = [min(len(sentences) / total, 1.0) if total else 0.0 for sentences in extracted]
        cut = [list(dict.fromkeys(self._sentences("\n".join(sentences)))) for sentences in extracted]
        agreements = [_agreement_of(one, other, self._pairs) for one, other in combinations(cut, 2)]
        agreement = sum(agreements) / len(agreements) if agreements else 1.0
        counts = ", ".join(str(len(sentences)) for sentences in extracted)
        explanation = f"Needed: {counts} of {total} sentences; agreement {agreement:.2f}."
        if invented:
            explanation += f" {invented} extracted sentences are repeated or not in the contexts, and do not count."
        return Finding(value=agreement * sum(overlaps) / len(overlaps), explanation=explanation)


def found_in(context: str, sentences: Sequence[str]) -> list[str]:
    """Return the sentences that a context contains, once each; case, white space and a final full stop do not count."""
    text = f" {_key(context)} "
    keyed = {_key(sentence): sentence for sentence in reversed(sentences)}
    return [
        keyed[key]
        for key in dict.fromkeys(map(_key, sentences))
        if key and re.search(rf"{_EDGE}{re.escape(key)}{_EDGE}", text)
    ]


def _pair_scorer(agreement: Any, model: str, name: str) -> PairScorer | None:
    """Return the function that compares pairs of sentences; None if they are compared for equality."""
    if agreement == "jaccard":
        return None
    if agreement == "bert_score":
        return load_cross_encoder(model)
    if callable(agreement):
        scorer: PairScorer = agreement
        return scorer
    raise ConfigurationError(
        f"{name}: agreement is {agreement!r}; it is 'jaccard', 'bert_score' or a function of pairs"
    )


def _agreement_of(one: Sequence[str], other: Sequence[str], pair_scorer: PairScorer | None) -> float:
    """Return the agreement of two answers, 0…1: 1 if both are empty, 0 if only one is empty."""
    if not one or not other:
        return float(len(one) == len(other))
    if pair_scorer is None:
        common = len(set(one) & set(other))
        return common / (len(set(one)) + len(set(other)) - common)
    flat = [min(1.0, max(0.0, float(score))) for score in pair_scorer(list(product(one, other)))]
    rows = [flat[start : start + len(other)] for start in range(0, len(flat), len(other))]
    forth: list[float] = [max(row) for row in rows]
    back: list[float] = [max(column) for column in zip(*rows, strict=True)]
    return (sum(forth) / len(forth) + sum(back) / len(back)) / 2


def _key(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .。।۔\"'")
