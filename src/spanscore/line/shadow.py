"""Second judges: who may be one, how their outcomes are counted, and how their scores compare with the metrics' own."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

from spanscore.core.job import JobResult
from spanscore.core.span import UnitKey
from spanscore.errors import ConfigurationError
from spanscore.judges.effects.middleware import account_of, unwrapped
from spanscore.metrics.catalog.registry import by_name
from spanscore.monitoring.judge_check_runs import JudgeComparison, pair
from spanscore.pipeline.ledger import Ledger
from spanscore.protocols import Metric

__all__ = ["Pairs", "checked_shadows"]


def checked_shadows(shadows: Sequence[Metric], metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return second judges by the metric that they are asked beside.

    Raises:
        ConfigurationError: one is no metric, has the name of none here, or is the same as its namesake.
    """
    named = by_name(shadows)
    for name, shadow in named.items():
        if name not in metrics:
            raise ConfigurationError(
                f"shadows has {name!r}, which is no metric of this scorer; it has {', '.join(metrics)}"
            )
        if shadow.evaluator_version == metrics[name].evaluator_version and _identify_judge(shadow) == _identify_judge(
            metrics[name]
        ):
            raise ConfigurationError(
                f"shadows has {name!r} of the evaluator version {shadow.evaluator_version}, as the metric itself: "
                "give it another judge or prompt"
            )
    return named


def _identify_judge(metric: Metric) -> tuple[Hashable, Any]:
    """Return what tells a metric's judge from every other: its account, and how it draws answers."""
    judge = getattr(metric, "_judge", None)
    return (None, None) if judge is None else (account_of(judge), getattr(unwrapped(judge), "drawing", None))


class Pairs:
    """Matches the scores of a metric with those of its second judge. Span thread; ``compared`` on any.

    Args:
        metrics: names of those that have a second judge.
        ledger: of the second judges: what it does not wait for has no second score to come.

    Attributes:
        compared: metric → both judges so far.
        reasons: metric → why its second judge gave no score, the latest.
    """

    def __init__(self, metrics: Collection[str], ledger: Ledger) -> None:
        self._ledger = ledger
        self._metrics = tuple(metrics)
        self.reset()

    def reset(self) -> None:
        """Forget all of them: in a forked child."""
        self.compared = dict.fromkeys(self._metrics, JudgeComparison())
        self.reasons: dict[str, str] = {}
        self._waiting: dict[tuple[UnitKey, str], float | None] = {}

    def settled(self, result: JobResult) -> None:
        """Note scores of the metrics' own judges; those of a fallback are nobody's to compare with."""
        key = result.unit.key
        for score in result.scores:
            own = score.quality if score.source is None else None
            if (key, score.metric) in self._waiting:
                shadow = self._waiting.pop((key, score.metric))
                self._compare(score.metric, own, shadow, score.probability)
            elif score.metric in self.compared and self._ledger.is_open(key):
                self._waiting[key, score.metric] = own

    def settled_beside(self, result: JobResult) -> None:
        """Note scores of second judges."""
        key = result.unit.key
        for score in result.scores:
            if score.reason:
                self.reasons[score.metric] = f"{score.outcome}: {score.reason}"
            if (key, score.metric) in self._waiting:
                own = self._waiting.pop((key, score.metric))
                self._compare(score.metric, own, score.quality, score.probability)
            else:
                self._waiting[key, score.metric] = score.quality

    def _compare(self, metric: str, own: float | None, shadow: float | None, probability: float | None) -> None:
        if own is not None and shadow is not None:
            self.compared[metric] += pair(own, shadow, probability)
