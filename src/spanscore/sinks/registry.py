"""Which sinks there are, by name. A new one is a file here, and a line in this one."""

from __future__ import annotations

from types import MappingProxyType

from spanscore.protocols import Sink
from spanscore.runtime.plugins import Registry

__all__ = ["SINKS"]

SINKS = Registry(
    kind="sink",
    protocol=Sink,
    outside="my_pkg.sinks:MySink",
    built_in=MappingProxyType(
        {
            "evaluation_span": "spanscore.sinks.evaluation_span:EvaluationSpans",
            "event": "spanscore.sinks.event:Events",
            "instruments": "spanscore.sinks.instruments:Instruments",
        }
    ),
)
