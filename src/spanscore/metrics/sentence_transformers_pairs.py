"""The name of a cross-encoder → a function from pairs of texts to similarities, run here by sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spanscore.errors import MissingExtraError

__all__ = ["cross_encoder"]


def cross_encoder(model: str) -> Callable[[Sequence[tuple[str, str]]], list[float]]:
    """Return a cross-encoder by its name; loads it, which may download it and takes seconds.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
    """
    try:
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise MissingExtraError("sentence-transformers", "hhem") from error
    encoder = CrossEncoder(model)
    return lambda pairs: [float(score) for score in encoder.predict(list(pairs))]
