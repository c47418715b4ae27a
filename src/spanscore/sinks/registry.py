"""Which sinks there are, by name. A new one is a file here, and a line in this one."""

from spanscore.core.plugins import Registry
from spanscore.protocols import Sink

__all__ = ["SINKS"]

_BUILT_IN = {
    "evaluation_span": "spanscore.sinks.evaluation_span:EvaluationSpans",
    "event": "spanscore.sinks.event:Events",
    "instruments": "spanscore.sinks.instruments:Instruments",
}
SINKS = Registry(kind="sink", protocol=Sink, outside="my_pkg.sinks:MySink", built_in=_BUILT_IN, offers=("content",))
