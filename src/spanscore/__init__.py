"""spanscore: score the live traces of an LLM application, and see the scores on the spans.

Every public name is loaded on first use: ``import spanscore`` loads nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spanscore.capture.callback.handler import SpanCallbackHandler as SpanCallbackHandler
    from spanscore.capture.processor.log_processor import ScoringLogRecordProcessor as ScoringLogRecordProcessor
    from spanscore.capture.processor.processor import ScoringSpanProcessor as ScoringSpanProcessor
    from spanscore.config.capture import Extract as Extract
    from spanscore.config.sampling import Rule as Rule
    from spanscore.core.codecs.langchain import sample_from_messages as sample_from_messages
    from spanscore.core.context import references as references
    from spanscore.core.context import session as session
    from spanscore.core.sample import AIMessage as AIMessage
    from spanscore.core.sample import HumanMessage as HumanMessage
    from spanscore.core.sample import Image as Image
    from spanscore.core.sample import MultiTurnSample as MultiTurnSample
    from spanscore.core.sample import SingleTurnSample as SingleTurnSample
    from spanscore.core.sample import ToolCall as ToolCall
    from spanscore.core.sample import ToolDefinition as ToolDefinition
    from spanscore.core.sample import ToolMessage as ToolMessage
    from spanscore.core.score import Outcome as Outcome
    from spanscore.core.score import Score as Score
    from spanscore.errors import ConfigurationError as ConfigurationError
    from spanscore.errors import JudgeError as JudgeError
    from spanscore.errors import SampleError as SampleError
    from spanscore.errors import SpanscoreError as SpanscoreError
    from spanscore.judges import judge as judge
    from spanscore.metrics.function import metric as metric
    from spanscore.scorer import OnlineScorer as OnlineScorer
    from spanscore.stored.evaluation import evaluate as evaluate
    from spanscore.stored.evaluation import evaluate_sync as evaluate_sync
    from spanscore.stored.explaining import explain as explain

_MODULES = {
    "capture.callback.handler": "SpanCallbackHandler",
    "capture.processor.log_processor": "ScoringLogRecordProcessor",
    "capture.processor.processor": "ScoringSpanProcessor",
    "config.capture": "Extract",
    "config.sampling": "Rule",
    "core.codecs.langchain": "sample_from_messages",
    "core.context": "references session",
    "core.sample": "AIMessage HumanMessage Image MultiTurnSample SingleTurnSample ToolCall ToolDefinition ToolMessage",
    "core.score": "Outcome Score",
    "errors": "ConfigurationError JudgeError SampleError SpanscoreError",
    "judges": "judge",
    "metrics.function": "metric",
    "scorer": "OnlineScorer",
    "stored.evaluation": "evaluate evaluate_sync",
    "stored.explaining": "explain",
}
"""Module → its public names."""
_PUBLIC = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = sorted(_PUBLIC)  # noqa: PLE0605  (one list of names, not two)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'spanscore' has no attribute {name!r}")
    value = getattr(import_module(f"spanscore.{_PUBLIC[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
