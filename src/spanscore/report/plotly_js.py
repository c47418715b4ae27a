"""plotly.js as its Python package brings it along: the charts' code, put into the page once, so that it needs no network."""

from __future__ import annotations

from spanscore.errors import MissingExtraError

__all__ = ["source"]


def source() -> str:
    """Return plotly.js, some 5 MB.

    Raises:
        MissingExtraError: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]  # ships no types
    except ImportError:
        raise MissingExtraError("plotly", "report") from None
    return str(get_plotlyjs()).replace("</script", "<\\/script")
