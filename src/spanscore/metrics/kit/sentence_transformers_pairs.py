"""Load a local model as a function of pairs of texts: an entailment classifier such as HHEM, or a cross-encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from spanscore.errors import ConfigurationError, MissingExtraError

Pairs: TypeAlias = Sequence[tuple[str, str]]

HHEM = "vectara/hallucination_evaluation_model"
"""Vectara's hallucination evaluation model."""


def load_entailment_classifier(model: str = HHEM, *, device: str | None = None) -> Callable[[Pairs], list[float]]:
    """Load a classifier, which takes seconds and may download it, and return it as a function of pairs.

    Code that comes with a model is run (``trust_remote_code``). HHEM contains such code: if that is not acceptable, give the
    path of a copy that you have read. A model without a method ``predict`` must be a sequence
    classifier: the probability is that of its label that begins with "entail", or of its only label. With a sequence
    classifier, a context that is too long is cut, a statement never; HHEM gets every text whole.

    Args:
        model: name on the Hugging Face hub, or path of a folder.
        device: device for the model (``"cpu"``, ``"cuda"``); None = the device on which transformers loads it.

    Raises:
        MissingExtraError: transformers is not installed.
        ConfigurationError: the model cannot be loaded, or none of its several labels begins with "entail".
        Exception: the error of transformers or torch, if the device is wrong, or the tokenizer cannot be loaded.
    """
    try:
        from transformers import AutoModelForSequenceClassification
    except ImportError as error:
        raise MissingExtraError("transformers", "hhem") from error
    try:
        with _without_progress():
            classifier = AutoModelForSequenceClassification.from_pretrained(model, trust_remote_code=True)
    except Exception as error:  # transformers raises many types: missing file, network, configuration
        raise ConfigurationError(
            f"the classifier {model!r} could not be loaded ({type(error).__name__}): it is a name on the hub, or the path of a "
            "folder that holds a model for the classification of sequences"
        ) from error
    if device is not None:
        classifier.to(device)
    if hasattr(classifier, "predict"):
        return lambda pairs: [float(score) for score in classifier.predict(list(pairs)).cpu().detach()]
    return _pipeline(classifier, model)


def load_cross_encoder(model: str) -> Callable[[Pairs], list[float]]:
    """Load a cross-encoder, which takes seconds and may download it, and return it as a function of pairs.

    Args:
        model: name on the Hugging Face hub, or path of a folder.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
        ConfigurationError: the model cannot be loaded, or gives more than one number for a pair.
    """
    try:
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise MissingExtraError("sentence-transformers", "hhem") from error
    try:
        with _without_progress():
            encoder = CrossEncoder(model)
    except Exception as error:  # sentence-transformers raises many types: missing file, network, configuration
        raise ConfigurationError(
            f"the cross-encoder {model!r} could not be loaded ({type(error).__name__}): it is a name on the hub, or the path "
            "of a folder that holds one"
        ) from error
    numbers = encoder.config.num_labels
    if numbers != 1:
        raise ConfigurationError(
            f"the cross-encoder {model!r} gives {numbers} numbers for a pair; one, a similarity, is needed"
        )
    return lambda pairs: [float(score) for score in encoder.predict(list(pairs), show_progress_bar=False)]


@contextmanager
def _without_progress() -> Iterator[None]:
    """Disable transformers' progress bars inside the block: stderr belongs to the application."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _pipeline(classifier: Any, model: str) -> Callable[[Pairs], list[float]]:
    from transformers import AutoTokenizer, pipeline

    label = _entailment_label(classifier.config, model)
    # The device is set to that of the classifier, because a pipeline takes an accelerator by default.
    run = pipeline(
        "text-classification",
        model=classifier,
        tokenizer=AutoTokenizer.from_pretrained(model),
        device=classifier.device,
    )

    def probabilities(pairs: Pairs) -> list[float]:
        texts = [{"text": context, "text_pair": statement} for context, statement in pairs]
        rows = run(texts, top_k=None, padding=True, truncation="only_first")
        return [next(float(row["score"]) for row in scores if row["label"] == label) for scores in rows]

    return probabilities


def _entailment_label(config: Any, model: str) -> str:
    labels = [str(label) for label in config.id2label.values()]
    if len(labels) == 1:
        return labels[0]
    for label in labels:
        if label.casefold().startswith("entail"):
            return label
    raise ConfigurationError(f"the classifier {model!r} has the labels {', '.join(labels)}; none of them is entailment")
