"""Rouge, Bleu and Chrf: the words or characters that answer and reference share, by rouge-score and sacrebleu."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from spanscore.core.sample import SingleTurnSample
from spanscore.errors import ConfigurationError, MissingExtraError
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import NamedMetric, refuse_unknown

_REQUIRES: Mapping[str, tuple[str, ...]] = {"single_turn": ("response", "reference")}
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
    requires = _REQUIRES
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


_BLANK = Finding(value=None, reason="both texts are blank")


class Bleu(NamedMetric):
    """Which share of the answer's word sequences is in the reference?

    Formula: sentence-level BLEU of the whole texts, divided by 100: the geometric mean of the precisions of 1 to 4 words in a
    row (fewer for a shorter answer), times a penalty for an answer shorter than the reference. Range [0, 1], higher is better.

    Fields: ``response``, ``reference``. Judge calls: none. Undefined when both texts are blank; 0 when one of them is.

    Blind spot: meaning. A paraphrase scores low, and a "not" more or less hardly changes it. Made for translations of whole
    corpora: on single short answers it is coarse.

    Source: Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation" (2002), computed by sacrebleu, as
    in ragas 0.4.3's ``BleuScore``. Deviations: the whole answer counts (ragas cuts at full stops and then scores the first
    sentence alone); an answer of fewer than four words can be right (ragas: 0); two blank texts are undefined (ragas: 0).

    Args:
        name: name of the metric in its scores.
        kwargs: parameters of sacrebleu: ``smooth_method``, ``smooth_value``, ``lowercase``, ``tokenize``.
        pass_at: lowest quality that passes.

    Raises:
        MissingExtraError: sacrebleu is not installed (extra ``text``).
        ConfigurationError: sacrebleu does not accept ``kwargs``.
    """

    base_version = "2"
    requires = _REQUIRES
    cpu_bound = True

    def __init__(
        self, *, name: str = "bleu_score", kwargs: Mapping[str, Any] | None = None, pass_at: float | None = None
    ) -> None:
        super().__init__(name=name, pass_at=pass_at)
        self.kwargs = dict(kwargs or {})
        settings = {"effective_order": True, **self.kwargs}
        if "use_effective_order" in settings:  # the name of this parameter in sacrebleu's functions, and so in ragas
            settings["effective_order"] = settings.pop("use_effective_order")
        try:
            self._bleu = _sacrebleu().BLEU(**settings)
        except (TypeError, AssertionError) as error:
            raise ConfigurationError(f"{name}: kwargs are sacrebleu's: {error}") from error

    async def measure(self, sample: SingleTurnSample) -> float | Finding:
        """Count common word sequences."""
        if _is_blank(sample):
            return _BLANK
        return float(self._bleu.sentence_score(sample.response, [sample.reference]).score) / 100


class Chrf(NamedMetric):
    """Which share of the reference's character sequences does the answer have, and the answer's the reference?

    Formula: chrF, divided by 100: the F-score with recall counted double, averaged over sequences of 1 to 6 characters, white
    space left out. Range [0, 1], higher is better.

    Fields: ``response``, ``reference``. Judge calls: none. Undefined when both texts are blank; 0 when one of them is.

    Blind spot: meaning. chrF forgives endings and typing errors, which BLEU does not, and wrong numbers and a missing "not".

    Source: Popović, "chrF: character n-gram F-score for automatic MT evaluation" (2015), computed by sacrebleu, as in ragas
    0.4.3's ``CHRFScore``. Deviations: a missing field is an outcome, and two blank texts are undefined (ragas: 0).

    Args:
        name: name of the metric in its scores.
        pass_at: lowest quality that passes.

    Raises:
        MissingExtraError: sacrebleu is not installed (extra ``text``).
    """

    base_version = "2"
    requires = _REQUIRES
    cpu_bound = True

    def __init__(self, *, name: str = "chrf_score", pass_at: float | None = None) -> None:
        super().__init__(name=name, pass_at=pass_at)
        self._chrf = _sacrebleu().CHRF()

    async def measure(self, sample: SingleTurnSample) -> float | Finding:
        """Count common character sequences."""
        if _is_blank(sample):
            return _BLANK
        return float(self._chrf.corpus_score([sample.response], [[sample.reference]]).score) / 100


def _is_blank(sample: SingleTurnSample) -> bool:
    return not f"{sample.response}{sample.reference}".strip()


def _sacrebleu() -> Any:
    try:
        from sacrebleu import metrics
    except ImportError as error:
        raise MissingExtraError("sacrebleu", "text") from error
    return metrics
