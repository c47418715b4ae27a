"""Imports labels into the sinks without a scorer, so that no judge is made and no API key is needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from spanscore.config.reading import read_settings
from spanscore.config.tree import ScorerSettings
from spanscore.core.sample import Annotation
from spanscore.outputs.instruments import Telemetry
from spanscore.outputs.providers import Providers
from spanscore.outputs.sinks import SINKS, CompositeSink
from spanscore.pipeline.annotations import AnnotationBook, FeedbackScales
from spanscore.pipeline.ledger import Ledger
from spanscore.wiring.outputs import exports_content

_BATCH: Final = 500
"""Labels between two flushes, because the SDK's queue holds 2,048 spans and drops further ones."""
_FLUSH_S: Final = 30.0


class AnnotationImport:
    """Sends labels one after the other. Blocks.

    Args:
        settings: settings with the scales of labels, the outputs and the service name.
        metrics: names that a label must not have.
        providers: providers of the export; None = those of the environment.
    """

    def __init__(self, settings: ScorerSettings, metrics: list[str], *, providers: Providers | None = None) -> None:
        self._scales = FeedbackScales(settings.feedback_scales, metrics)
        self._content = exports_content(settings.capture.content)
        self._providers = providers or Providers(service_name=settings.service_name)
        self._book = AnnotationBook()
        self._sent = 0
        self._delivered = True
        telemetry = Telemetry(None, Ledger(()))
        parts: Mapping[str, Any] = {"providers": self._providers, "content": self._content, "telemetry": telemetry}
        self._sinks = CompositeSink(
            SINKS.each([name for name in SINKS.built_in if name in settings.outputs.places], **parts)
        )
        if settings.outputs.instruments:
            telemetry.export_to(self._providers.meter())

    @classmethod
    def of(cls, config: Path | None) -> Self:
        """Return an import with the settings of a configuration file; None = with the defaults."""
        if config is None:
            return cls(ScorerSettings(), [])
        settings = read_settings(config).settings
        names = [entry if isinstance(entry, str) else next(iter(entry)) for entry in settings.metrics]
        return cls(settings, names)

    def send(self, label: Annotation) -> str:
        """Send a label; return ``sent``, ``repeated`` if it changes nothing, or the reason for a refusal."""
        try:
            checked = self._scales.checked(label)
        except ValueError as error:
            return str(error)
        noted = self._book.note(checked if self._content else checked.without_comment())
        if noted is None:
            return "repeated"
        self._sinks.label(noted)
        self._sent += 1
        if self._sent % _BATCH == 0:
            self._delivered &= self._providers.force_flush(_FLUSH_S)
        return "sent"

    def close(self) -> bool:
        """Send the waiting labels; return whether the providers report all labels as delivered."""
        self._sinks.shutdown()
        return self._providers.force_flush(_FLUSH_S) & self._providers.shutdown(_FLUSH_S) & self._delivered
