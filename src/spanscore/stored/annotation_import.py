"""Exports human labels to the sinks without a scorer, so that no judge and no API key are needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from spanscore.config.outputs import SINK_SETTINGS
from spanscore.config.reading import read_settings
from spanscore.config.tree import ScorerSettings
from spanscore.core.plugins import entries
from spanscore.core.sample import Annotation
from spanscore.core.timebox import Timebox
from spanscore.judges.score_context import suppressed_context
from spanscore.metrics.catalog.configured import metric_entries
from spanscore.outputs.instruments import Telemetry
from spanscore.outputs.providers import Providers
from spanscore.outputs.sinks import SINKS, CompositeSink
from spanscore.pipeline.annotations import FeedbackScales, LatestAnnotations
from spanscore.pipeline.jobs import Hooks, redactor_in
from spanscore.pipeline.ledger import Ledger
from spanscore.wiring.outputs import SinkOutboxes, exports_content

_BATCH: Final = 500
"""Number of human labels between two flushes, because the SDK's queue holds 2,048 spans and drops further spans."""
_FLUSH_S: Final = 30.0
_CLOSE_S: Final = 1.0


class AnnotationImport:
    """Sends human labels one after the other, as ``feedback()`` does: redacted, and with the same span ids. Blocks.

    Args:
        settings: settings with the scales of human labels, the redactor, the outputs and the service name.
        metrics: names of metrics, which a human label must not reuse.
    """

    def __init__(self, settings: ScorerSettings, metrics: Sequence[str]) -> None:
        self._scales = FeedbackScales(settings.feedback_scales, metrics)
        self._box = Timebox(settings.limits.hook_timeout, suppressed_context)
        self._hooks = Hooks(redactor_in(settings.redactor)).within(self._box)
        self._content = exports_content(settings.capture.content)
        self._providers = Providers(service_name=settings.service_name)
        self._latest = LatestAnnotations()
        self._sent = 0
        self._delivered = True
        telemetry = Telemetry(None, Ledger(()))
        self._outboxes = SinkOutboxes(None)
        stores = entries(sink for sink in settings.outputs.sinks if isinstance(sink, str | dict))
        self._sinks = CompositeSink(
            SINKS.each(
                [
                    *(name for name in SINKS.built_in if name in settings.outputs.places),
                    *({name: parameters} for name, parameters in stores if name in SINK_SETTINGS),
                ],
                providers=self._providers,
                content=self._content,
                telemetry=telemetry,
                open_outbox=self._outboxes.open,
            )
        )
        if settings.outputs.instruments:
            telemetry.export_to(self._providers.meter())

    @classmethod
    def of(cls, config: Path | None) -> Self:
        """Return an import with the settings of a configuration file; None = default settings."""
        if config is None:
            return cls(ScorerSettings(), [])
        read = read_settings(config)
        with read.as_written.mask_errors():
            names = [str(entry.parameters.get("name", entry.name)) for entry in metric_entries(read.settings)]
            return cls(read.settings, names)

    def send(self, label: Annotation) -> str:
        """Send a human label. Returns ``sent``, ``repeated`` for an unchanged label, or the reason for a refusal."""
        try:
            checked = self._scales.check(label)
        except ValueError as error:
            return str(error)
        changed = self._latest.note(checked if self._content else checked.without_comment())
        if changed is None:
            return "repeated"
        self._sinks.label(self._hooks.redact_label(changed, self._box))
        self._sent += 1
        if self._sent % _BATCH == 0:
            self._delivered &= self._providers.force_flush(_FLUSH_S) & self._outboxes.flush(_FLUSH_S)
        return "sent"

    def close(self) -> bool:
        """Send the waiting human labels; return whether the providers report all of them as delivered."""
        self._sinks.shutdown()
        self._box.close()
        self._delivered &= self._outboxes.flush(_FLUSH_S)
        self._outboxes.close(_CLOSE_S)
        return self._providers.force_flush(_FLUSH_S) & self._providers.shutdown(_FLUSH_S) & self._delivered
