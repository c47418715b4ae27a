"""RunsTaken: what runs come to a scorer by: callbacks, spans of others, the wire, a store; a base of OnlineScorer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spanscore.core.log import log_once

if TYPE_CHECKING:
    from spanscore.capture.callback.handler import SpanCallbackHandler
    from spanscore.capture.otlp.spans import OtlpSpans
    from spanscore.capture.processor.external_spans import ExternalSpans
    from spanscore.capture.stored import StoredUnits
    from spanscore.config.units import Units
    from spanscore.wiring.build import Line
    from spanscore.wiring.receiver_set import Doors

__all__ = ["RunsTaken"]


class RunsTaken:
    """The methods of ``OnlineScorer`` by which others hand it runs."""

    _doors: Doors
    _line: Line

    @property
    def handler(self) -> SpanCallbackHandler:
        """The callback to attach; one instance for everything."""
        return self._doors.attached().handler

    @property
    def _external_spans(self) -> ExternalSpans:
        """What every ``ScoringSpanProcessor`` of this scorer reports to."""
        return self._doors.spans()

    def _otlp_spans(self, units: Units) -> OtlpSpans:
        """Return what takes spans that arrive over the wire; made by the first call, whose ``units`` it has for good."""
        return self._doors.otlp_spans(units)

    def _stored_units(self) -> StoredUnits:
        """Return what takes whole units that were read from a store, one object for good."""
        return self._doors.stored_units()

    def install(self) -> None:
        """Attach to every chain of the process that starts from now on. Does nothing with ``capture=False``.

        One scorer is installed at a time. This one takes over from a scorer that was installed before: that one records runs
        under way to their end, has its units scored, and is shut down, unless a ``ScoringSpanProcessor`` reports to it, too.
        A scorer that was shut down, or taken over from, cannot be installed again: this is logged.
        """
        if self._line.closed:
            log_once(
                "closed scorer", f"install() of {self._line.name} does nothing: it was shut down, or taken over from"
            )
        elif self._line.settings.capture.enabled:
            self._doors.attached().installation.install()

    def uninstall(self) -> None:
        """Attach to no further chain."""
        if self._doors.attachment is not None:
            self._doors.attachment.installation.uninstall()
