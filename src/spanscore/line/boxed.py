"""Dialects in a box: what reads units, each call of the user's functions among it with a deadline."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from spanscore.config.capture import Extract
from spanscore.config.tree import ScorerSettings
from spanscore.core.log import type_name
from spanscore.core.score import Outcome
from spanscore.core.timebox import Timebox
from spanscore.protocols import SampleExtractor
from spanscore.samples.genai import DIALECTS

__all__ = ["dialects_of"]


def dialects_of(settings: ScorerSettings, box: Timebox) -> list[SampleExtractor]:
    """Return the dialects that are asked, in order: the user's own before the built-in ones."""
    extract = _within(box, settings.capture.extract or Extract())
    ends = {"score_abandoned": settings.capture.score_abandoned, "score_failed": settings.capture.score_failed}
    offered = {"places": extract, **ends}
    own = [_box(box, dialect) for dialect in DIALECTS.each(settings.units.dialects, **offered)]
    return [*own, *DIALECTS.each(DIALECTS.built_in, **offered)]


def _within(box: Timebox, extract: Extract) -> Extract:
    """Return the same places, the functions among them with deadlines."""
    hooks: dict[str, Any] = {}
    for name in Extract.model_fields:
        if callable(place := getattr(extract, name)):
            hooks[name] = box.hook(place, f"Extract({name}=…)", Outcome.NO_SAMPLE)
    return extract.model_copy(update=hooks)


def _box(box: Timebox, dialect: SampleExtractor) -> Any:
    kind = type_name(dialect)
    return SimpleNamespace(
        accepts=box.hook(dialect.accepts, f"{kind}.accepts", Outcome.NO_SAMPLE),
        extract=box.hook(dialect.extract, f"{kind}.extract", Outcome.NO_SAMPLE),
    )
