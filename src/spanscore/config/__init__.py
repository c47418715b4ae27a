"""The sections of a configuration, as arguments of ``OnlineScorer``: ``OnlineScorer(…, sessions=Sessions(max_turns=50))``.

Each public name is loaded on first use. The folder also reads YAML files and the environment, and describes wrong settings.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spanscore.config.capture import Capture as Capture
    from spanscore.config.capture import Extract as Extract
    from spanscore.config.collect import Collect as Collect
    from spanscore.config.durable import RemoteScoring as RemoteScoring
    from spanscore.config.durable import Spool as Spool
    from spanscore.config.judging import Budget as Budget
    from spanscore.config.judging import JudgeSettings as JudgeSettings
    from spanscore.config.monitoring import Compare as Compare
    from spanscore.config.monitoring import JudgeCheck as JudgeCheck
    from spanscore.config.monitoring import Monitoring as Monitoring
    from spanscore.config.outputs import Limits as Limits
    from spanscore.config.outputs import Outputs as Outputs
    from spanscore.config.sampling import FeedbackSampling as FeedbackSampling
    from spanscore.config.sampling import HeadSampling as HeadSampling
    from spanscore.config.sampling import Rule as Rule
    from spanscore.config.sampling import RuleCondition as RuleCondition
    from spanscore.config.sampling import Sampling as Sampling
    from spanscore.config.sampling import ScoreBelow as ScoreBelow
    from spanscore.config.units import Sessions as Sessions
    from spanscore.config.units import Units as Units

_MODULES = {
    "capture": "Capture Extract",
    "collect": "Collect",
    "durable": "RemoteScoring Spool",
    "judging": "Budget JudgeSettings",
    "monitoring": "Compare JudgeCheck Monitoring",
    "outputs": "Limits Outputs",
    "sampling": "FeedbackSampling HeadSampling Rule RuleCondition Sampling ScoreBelow",
    "units": "Sessions Units",
}
_PUBLIC = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = sorted(_PUBLIC)  # noqa: PLE0605  (one list of names, not two)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'spanscore.config' has no attribute {name!r}")
    value = getattr(import_module(f"spanscore.config.{_PUBLIC[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
