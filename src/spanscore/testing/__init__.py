"""The public test kit: contract suites, prepared judges and embeddings, metrics by name, clock, sink, builders."""

from spanscore.testing.build import build_metric
from spanscore.testing.builders import make_score, make_span, make_unit
from spanscore.testing.clock import ManualClock
from spanscore.testing.contracts.dialect import SampleExtractorContract
from spanscore.testing.contracts.judge import JudgeContract
from spanscore.testing.contracts.queue import DurableQueueContract, QueueContract
from spanscore.testing.contracts.receiver import ReceiverContract
from spanscore.testing.contracts.sink import SinkContract
from spanscore.testing.contracts.translation import SpanNormalizerContract
from spanscore.testing.doubles import ScriptedEmbeddings, ScriptedJudge
from spanscore.testing.quality import assert_quality
from spanscore.testing.sinks import MemorySink

__all__ = [
    "DurableQueueContract",
    "JudgeContract",
    "ManualClock",
    "MemorySink",
    "QueueContract",
    "ReceiverContract",
    "SampleExtractorContract",
    "ScriptedEmbeddings",
    "ScriptedJudge",
    "SinkContract",
    "SpanNormalizerContract",
    "assert_quality",
    "build_metric",
    "make_score",
    "make_span",
    "make_unit",
]
