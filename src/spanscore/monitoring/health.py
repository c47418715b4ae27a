"""Health: judges that fail, decline or are away, budgets that bind, units that are lost or unaccounted for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from spanscore import semconv
from spanscore.model.score import Outcome
from spanscore.monitoring import promql
from spanscore.monitoring.alert import ALL, Alert, labels_of, literal, steady_window
from spanscore.monitoring.names import label, series
from spanscore.protocols import Metric
from spanscore.settings.alerting import MonitoringSettings

__all__ = [
    "AT_REST",
    "BINDING",
    "BINDING_S",
    "OPEN_S",
    "REMEDIES",
    "binding",
    "breaker",
    "declining",
    "failing",
    "lost",
    "unaccounted",
]

FAILURES = 5
"""Failed evaluations below which a share of failures says nothing."""
AT_REST = 10
"""Evaluations over which the outcomes must not add up: within a collection one is read a moment after the other."""
MAX_DECLINED = 0.1
"""Highest acceptable share of units that the judge declines: they are no random ones."""
OPEN_S = 300.0
"""For how long a breaker may keep open: providers come and go."""
BINDING_S, BINDING = 21_600.0, 0.5
"""For how long a budget may take more than half of the scores, and the factor on the rates at which it does."""


def failing(metric: Metric, shared: MonitoringSettings) -> Alert:
    """Return the alert on a judge that fails."""
    window = steady_window(shared)
    where = promql.matching({promql.METRIC: metric.name})
    share = promql.failed_share(window, where, weighted=metric.scale.range is not None)
    return Alert(
        name="SpanscoreJudgeFailing",
        expression=f"{share} > {shared.max_failed:g}\nand {promql.failures(window, where)} >= {FAILURES}",
        labels=labels_of("warning", metric.name, window),
        summary=f"evaluations of {literal(metric.name)} fail",
        text=f"A share of {{value}} of the evaluations of {literal(metric.name)} failed over {window} ({{service}}), more than "
        f"{shared.max_failed:g}. They are missing, not low scores: the mean is of the rest. Which kind: spanscore.outcome of "
        "spanscore_evaluations_total; why: error.type on the evaluation spans.",
    )


def declining(metric: Metric, shared: MonitoringSettings) -> Alert:
    """Return the alert on a judge that declines."""
    window = steady_window(shared)
    where = promql.matching({promql.METRIC: metric.name})
    declined = promql.increase(semconv.DECLINED, window, where)
    return Alert(
        name="SpanscoreJudgeDeclining",
        expression=f"{promql.declined_share(window, where)} >= {MAX_DECLINED:g}\nand {declined} >= {FAILURES}",
        labels=labels_of("warning", metric.name, window),
        summary=f"the judge of {literal(metric.name)} declines",
        text=f"The judge, or its provider's filter, declined a share of {{value}} of what it was asked for "
        f"{literal(metric.name)} over {window} ({{service}}), {MAX_DECLINED:g} or more. These are no random units: the mean is "
        "of the others. Use another judge for it, or have the filter set for this use.",
    )


def breaker() -> Alert:
    """Return the alert on an account that does not answer."""
    window = promql.duration(OPEN_S)
    own = f"{series(semconv.JUDGE_BREAKER)}{{{promql.POPULATION}}}"
    by = ", ".join((label(semconv.PROVIDER_NAME), label(semconv.REQUEST_MODEL), *promql.GROUP[1:]))
    return Alert(
        name="SpanscoreJudgeBreakerOpen",
        # never closed: between two probes it is open, during one half-open
        expression=f"max by ({by}) (min_over_time({own}[{window}])) >= 1",
        labels=labels_of("warning", ALL, window),
        summary="a judge is away",
        text=f"{_ACCOUNT} has not answered for {window} ({{service}}): its breaker is open, nothing is sent. Units wait for "
        "it, up to judge.max_wait, and then end as rate_limited. Where it refuses the key, the model or the account, a person "
        "must act: scorer.status() says why.",
    )


def binding() -> Alert:
    """Return the alert on a budget that takes most of the scores."""
    window = promql.duration(BINDING_S)
    return Alert(
        name="SpanscoreBudgetBinding",
        expression=f"max_over_time({promql.LOWEST_FACTOR}[{window}]) < {BINDING:g}\nand {promql.LOWEST_FACTOR} offset {window}",
        labels=labels_of("warning", ALL, window),
        summary="a budget takes most of the scores",
        text=f"The budget in {_BUDGET} has multiplied the sampling rates by less than {BINDING:g} for {window}, now by "
        "{value} ({service}). The scores are still a fair sample, but fewer than configured: alerts may lack the scores that "
        "they need. Raise judge.budget, lower the rates, or ask a cheaper model.",
    )


_ACCOUNT = f"{{{{ $labels.{label(semconv.PROVIDER_NAME)} }}}} {{{{ $labels.{label(semconv.REQUEST_MODEL)} }}}}"
_BUDGET = f"{{{{ $labels.{label(semconv.BUDGET_UNIT)} }}}} per {{{{ $labels.{label(semconv.BUDGET_WINDOW)} }}}}"


REMEDIES: Mapping[str, str] = {
    "queue_full": "The job queue was full: raise limits.queue, limits.queue_bytes or limits.workers",
    "refused": "The inbox was full: raise limits.inbox or limits.inbox_bytes, or lower the sampling rate",
    "hold_lost": "Spans were held when the application shut its provider down: shut the scorer down first",
}
"""Why units are lost → what to do."""


def lost(shared: MonitoringSettings) -> Iterator[Alert]:
    """Yield the alerts on units that are lost, by reason."""
    window = steady_window(shared)
    queue = promql.matching({label(semconv.OUTCOME): Outcome.QUEUE_FULL})
    counters = (
        ("Evaluations lost", semconv.EVALUATIONS, queue),
        ("Units lost", semconv.CAPTURE_REFUSED, ""),
        ("Spans lost", semconv.HOLD_LOST, ""),
    )
    for (reason, remedy), (what, instrument, where) in zip(REMEDIES.items(), counters, strict=True):
        yield Alert(
            name="SpanscoreUnitsLost",
            expression=f"{promql.increase(instrument, window, where, promql.GROUP[1:])} > 0",
            labels={**labels_of("warning", ALL, window), "reason": reason},
            summary=f"units are lost: {reason}",
            text=f"{what}: {{count}} over the last {window} ({{service}}). {remedy}.",
        )


def unaccounted(shared: MonitoringSettings) -> Alert:
    """Return the alert on units without an outcome."""
    window = promql.duration(AT_REST * shared.interval)
    name = promql.UNACCOUNTED
    wrong = f"min_over_time({name}[{window}]) > 0\nor max_over_time({name}[{window}]) < 0"
    return Alert(
        name="SpanscoreOutcomesDoNotAddUp",
        expression=f'label_replace({wrong}, "metric", "$1", "{promql.METRIC}", "(?s)(.*)")',
        labels={"severity": "warning", "window": window},  # the metric is what the expression says
        summary="units are unaccounted for",
        text=f"eligible − outcomes − pending is {{count}} and not 0, over the last {window} ({{service}}): units were lost "
        "without an outcome. That is a fault of spanscore: please report it, with scorer.status().",
    )
