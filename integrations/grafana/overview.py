"""The overview dashboard: six panels on the quality of the answers, the state of scoring, and its cost."""

from __future__ import annotations

from typing import Any

import formulas
import queries as q
from grafana_foundation_sdk.models.dashboard import Dashboard
from panels import (
    GREEN,
    RED,
    USD,
    board,
    choice,
    lines,
    link,
    number,
    over_time,
    segment,
    shares,
    source,
    stacked,
    steps,
    window,
)

from spanscore import semconv
from spanscore.monitoring import promql, recorded
from spanscore.monitoring.promql import series

UID = "spanscore-overview"
ONE_METRIC = "spanscore-metric"
OPERATORS = "spanscore-operators"
SECONDS_A_DAY = 86_400


def overview() -> Dashboard:
    """Return the dashboard."""
    entered = series(semconv.ELIGIBLE)
    variables = [
        source("datasource", "prometheus", "Metrics"),
        choice("service", "Service", f"label_values({entered}, {q.SERVICE})"),
        choice("metric", "Metric", f"label_values({entered}{{{q.OF_SERVICE}}}, {promql.METRIC})"),
        segment("segment", "Segment", f"label_values({recorded.MEAN}{{{q.WHERE}}}, {recorded.SEGMENT})"),
        window(),
    ]
    panels = [_mean(), _outcomes(), _unaccounted(), _failed(), _cost(), _queue()]
    links = [link("One metric", ONE_METRIC), link("Operators", OPERATORS)]
    about = "Whether the answers are good, whether scoring works, and what it costs."
    return board("spanscore: overview", UID, about, variables, links, {"": panels})


def _mean() -> Any:
    of_service, of_segment = f"{{{{{q.SERVICE}}}}}", f"{{{{{recorded.SEGMENT}}}}} {{{{{q.SERVICE}}}}}"
    low, high = formulas.interval(q.sums())
    panel = lines(
        "Mean quality of $metric",
        "Mean of the scores, from 0 (bad) to 1 (good), for the traffic of the last *Window*. The grey dashed lines are its 95 %"
        " interval: the true mean lies between them. The answers became worse if the whole interval is below the old level."
        " Then compare the time with your deployments, and open *One metric* for the worst traces. Lines far apart: too few"
        " scores; choose a longer window. A chosen *Segment* has lines of its own.",
        over_time(formulas.mean(q.sums()), f"mean {of_service}"),
        over_time(low, f"low {of_service}"),
        over_time(high, f"high {of_service}"),
        *_of_segment(of_segment),
        width=24,
    )
    return panel.max(1).decimals(2).repeat("metric").repeat_direction("h").max_per_row(3)


def _of_segment(legend: str) -> list[Any]:
    """Return the queries of the chosen segment. They use recorded sums, because the counters' segments have no common label."""
    sums = q.segment_sums
    low, high = formulas.interval(sums)
    named = {"mean": formulas.mean(sums), "low": low, "high": high}
    return [over_time(expression, f"{name} {legend}") for name, expression in named.items()]


def _outcomes() -> Any:
    return stacked(
        "How evaluations end, per minute",
        "*scored* is normal. *missing_field* or *no_sample* grow: a deployment changed the form of inputs or outputs."
        " *queue_full* or *expired*: there is more traffic than the judge can take; lower the sample rate. *timeout*,"
        " *judge_unavailable* or *judge_error*: see *Failed evaluations*. Units that sampling or a filter left out are not"
        " shown.",
        over_time(q.outcomes_per_minute(f'!~"{q.NOT_CHOSEN}"', by=(q.OUTCOME,)), f"{{{{{q.OUTCOME}}}}}"),
        width=16,
    )


def _unaccounted() -> Any:
    return number(
        "Evaluations not accounted for",
        "Evaluations that began and of which neither an end nor a pending state is known. 0 is normal. Any other number for"
        " more than a minute is a bug of spanscore: please report it.",
        over_time(f"sum({promql.unaccounted_units(q.WHERE)})"),
        steps=steps((None, RED), (0, GREEN), (1, RED)),
        height=8,
        width=8,
        trend=True,
    )


def _failed() -> Any:
    return shares(
        "Failed evaluations, by reason",
        "Share of the evaluations that were tried and gave no score. Up to 1 % is usual; from 10 % of a metric on an alert"
        " fires. *judge_unavailable*, *timeout*, *judge_error*: the judge; see *Judges* in *Operators*. *budget*: it is spent."
        " *metric_error*: a bug of the metric. The mean is of the other units, and may be too high or too low.",
        over_time(q.failed_shares(), f"{{{{{q.OUTCOME}}}}}"),
        width=8,
    )


def _cost() -> Any:
    pace = f"{q.per_second(semconv.JUDGE_COST, q.MOVING, by=(promql.METRIC,))} * {SECONDS_A_DAY}"
    return stacked(
        "Cost of the judge per day",
        "US dollars that the judge's calls cost in a day at the pace of the last *Window*, by metric. The line is the sum of"
        " the last 24 hours. Too much: lower `sampling.rates` of the dearest metric, or take a smaller model. Calls of models"
        " without a price in `judge.prices` are missing.",
        over_time(pace, f"{{{{{promql.METRIC}}}}}"),
        over_time(f"sum({q.counted(semconv.JUDGE_COST, '1d', by=())})", "spent in the last 24 h"),
        unit=USD,
        width=8,
    )


def _queue() -> Any:
    of_service = f"{{{{{q.SERVICE}}}}}"
    return lines(
        "Queue: units that wait for a score",
        "Units that wait or are being scored: in memory (*waiting*), and in the spool (*on disk*), where they outlive the"
        " process. A line that falls again is normal. A line that only grows: the judge is slower than the traffic; lower the"
        " sample rate, or start more workers. A full queue (*Operators*) turns further units away (`queue_full`).",
        over_time(q.level(semconv.QUEUE_SIZE), f"waiting {of_service}"),
        over_time(q.worst("max", semconv.SPOOL_DEPTH, (q.SERVICE,)), f"on disk {of_service}"),
        width=8,
    )
