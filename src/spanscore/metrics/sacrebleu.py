"""Bleu and Chrf: the share of common word and character sequences of answer and reference, counted by sacrebleu."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spanscore.core.sample import SingleTurnSample
from spanscore.errors import ConfigurationError, MissingExtraError
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import NamedMetric

_REQUIRES: Mapping[str, tuple[str, ...]] = {"single_turn": ("response", "reference")}
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
