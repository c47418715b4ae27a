"""The public test kit: contract suites, prepared judges and embeddings, metrics by name, clock, sink, builders.

Loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spanscore.testing.build import build_metric
    from spanscore.testing.builders import a_score, a_span, a_unit
    from spanscore.testing.clock import ManualClock
    from spanscore.testing.contracts.dialect import DialectContract
    from spanscore.testing.contracts.judge import JudgeContract
    from spanscore.testing.contracts.queue import QueueContract
    from spanscore.testing.contracts.receiver import ReceiverContract
    from spanscore.testing.contracts.sink import SinkContract
    from spanscore.testing.doubles import ScriptedEmbeddings, ScriptedJudge
    from spanscore.testing.sinks import MemorySink

__all__ = [
    "DialectContract",
    "JudgeContract",
    "ManualClock",
    "MemorySink",
    "QueueContract",
    "ReceiverContract",
    "ScriptedEmbeddings",
    "ScriptedJudge",
    "SinkContract",
    "a_score",
    "a_span",
    "a_unit",
    "build_metric",
]

_HOME = {
    "DialectContract": "spanscore.testing.contracts.dialect",
    "JudgeContract": "spanscore.testing.contracts.judge",
    "QueueContract": "spanscore.testing.contracts.queue",
    "ReceiverContract": "spanscore.testing.contracts.receiver",
    "SinkContract": "spanscore.testing.contracts.sink",
    "ManualClock": "spanscore.testing.clock",
    "MemorySink": "spanscore.testing.sinks",
    "a_score": "spanscore.testing.builders",
    "a_span": "spanscore.testing.builders",
    "a_unit": "spanscore.testing.builders",
    "ScriptedEmbeddings": "spanscore.testing.doubles",
    "ScriptedJudge": "spanscore.testing.doubles",
    "build_metric": "spanscore.testing.build",
}


def __getattr__(name: str) -> Any:
    """Load a name from the module that holds it."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
