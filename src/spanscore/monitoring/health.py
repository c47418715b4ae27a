"""Health: judges that fail, decline or are away, budgets that bind, units lost, unaccounted for or of unknown weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spanscore import semconv
from spanscore.config.monitoring import Monitoring
from spanscore.core.job import STATED, UNKNOWN
from spanscore.core.score import Outcome
from spanscore.monitoring import promql
from spanscore.monitoring.alert import ALL, OF_METRIC, Alert, by_label, labels_of, listed
from spanscore.monitoring.estimates import WORTH_TELLING
from spanscore.monitoring.names import label, series
from spanscore.monitoring.recorded import steady_window
from spanscore.protocols import Metric

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
    "mixed",
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


def failing(metrics: Sequence[Metric], shared: Monitoring) -> Alert:
    """Return the alert on a judge that fails."""
    window = steady_window(shared)
    by_weight: dict[bool, list[str]] = {}
    for metric in metrics:
        by_weight.setdefault(metric.scale.range is not None, []).append(metric.name)
    shares = (promql.failed_share(window, listed(names), weighted=weighted) for weighted, names in by_weight.items())
    share = f"({' or '.join(shares)})"
    return Alert(
        name="SpanscoreJudgeFailing",
        expression=f"{share} > {shared.max_failed:g}\nand {promql.failures(window)} >= {FAILURES}",
        labels=labels_of("warning", OF_METRIC, window),
        summary=f"evaluations of {OF_METRIC} fail",
        text=f"A share of {{value}} of the evaluations of {OF_METRIC} failed over {window} ({{service}}), more than "
        f"{shared.max_failed:g}. Their units have no score: the mean is of the rest. Which kind: "
        "spanscore.evaluation.outcome of "
        "spanscore_evaluations_total; why: error.type on the evaluation spans.",
    )


def declining(metrics: Sequence[Metric], shared: Monitoring) -> Alert:
    """Return the alert on a judge that declines."""
    window = steady_window(shared)
    share = promql.declined_share(window, listed(metric.name for metric in metrics))
    return Alert(
        name="SpanscoreJudgeDeclining",
        expression=f"{share} >= {MAX_DECLINED:g}\nand {promql.increase(semconv.DECLINED, window)} >= {FAILURES}",
        labels=labels_of("warning", OF_METRIC, window),
        summary=f"the judge of {OF_METRIC} declines",
        text=f"The judge, or its provider's filter, declined a share of {{value}} of what it was asked for "
        f"{OF_METRIC} over {window} ({{service}}), {MAX_DECLINED:g} or more. The mean is of the others, which are not "
        "random. Use another judge or filter.",
    )


def breaker() -> Alert:
    """Return the alert on an account that does not answer."""
    window = promql.duration(OPEN_S)
    own = f"{series(semconv.JUDGE_CIRCUIT_BREAKER_STATE)}{{{promql.POPULATION}}}"
    by = ", ".join((label(semconv.PROVIDER_NAME), label(semconv.REQUEST_MODEL), *promql.GROUP[1:]))
    return Alert(
        name="SpanscoreJudgeBreakerOpen",
        # never closed: between two probes it is open, during one half-open
        expression=f"max by ({by}) (min_over_time({own}[{window}])) >= 1",
        labels=labels_of("warning", ALL, window),
        summary="a judge is away",
        text=f"{_ACCOUNT} has not answered for {window} ({{service}}): its breaker is open. Units wait for it, up to "
        "judge.queue_timeout, and then end as judge_unavailable. If it refuses the key, the model or the account, a "
        "person must act: see "
        "scorer.status().",
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
        "{value} ({service}). The sample stays fair, alerts come later. Raise judge.budget, "
        "lower rates, or use a cheaper model.",
    )


_ACCOUNT = f"{{{{ $labels.{label(semconv.PROVIDER_NAME)} }}}} {{{{ $labels.{label(semconv.REQUEST_MODEL)} }}}}"
_BUDGET = f"{{{{ $labels.{label(semconv.BUDGET_UNIT)} }}}} per {{{{ $labels.{label(semconv.BUDGET_WINDOW)} }}}}"


REMEDIES: Mapping[str, str] = {
    "queue_full": "Evaluations were lost as the job queue was full: raise limits.queue_size, limits.queue_bytes or "
    "limits.workers",
    "event_queue_full": "Units were lost as the event queue was full: raise limits.event_queue_size or "
    "limits.event_queue_bytes, or lower the sampling rate",
    "hold_lost": "Held spans were lost at the shutdown of the provider: shut the scorer down first",
}
"""Why units are lost → what to do."""


def lost(shared: Monitoring) -> Alert:
    """Return the alert on units that are lost, by reason."""
    window = steady_window(shared)
    queue = promql.matching({label(semconv.OUTCOME): Outcome.QUEUE_FULL})
    counters = ((semconv.EVALUATIONS, queue), (semconv.CAPTURE_REFUSED, ""), (semconv.HOLD_LOST, ""))
    grown = (promql.increase(instrument, window, where, promql.GROUP[1:]) for instrument, where in counters)
    return Alert(
        name="SpanscoreUnitsLost",
        expression=f"({promql.labelled('reason', dict(zip(REMEDIES, grown, strict=True)))}) > 0",
        labels=labels_of("warning", ALL, window),  # the reason is in the expression
        summary="units are lost: {{ $labels.reason }}",
        text=f"{{count}} over {window} ({{service}}). {by_label('reason', REMEDIES)}.",
    )


def mixed(shared: Monitoring) -> Alert:
    """Return the alert on units without ``ot=th`` beside units with it, unless their head sampler's share is configured."""
    window = steady_window(shared)
    unknown, stated = (
        promql.increase(semconv.HEAD_SAMPLING, window, promql.matching({"reason": source}), promql.GROUP[1:])
        for source in (UNKNOWN, STATED)
    )
    return Alert(
        name="SpanscoreHeadSamplingUnknown",
        expression=f"{unknown}\n/ {stated} > {WORTH_TELLING:g} < {1 / WORTH_TELLING:g}",
        labels=labels_of("warning", ALL, window),
        summary="units of unknown weight are in the means",
        text=f"{{value}} chosen units without ot=th came for each with it over {window} ({{service}}). They count as if no "
        "head sampler had dropped any: if one did, means and intervals are wrong. Name their service in "
        "sampling.head_sampling_rate.by_service, with its share; 1 = no sampler.",
    )


def unaccounted(shared: Monitoring) -> Alert:
    """Return the alert on units without an outcome."""
    window = promql.duration(AT_REST * shared.interval)
    name = promql.UNACCOUNTED
    wrong = f"min_over_time({name}[{window}]) > 0\nor max_over_time({name}[{window}]) < 0"
    return Alert(
        name="SpanscoreOutcomesDoNotAddUp",
        expression=wrong,
        labels=labels_of("warning", OF_METRIC, window),
        summary="units are unaccounted for",
        text=f"eligible − outcomes − pending is {{count}} and not 0, over {window} ({{service}}): that is a "
        "fault of spanscore. Please report it with scorer.status().",
    )
