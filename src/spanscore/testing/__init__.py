"""The public test kit: contract suites to subclass, test doubles, builders of test data, and ``assert_quality``."""

from spanscore.testing.contracts import (
    JudgeContract,
    ReceiverContract,
    SampleExtractorContract,
    SinkContract,
    SpanNormalizerContract,
)
from spanscore.testing.doubles import (
    ManualClock,
    MemorySink,
    ScriptedEmbeddings,
    ScriptedJudge,
    build_metric,
    make_score,
    make_span,
    make_unit,
)
from spanscore.testing.quality import assert_quality
from spanscore.testing.queue_contract import DurableQueueContract, QueueContract

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
