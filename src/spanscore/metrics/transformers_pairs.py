"""HHEM, a local entailment classifier → a function from (context, statement) pairs to probabilities, run by transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spanscore.errors import MissingExtraError

__all__ = ["HHEM", "entailment"]

HHEM = "vectara/hallucination_evaluation_model"


def entailment(model: str = HHEM, *, device: str | None = None) -> Callable[[Sequence[tuple[str, str]]], list[float]]:
    """Return a classifier; loads it, which may download it and takes seconds.

    HHEM's own code is part of the model and is run (``trust_remote_code``): give the path of a copy you have read where that
    is not acceptable.

    Args:
        model: a name on the Hugging Face hub, or a folder.
        device: where it runs (``"cpu"``, ``"cuda"``); its own choice when None.

    Raises:
        MissingExtraError: transformers is not installed.
    """
    try:
        from transformers import AutoModelForSequenceClassification
    except ImportError as error:
        raise MissingExtraError("transformers", "hhem") from error
    classifier = AutoModelForSequenceClassification.from_pretrained(model, trust_remote_code=True)
    if device is not None:
        classifier.to(device)
    return lambda pairs: [float(score) for score in classifier.predict(list(pairs)).cpu().detach()]
