"""Rouge: the share of words that the answer and the reference have in common, counted by rouge-score."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from spanscore.core.sample import SingleTurnSample
from spanscore.errors import MissingExtraError
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import NamedMetric, refuse_unknown

_WORD_SIGN = re.compile(r"[a-z0-9]")
RougeType = Literal["rouge1", "rougeL"]
RougeMode = Literal["fmeasure", "precision", "recall"]


class Rouge(NamedMetric):
    """How many words do the answer and the reference share?

    Formula: with ``rougeL`` the longest common subsequence of words, with ``rouge1`` the common words; as a share of the answer
    (``precision``), of the reference (``recall``), or the harmonic mean of both (``fmeasure``). Words are stemmed by Porter's
    rules. Range [0, 1], higher is better.

    Fields: ``response``, ``reference``. Judge calls: none. Undefined when neither text has a word that the tokeniser finds; 0
    when only one text has no word.

    Blind spot: meaning: a paraphrase scores low, a "not" more or less hardly changes it. The tokeniser reads ASCII letters and
    digits alone: a text that mixes scripts is judged by its ASCII words. Time grows with the product of the lengths.

    Source: Lin, "ROUGE: A Package for Automatic Evaluation of Summaries" (2004), computed by rouge-score, as in ragas 0.4.3's
    ``RougeScore``. Deviations: a missing field is an outcome, and an unknown type or mode an error, before anything is counted;
    two texts without a known word are undefined (ragas: 0, or 1 if both have the same number); a number is not a word if
    all letters of the text are unknown.

    Args:
        name: name of the metric in its scores.
        rouge_type: ``"rougeL"`` or ``"rouge1"``.
        mode: ``"fmeasure"``, ``"precision"`` or ``"recall"``.
        pass_at: lowest quality that passes.

    Raises:
        MissingExtraError: rouge-score is not installed (extra ``text``).
        ConfigurationError: an unknown type or mode.
    """

    base_version = "2"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("response", "reference")}
    cpu_bound = True

    def __init__(
        self,
        *,
        name: str = "rouge_score",
        rouge_type: RougeType = "rougeL",
        mode: RougeMode = "fmeasure",
        pass_at: float | None = None,
    ) -> None:
        refuse_unknown(name, "rouge_type", rouge_type, RougeType)
        refuse_unknown(name, "mode", mode, RougeMode)
        super().__init__(name=name, pass_at=pass_at)
        self.rouge_type = rouge_type
        self.mode = mode
        try:
            from rouge_score.rouge_scorer import RougeScorer
        except ImportError as error:
            raise MissingExtraError("rouge-score", "text") from error
        self._scorer = RougeScorer([rouge_type], use_stemmer=True)

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Count the words that both texts share."""
        texts = [sample.reference or "", sample.response or ""]
        have_words = [*map(_has_words, texts)]
        if not all(have_words):
            return Finding(
                value=0.0 if any(have_words) else None, reason="neither text has a word for ROUGE's tokeniser"
            )
        counted = self._scorer.score(*texts)[self.rouge_type]
        return Finding(value=float(getattr(counted, self.mode)))


def _has_words(text: str) -> bool:
    """Whether a text has a word for rouge-score, which keeps ``a`` to ``z`` and digits of the lower-case text."""
    matches = _WORD_SIGN.findall(text.lower())
    return bool(matches) and (any(map(str.isalpha, matches)) or not any(map(str.isalpha, text)))
