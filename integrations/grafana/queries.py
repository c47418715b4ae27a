"""The PromQL of the panels: expressions of ``spanscore.monitoring.promql`` with the dashboards' variables filled in."""

from __future__ import annotations

from collections.abc import Sequence

import formulas

from spanscore import semconv
from spanscore.monitoring import promql
from spanscore.monitoring.promql import label, series
from spanscore.monitoring.recorded import SEGMENT, SUM, SUMS, WINDOW

SERVICE = "job"
"""Label of the service. Remote write sets it from ``service.name``, and so does our scrape configuration."""
MODEL, TOKENS, ERROR = label(semconv.REQUEST_MODEL), label(semconv.JUDGE_TOKEN_TYPE), label(semconv.ERROR_TYPE)
OUTCOME, PASS, SERIES = label(semconv.OUTCOME), label(semconv.EVALUATION_SCORE_LABEL), label(semconv.EVALUATOR_VERSION)
WORKFLOW, AGENT = label(semconv.WORKFLOW_NAME), label(semconv.AGENT_NAME)
REASON = "reason"
ACCOUNT = (label(semconv.PROVIDER_NAME), MODEL)
OF_ACCOUNT = " ".join(f"{{{{{name}}}}}" for name in ACCOUNT)
"""A legend: the provider and the model of the judge."""
RESULT = label(semconv.RESULT)
UNIT, OVER = label(semconv.BUDGET_UNIT), label(semconv.BUDGET_WINDOW)
OF_SERVICE = f'{SERVICE}=~"$service"'
WHERE = f'{OF_SERVICE},{promql.METRIC}=~"$metric"'
OWN = f"{WHERE},{promql.POPULATION}"
"""Selector of the chosen metrics with scores of the configured judge; ``promql`` excludes the others' scores itself."""
NAMED = f"{{{{{promql.METRIC}}}}} {{{{{SERVICE}}}}}"
"""A legend: the metric and the service."""
EACH = (promql.METRIC, SERVICE)
MOVING, RANGE, STEP = "$window", "$__range", "$__rate_interval"
NOT_CHOSEN = promql.TURNED_AWAY
WITHOUT_SAMPLE = "no_sample|missing_field|incomplete|refused"


def sums(over: str = MOVING, *, where: str = WHERE, by: Sequence[str] = EACH) -> promql.Sums:
    """Return the sums of the chosen metrics."""
    return promql.increases(over, where, by)


def deviation(of: promql.Sums) -> str:
    """Return the standard deviation of the qualities, [0, 0.5]."""
    return f"sqrt(clamp_min({of(semconv.WEIGHT_QUALITY2)} / {of(semconv.WEIGHT)} - {formulas.mean(of)} ^ 2, 0))"


def counted(
    instrument: str, over: str = RANGE, *, where: str = WHERE, by: Sequence[str] = EACH, only: Sequence[str] = ()
) -> str:
    """Return how much a counter grew; ``only`` are further matchers."""
    return promql.increase(instrument, over, ",".join((where, *only)), by)


def outcomes(over: str, matcher: str, *, by: Sequence[str] = EACH) -> str:
    """Return the number of evaluations with a matching outcome, as in ``=~"scored"``."""
    return counted(semconv.EVALUATIONS, over, by=by, only=[f"{OUTCOME}{matcher}"])


def per_second(
    instrument: str, over: str = STEP, *, where: str = WHERE, by: Sequence[str] = EACH, only: Sequence[str] = ()
) -> str:
    """Return how much a counter grew per second: unlike the growth per step, it does not change with the zoom."""
    return counted(instrument, over, where=where, by=by, only=only).replace("(increase(", "(rate(", 1)


def outcomes_per_minute(matcher: str, *, by: Sequence[str]) -> str:
    """Return the evaluations per minute with a matching outcome."""
    return f"{per_second(semconv.EVALUATIONS, by=by, only=[f'{OUTCOME}{matcher}'])} * 60"


def failed_shares(over: str = MOVING) -> str:
    """Return the share of the tried evaluations that failed, by outcome, [0, 1]."""
    failed = outcomes(over, f'=~"{promql.FAILED}"', by=(OUTCOME,))
    tried = outcomes(over, f'=~"scored|{promql.FAILED}"', by=())
    return f"{failed} / on () group_left () {tried}"


_RECORDED = {
    semconv.WEIGHT: "w",
    semconv.WEIGHT_QUALITY: "wy",
    semconv.WEIGHT2: "w2",
    semconv.WEIGHT2_QUALITY: "w2y",
    semconv.WEIGHT2_QUALITY2: "w2y2",
}
"""Instrument → the value of the label ``of`` of the recorded sums."""


def segment_sums(instrument: str) -> str:
    """Return a recorded sum of the chosen metrics for the chosen segment; empty without a chosen segment."""
    where = f'{WHERE},{SUM}="{_RECORDED[instrument]}",{WINDOW}="{MOVING}"'
    chosen = f'{SEGMENT}=~"$segment",{SEGMENT}!=""'
    return f"sum by ({', '.join((*EACH, SEGMENT))}) ({SUMS}{{{where},{chosen}}})"


def pass_rate(over: str = MOVING, *, by: Sequence[str] = EACH) -> str:
    """Return the weighted share of scored units with the label *pass*, [0, 1]."""
    passed = counted(semconv.WEIGHT, over, by=by, only=[f'{PASS}="pass"'])
    return f"{passed} / {counted(semconv.WEIGHT, over, by=by)}"


def category_shares(over: str = MOVING, *, by: Sequence[str] = EACH) -> promql.Sums:
    """Return the sums of the share of each category of the chosen metrics."""
    return formulas.category_shares(over, WHERE, by)


def recorded(name: str) -> str:
    """Return a recorded value of the chosen metrics, for the evaluator version that is written now."""
    return f"max by ({', '.join(EACH)}) ({name}{{{WHERE}}})"


def level(instrument: str, *, where: str = OF_SERVICE, by: Sequence[str] = (SERVICE,)) -> str:
    """Return the present value of a gauge."""
    return promql.current(instrument, where, by)


def average(by: Sequence[str], over: str = MOVING, *, instrument: str = semconv.QUALITY_HISTOGRAM) -> str:
    """Return the plain mean of a histogram, by default of the quality, by labels that the weighted sums do not carry."""
    name, labels = series(instrument), ", ".join(by)
    total, count = (f"sum by ({labels}) (increase({name}_{of}{{{OWN}}}[{over}]))" for of in ("sum", "count"))
    return f"{total} / {count}"


def worst(of: str, instrument: str, by: Sequence[str]) -> str:
    """Return the present value of a gauge that does not add up: ``max`` or ``min`` over the replicas."""
    return f"{of} by ({', '.join(by)}) ({series(instrument)}{{{OF_SERVICE}}})"


def buckets(instrument: str, over: str, *, by: Sequence[str] = ("le",), where: str = OWN) -> str:
    """Return the growth of a histogram's buckets."""
    return f"sum by ({', '.join(by)}) (increase({series(instrument)}_bucket{{{where}}}[{over}]))"


def within(share: float, instrument: str, by: Sequence[str], over: str = MOVING, *, where: str = OWN) -> str:
    """Return the time in seconds within which this share of a histogram's events ended."""
    return f"histogram_quantile({share:g}, {buckets(instrument, over, by=('le', *by), where=where)})"
