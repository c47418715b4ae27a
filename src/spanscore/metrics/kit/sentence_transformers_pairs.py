"""Load a local cross-encoder by sentence-transformers, as a function from pairs of texts to similarities."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spanscore.errors import ConfigurationError, MissingExtraError
from spanscore.metrics.kit.transformers_pairs import without_progress


def load_cross_encoder(model: str) -> Callable[[Sequence[tuple[str, str]]], list[float]]:
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
        with without_progress():
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
