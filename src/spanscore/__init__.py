"""spanscore: score the live traces of an LLM application, and see the scores on the spans.

Every public name is loaded on first use: ``import spanscore`` loads nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spanscore.codec.langchain import sample_from_messages as sample_from_messages
    from spanscore.context import references as references
    from spanscore.context import session as session
    from spanscore.dataset import evaluate as evaluate
    from spanscore.dataset import evaluate_sync as evaluate_sync
    from spanscore.errors import ConfigurationError as ConfigurationError
    from spanscore.errors import JudgeError as JudgeError
    from spanscore.errors import SampleError as SampleError
    from spanscore.errors import SpanscoreError as SpanscoreError
    from spanscore.judges import judge as judge
    from spanscore.metrics.function import metric as metric
    from spanscore.model.sample import AIMessage as AIMessage
    from spanscore.model.sample import HumanMessage as HumanMessage
    from spanscore.model.sample import MultiTurnSample as MultiTurnSample
    from spanscore.model.sample import SingleTurnSample as SingleTurnSample
    from spanscore.model.sample import ToolCall as ToolCall
    from spanscore.model.sample import ToolMessage as ToolMessage
    from spanscore.model.score import Outcome as Outcome
    from spanscore.model.score import Score as Score
    from spanscore.receivers.callback.handler import SpanCallbackHandler as SpanCallbackHandler
    from spanscore.receivers.processor.log_processor import ScoringLogRecordProcessor as ScoringLogRecordProcessor
    from spanscore.receivers.processor.processor import ScoringSpanProcessor as ScoringSpanProcessor
    from spanscore.replay.explaining import explain as explain
    from spanscore.scorer import OnlineScorer as OnlineScorer
    from spanscore.settings.capture import Extract as Extract
    from spanscore.settings.sampling import Rule as Rule

_PUBLIC = {
    "AIMessage": "spanscore.model.sample",
    "ConfigurationError": "spanscore.errors",
    "Extract": "spanscore.settings.capture",
    "HumanMessage": "spanscore.model.sample",
    "JudgeError": "spanscore.errors",
    "MultiTurnSample": "spanscore.model.sample",
    "OnlineScorer": "spanscore.scorer",
    "Outcome": "spanscore.model.outcome",
    "Rule": "spanscore.settings.sampling",
    "SampleError": "spanscore.errors",
    "Score": "spanscore.model.score",
    "SingleTurnSample": "spanscore.model.sample",
    "ScoringLogRecordProcessor": "spanscore.receivers.processor.log_processor",
    "ScoringSpanProcessor": "spanscore.receivers.processor.processor",
    "SpanCallbackHandler": "spanscore.receivers.callback.handler",
    "SpanscoreError": "spanscore.errors",
    "ToolCall": "spanscore.model.sample",
    "ToolMessage": "spanscore.model.sample",
    "evaluate": "spanscore.dataset",
    "evaluate_sync": "spanscore.dataset",
    "references": "spanscore.context",
    "explain": "spanscore.replay.explaining",
    "judge": "spanscore.judges",
    "metric": "spanscore.metrics.function",
    "sample_from_messages": "spanscore.codec.langchain",
    "session": "spanscore.context",
}
__all__ = sorted(_PUBLIC)  # noqa: PLE0605  (one list of names, not two)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'spanscore' has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
