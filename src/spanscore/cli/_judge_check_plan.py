"""A judge check → what is wrong with it, what it costs a day, and how large a change of a judge it shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from spanscore.cli._cost_plan import CostPlan, usd_told
from spanscore.config.kinds import duration
from spanscore.config.monitoring import JudgeCheck
from spanscore.core.printable import format_count
from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.monitoring.judge_check import JudgeCheckPlan, watched_by
from spanscore.monitoring.judge_check_runs import FirstAnswers, least_turned
from spanscore.pipeline.judge_check import cases_of
from spanscore.protocols import Metric

__all__ = ["judge_check_lines", "judge_check_problems"]

_DAY_S = 86_400.0
_SMALL = 0.05
"""Share of the answers that turn, for which it is told how many samples show it."""


def judge_check_problems(judge_check: JudgeCheck | None, metrics: Sequence[Metric]) -> Iterator[ConfigurationError]:
    """Yield what keeps a judge check from being asked; a file that is not here may be where the scorer will run."""
    if judge_check is None:
        return
    try:
        watched = watched_by(judge_check, {metric.name: metric for metric in metrics})
        if judge_check.path.exists():
            cases_of(judge_check, watched)
        else:
            yield NotReadyError(f"there is no file {judge_check.path}; judge_check.golden_set needs it")
        FirstAnswers(judge_check.baseline_path)
    except ConfigurationError as error:
        yield error


def judge_check_lines(
    judge_check: JudgeCheck | None,
    plans: Sequence[JudgeCheckPlan],
    metrics: Sequence[Metric],
    costs: Sequence[CostPlan],
) -> Iterator[str]:
    """Yield what a judge check without a problem does; ``costs``: of a score of each metric of which they are known."""
    if judge_check is None or not judge_check.path.exists():
        return
    by_name = {metric.name: metric for metric in metrics}
    samples = len(cases_of(judge_check, {plan.metric: by_name[plan.metric] for plan in plans}))
    runs = _DAY_S / judge_check.every
    names = ", ".join(plan.metric for plan in plans)
    every = duration(judge_check.every)
    of_file = f"{format_count(samples, 'labelled sample')} of {judge_check.path}"
    yield f"judge check: {of_file}, every {every}, for the judge of {names}"
    yield f"  a day costs {_cost(plans, costs, samples * runs)}, for each replica: only processes of one machine share runs"
    yield f"  the first answers are kept in {judge_check.baseline_path}, which must outlive the process"
    yield from (f"  {plan.metric}: {_power(plan, samples)}" for plan in plans)


def _cost(plans: Sequence[JudgeCheckPlan], costs: Sequence[CostPlan], scores: float) -> str:
    """Return questions and money of so many scores of each metric."""
    cost_of = {cost.metric: cost for cost in costs}
    watched = [cost_of.get(plan.metric) for plan in plans]
    calls = sum(cost.calls for cost in watched if cost is not None)
    more = "more than " if None in watched else ""
    prices = [None if cost is None else cost.usd for cost in watched]
    usd = "no price is known" if None in prices else usd_told(scores * sum(price or 0.0 for price in prices))
    return f"{more}{scores * calls:,.0f} questions, {usd}"


def _power(plan: JudgeCheckPlan, samples: int) -> str:
    turned = least_turned(plan.below)
    if turned > samples:
        few = format_count(samples, "labelled sample")
        return f"no change can be seen with {few}: {turned} answers must turn (p below {plan.below:.2g})"
    sentence = (
        f"a change is seen where {turned} of {samples:,} answers turn, all one way ({turned / samples:.2g} of them)"
    )
    return f"{sentence}; to see {_SMALL:g} of them turn, label {ceil(turned / _SMALL):,}"
