"""CompositeSink: all sinks of a scorer as one, and the one place where what a sink raises is caught."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, detach, set_value

from spanscore.model.foreign import type_name
from spanscore.model.label import HumanLabel
from spanscore.model.score import Score
from spanscore.model.span import Unit
from spanscore.protocols import LabelSink, Sink
from spanscore.runtime.log import log_internal_error

__all__ = ["CompositeSink"]


class CompositeSink:
    """Hands everything on to each of its sinks, inside of which no instrumentation makes spans of its own. Never raises.

    Args:
        sinks: in the order in which they are called.
    """

    def __init__(self, sinks: Iterable[Sink] = ()) -> None:
        self._sinks = [*sinks]

    def prepend(self, sinks: Iterable[Sink]) -> None:
        """Call these too, before the others."""
        self._sinks[:0] = sinks

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Publish the scores through every sink; one that raises does not keep the others from theirs."""
        for sink in self._sinks:
            _safely(f"publish scores through {type_name(sink)}", partial(sink.emit, unit, scores))

    def label(self, label: HumanLabel) -> None:
        """Publish a label through every sink that takes labels, likewise."""
        for sink in self._sinks:
            if isinstance(sink, LabelSink):
                _safely(f"publish a label through {type_name(sink)}", partial(sink.label, label))

    def shutdown(self) -> None:
        """Let every sink go, once: what is emitted after it goes nowhere."""
        sinks, self._sinks = self._sinks, []
        for sink in sinks:
            _safely(f"close {type_name(sink)}", sink.shutdown)


def _safely(what: str, call: Callable[[], None]) -> None:
    token = attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
    try:
        call()
    except BaseException as error:  # noqa: BLE001  (a user's sink, or an exporter of the application, must not end the span thread)
        log_internal_error(what, error)
    finally:
        detach(token)
