"""The public test kit: judges and embeddings with prepared answers, metrics by name. Loaded on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spanscore.testing.build import build_metric
    from spanscore.testing.doubles import ScriptedEmbeddings, ScriptedJudge

__all__ = ["ScriptedEmbeddings", "ScriptedJudge", "build_metric"]

_HOME = {
    "ScriptedEmbeddings": "spanscore.testing.doubles",
    "ScriptedJudge": "spanscore.testing.doubles",
    "build_metric": "spanscore.testing.build",
}


def __getattr__(name: str) -> Any:
    """Load a name from the module that holds it."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
