"""Screens: metrics at whose scores sampling rules look. All others wait for them, so they ask no judge and score every unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from spanscore.config.sampling import Rule
from spanscore.errors import ConfigurationError
from spanscore.pipeline.evaluation import asks_a_judge
from spanscore.protocols import Metric

__all__ = ["check_screens"]


def check_screens(rules: Iterable[Rule], metrics: Sequence[Metric], rates: Mapping[str, float]) -> None:
    """Make sure that rules can look at the scores at which they look.

    Args:
        rates: metric → its rate without rules.

    Raises:
        ConfigurationError: a rule names a metric that is not there, asks a judge, has no quality or does not score every unit.
    """
    by_name = {metric.name: metric for metric in metrics}
    for rule in rules:
        if rule.when.score is not None:
            why = _why_not(by_name.get(rule.when.score.metric), rates)
            if why:
                raise ConfigurationError(
                    f"the sampling rule {rule.name} looks at the score of {rule.when.score.metric}, {why}"
                )


def _why_not(metric: Metric | None, rates: Mapping[str, float]) -> str | None:
    if metric is None:
        return f"which is no metric here; there are {', '.join(rates)}"
    if asks_a_judge(metric):
        return "which asks a judge, and all units would wait for it; name a metric without one"
    if metric.scale.range is None:
        return "whose scale is open, so that it has no quality; give it a range="
    if rates[metric.name] < 1:
        share = f"{rates[metric.name]:g} of the units; set sampling.rates: {{{metric.name}: 1.0}}"
        return f"which is scored on {share}, or the rule is blind to the rest"
    return None
