"""Passes the scores and human labels of a scorer to all its sinks, and names the built-in sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, detach, set_value

from spanscore.core.log import log_internal_error, type_name
from spanscore.core.plugins import Registry
from spanscore.core.sample import Annotation
from spanscore.core.score import Score
from spanscore.core.span import Unit
from spanscore.protocols import AnnotationSink, Sink


class CompositeSink:
    """Calls each of several sinks with instrumentation suppressed. Never raises.

    Args:
        sinks: sinks in the order of their calls.
    """

    def __init__(self, sinks: Iterable[Sink] = ()) -> None:
        self._sinks = [*sinks]

    def prepend(self, sinks: Iterable[Sink]) -> None:
        """Add sinks that are called before the present ones."""
        self._sinks[:0] = sinks

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Call every sink with the scores; an error of one sink does not affect other sinks.

        A sink without the attribute ``takes_sent`` gets no score that another process has exported (``Score.sent``). It is not
        called if no other score is left.
        """
        unsent = [score for score in scores if not score.sent]
        for sink in self._sinks:
            own = scores if getattr(sink, "takes_sent", False) else unsent
            if own or not scores:
                _call_safely("publish scores through", sink, partial(sink.emit, unit, own))

    def label(self, label: Annotation) -> None:
        """Call every sink that accepts labels; an error of one sink does not affect other sinks."""
        for sink in self._sinks:
            if isinstance(sink, AnnotationSink):
                _call_safely("publish a label through", sink, partial(sink.label, label))

    def shutdown(self) -> None:
        """Shut every sink down, once; later scores are dropped."""
        sinks, self._sinks = self._sinks, []
        for sink in sinks:
            _call_safely("close", sink, sink.shutdown)


def _call_safely(action: str, sink: Sink, call: Callable[[], None]) -> None:
    """Call a method of a sink with instrumentation suppressed; ``action`` names it in the log of an error."""
    token = attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
    try:
        call()
    except BaseException as error:  # noqa: BLE001  (a user's sink, or an exporter of the application, must not end the span thread)
        log_internal_error(f"{action} {type_name(sink)}", error)
    finally:
        detach(token)


SINKS = Registry(
    kind="sink",
    protocol=Sink,
    example="my_pkg.sinks:MySink",
    built_in={
        "evaluation_span": "spanscore.outputs.score_spans:EvaluationSpans",
        "event": "spanscore.outputs.score_events:EvaluationEvents",
        "instruments": "spanscore.outputs.score_events:Instruments",
        "webhook": "spanscore.outputs.webhook:WebhookSink",
        "phoenix": "spanscore.outputs.phoenix:PhoenixSink",
        "langfuse": "spanscore.outputs.langfuse:LangfuseSink",
    },
    offers=("content", "open_outbox"),
)
