"""HHEM, or another entailment classifier that runs here → a function from (context, statement) pairs to probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from spanscore.errors import ConfigurationError, MissingExtraError

Pairs: TypeAlias = Sequence[tuple[str, str]]

HHEM = "vectara/hallucination_evaluation_model"


def entailment(model: str = HHEM, *, device: str | None = None) -> Callable[[Pairs], list[float]]:
    """Return a classifier; loads it, which may download it and takes seconds.

    HHEM's own code is part of the model and is run (``trust_remote_code``): give the path of a copy you have read where that
    is not acceptable. A model without such code is one that classifies sequences: the probability is that of its label
    "entailment", or of its only one; contexts too long for it are cut, statements never.

    Args:
        model: a name on the Hugging Face hub, or a folder.
        device: where it runs (``"cpu"``, ``"cuda"``); its own choice when None.

    Raises:
        MissingExtraError: transformers is not installed.
        ConfigurationError: the model cannot be loaded, or none of its labels is entailment.
    """
    try:
        from transformers import AutoModelForSequenceClassification
    except ImportError as error:
        raise MissingExtraError("transformers", "hhem") from error
    try:
        with without_progress():
            classifier = AutoModelForSequenceClassification.from_pretrained(model, trust_remote_code=True)
    except Exception as error:  # whatever a missing file, a dead network or a strange configuration is to it
        raise ConfigurationError(
            f"the classifier {model!r} could not be loaded ({type(error).__name__}): it is a name on the hub, or the path of a "
            "folder that holds a model for the classification of sequences"
        ) from error
    if device is not None:
        classifier.to(device)
    if hasattr(classifier, "predict"):
        return lambda pairs: [float(score) for score in classifier.predict(list(pairs)).cpu().detach()]
    return _pipeline(classifier, model)


@contextmanager
def without_progress() -> Iterator[None]:
    """Keep transformers' progress bars off stderr inside the block; it is the application's."""
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
    # On the classifier's own device: a pipeline takes an accelerator otherwise.
    run = pipeline(
        "text-classification",
        model=classifier,
        tokenizer=AutoTokenizer.from_pretrained(model),
        device=classifier.device,
    )

    def probabilities(pairs: Pairs) -> list[float]:
        texts = [{"text": context, "text_pair": statement} for context, statement in pairs]
        rows = run(texts, top_k=None, padding=True, truncation="only_first")
        return [next(float(row["score"]) for row in found if row["label"] == label) for found in rows]

    return probabilities


def _entailment_label(config: Any, model: str) -> str:
    labels = [str(label) for label in config.id2label.values()]
    if len(labels) == 1:
        return labels[0]
    for label in labels:
        if label.casefold().startswith("entail"):
            return label
    raise ConfigurationError(f"the classifier {model!r} has the labels {', '.join(labels)}; none of them is entailment")
