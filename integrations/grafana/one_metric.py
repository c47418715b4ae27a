"""The dashboard of one metric: its distribution with links to traces, its differences by dimension, and its worst traces."""

from __future__ import annotations

from typing import Any

import formulas
import queries as q
from grafana_foundation_sdk.models.dashboard import Dashboard
from overview import ONE_METRIC, OPERATORS, UID
from panels import (
    GREEN,
    ORANGE,
    RED,
    SHARE,
    USD,
    address,
    as_buckets,
    at_end,
    board,
    choice,
    found,
    in_traces,
    lines,
    link,
    number,
    outside,
    over_time,
    rows,
    shares,
    source,
    spread,
    stacked,
    steps,
    window,
)
from releases import release_choices, two_releases

from spanscore import semconv
from spanscore.monitoring import promql
from spanscore.monitoring.calibration import CORRECTED, HIGH, LOW
from spanscore.monitoring.promql import series

_SHOWN = (
    semconv.QUALITY,
    semconv.EVALUATION_SCORE_VALUE,
    semconv.EVALUATION_SCORE_LABEL,
    semconv.PROBABILITY + "$metric",
)
WORST = (
    f'{{ span.{semconv.EVALUATION_NAME} = "$metric" && span.{semconv.QUALITY} < 0.5 && resource.service.name =~ "$service" }}'
    f" | select({', '.join(f'span.{name}' for name in _SHOWN)})"
)
"""Search for evaluation spans: they have the quality, which has one direction for all metrics, and exist for late scores."""
FAILED_IN_JAEGER = (
    "${jaeger}/search?service=${service}&lookback=2d&limit=50&tags=%7B"
    f"%22{semconv.EVALUATION_NAME}%22%3A%22${{metric}}%22%2C%22{semconv.EVALUATION_SCORE_LABEL}%22%3A%22fail%22%7D"
)
"""Jaeger's own search by tags: Jaeger's data source in Grafana cannot sort by scores."""
_CHOOSE = "Write the address of Jaeger's page above, and choose one service: Jaeger searches one at a time."
ALL = ()


def one_metric() -> Dashboard:
    """Return the dashboard."""
    entered = series(semconv.ELIGIBLE)
    variables = [
        source("datasource", "prometheus", "Metrics"),
        source("traces", "tempo", "Traces"),
        address("jaeger", "Jaeger's page"),
        choice("service", "Service", f"label_values({entered}, {q.SERVICE})"),
        choice("metric", "Metric", f"label_values({entered}{{{q.OF_SERVICE}}}, {promql.METRIC})", several=False),
        *release_choices(),
        window(),
    ]
    parts = {
        "Now": _now(),
        "Distribution": _distribution(),
        "Categories": _categories(),
        "Where it differs": _differs(),
        "Two releases": two_releases(),
        "Traces": _traces(),
    }
    about = "One metric in full. The dots of the heatmap are traces: a click opens one."
    links = [
        link("Overview", UID),
        link("Operators", OPERATORS),
        outside("Failed ones in Jaeger", FAILED_IN_JAEGER, _CHOOSE),
    ]
    return board("spanscore: one metric", ONE_METRIC, about, variables, links, parts)


def _now() -> list[Any]:
    all_time = q.sums(q.RANGE, by=ALL)
    low, high = formulas.interval(all_time)
    traffic_light = steps((None, RED), (0.5, ORANGE), (0.8, GREEN))
    mean = q.sums()
    applies = formulas.applying(q.MOVING, q.WHERE, q.EACH)
    lows, highs = zip(formulas.interval(mean), formulas.missing_bounds(mean), strict=True)
    return [
        number(
            "Mean quality",
            "Weighted mean over the selected time, 1 is good. Low: read the worst traces below.",
            at_end(formulas.mean(all_time)),
            unit=SHARE,
            steps=traffic_light,
        ),
        number(
            "Low end",
            "Of the 95 % interval. Far from the mean: few scores; take a longer time.",
            at_end(low),
            unit=SHARE,
        ),
        number(
            "High end", "Of the 95 % interval. Below your baseline: the metric has dropped.", at_end(high), unit=SHARE
        ),
        number(
            "Effective scores",
            "What the weighted scores are worth in equally weighted ones. Under 100 a change is hard to tell from chance.",
            at_end(formulas.n_eff(all_time)),
        ),
        number(
            "Pass rate",
            "Weighted share labelled *pass*. Low with a high mean: `pass_at` is strict, or the metric has two humps.",
            at_end(q.pass_rate(q.RANGE, by=ALL)),
            unit=SHARE,
            steps=traffic_light,
        ),
        number(
            "Judge's cost",
            "USD of this metric's calls whose price is known. Too much: a smaller rate or model for this metric.",
            at_end(q.counted(semconv.JUDGE_COST, by=ALL)),
            unit=USD,
        ),
        lines(
            "Mean, 95 % interval, and bounds of what was lost",
            "*Low* and *high* are the interval; *at worst* and *at best* are where the mean would lie if every unit without a"
            " score, see *What the mean lacks*, had got the worst or the best. When those are far apart, mend what loses the"
            " units before believing the mean.",
            over_time(formulas.mean(mean), f"mean {q.NAMED}"),
            *[over_time(end, f"{name} {q.NAMED}") for end, name in zip(lows, ("low", "at worst"), strict=True)],
            *[over_time(end, f"{name} {q.NAMED}") for end, name in zip(highs, ("high", "at best"), strict=True)],
            unit=SHARE,
            width=24,
        ),
        lines(
            "Applies to",
            "Share of traffic for which the metric's condition (`applies_when`) holds, with its 95 % interval. It moves: other"
            " questions come, or the judge reads the condition another way. At 0 nothing is measured.",
            over_time(formulas.mean(applies), q.NAMED),
            *[
                over_time(end, f"{name} {q.NAMED}")
                for name, end in zip(("low", "high"), formulas.interval(applies), strict=True)
            ],
            unit=SHARE,
            width=24,
        ),
        number(
            "Corrected pass rate",
            "Pass rate corrected by the human labels of `spanscore calibrate`, over the longest window of the rules. *Not"
            " calibrated*: monitoring.calibrations names no file of the present evaluator version; calibrate it.",
            at_end(q.recorded(CORRECTED)),
            unit=SHARE,
            height=8,
            empty="not calibrated",
        ),
        lines(
            "Pass rate, and corrected pass rate",
            "*Low* and *high* are the interval of the corrected rate; its window is the longest of the rules. It ends where the"
            " evaluator version changes, as the labels are of one version. Wide: label more, above all what the judge failed.",
            over_time(q.pass_rate(), f"by the judge {q.NAMED}"),
            over_time(q.recorded(CORRECTED), f"corrected {q.NAMED}"),
            over_time(q.recorded(LOW), f"low {q.NAMED}"),
            over_time(q.recorded(HIGH), f"high {q.NAMED}"),
            unit=SHARE,
            width=20,
        ),
    ]


def _distribution() -> list[Any]:
    return [
        spread(
            "Quality of scored units",
            "How many units had which quality, unweighted; the dots are scored traces. A new dark row below the old one is a"
            " group of bad answers: click its dots. A whole row that moved: the judge or the metric changed (see *By"
            " evaluator version*).",
            as_buckets(q.buckets(semconv.QUALITY_HISTOGRAM, q.STEP)),
        ),
        stacked(
            "Passed and failed",
            "Scored units by label. When *fail* grows, see which workflow and model below.",
            over_time(q.counted(semconv.SCORED, q.STEP, by=(q.PASS,)), f"{{{{{q.PASS}}}}}"),
        ),
        lines(
            "Spread",
            "Standard deviation of the qualities, weighted. It grows while the mean stays: some answers got better, others"
            " worse, or the judge has become unsure.",
            over_time(q.deviation(q.sums()), f"{q.NAMED}"),
            unit=SHARE,
        ),
        lines(
            "Disagreement of the jury",
            "With `judges`: the mean of the highest quality among the jurors of a score less the lowest. For a pass/fail metric"
            " it is the share of units on which jurors differ. It grows: read units with a high `spanscore.jury.disagreement`.",
            over_time(q.average(q.EACH, instrument=semconv.JURY_DISAGREEMENT), f"{q.NAMED}"),
            unit=SHARE,
        ),
        stacked(
            "What the mean lacks",
            "Weight of the units that should have a score of the configured judge and have none, by outcome. The bounds above"
            " show how much they could change the mean.",
            over_time(q.counted(semconv.MISSING_WEIGHT, q.STEP, by=(q.OUTCOME,)), f"{{{{{q.OUTCOME}}}}}"),
        ),
    ]


def _categories() -> list[Any]:
    all_time = q.category_shares(q.RANGE, by=ALL)
    low, high = formulas.interval(all_time)
    of_word = f"{{{{{q.PASS}}}}}"
    return [
        shares(
            "Shares of the categories",
            "Share of units with each category, weighted, over the last *Window*. Empty: the metric has no categories. A band"
            " that grows: users ask for other things, or the judge reads the categories another way (see *By evaluator"
            " version*). To be told of it, write `alerts: {<metric>: {share_of: <category>, max: 0.1}}`.",
            over_time(formulas.mean(q.category_shares()), f"{of_word} {{{{{q.SERVICE}}}}}"),
            width=16,
        ),
        rows(
            "Share of each category",
            "Weighted share over the selected time, with its 95 % interval. Far apart: few scores; take a longer time.",
            [("share", formulas.mean(all_time)), ("low", low), ("high", high)],
            width=8,
        ),
    ]


def _differs() -> list[Any]:
    plain = "Unweighted mean, as the histogram has it. One line below the others: "
    return [
        lines(
            "By model",
            f"{plain}this model answers worse, or gets the harder questions.",
            over_time(q.average((q.MODEL,)), f"{{{{{q.MODEL}}}}}", exemplar=True),
            unit=SHARE,
        ),
        lines(
            "By workflow or agent",
            f"{plain}look at this part of the application first.",
            over_time(q.average((q.WORKFLOW, q.AGENT)), f"{{{{{q.WORKFLOW}}}}} {{{{{q.AGENT}}}}}", exemplar=True),
            unit=SHARE,
        ),
        lines(
            "By evaluator version",
            "Weighted mean per evaluator version (metric version, judge, votes). A step where one line ends and another begins"
            " is a change of the measure, not of the application: alerts and comparisons start anew there.",
            over_time(formulas.mean(q.sums(by=(q.SERIES,))), f"{{{{{q.SERIES}}}}}"),
            unit=SHARE,
        ),
        lines(
            "By service",
            "Weighted mean per service. One line below the others: its application, not the judge.",
            over_time(formulas.mean(q.sums(by=(q.SERVICE,))), f"{{{{{q.SERVICE}}}}}"),
            unit=SHARE,
        ),
    ]


def _traces() -> list[Any]:
    return [
        found(
            "Worst traces",
            "Evaluations of this metric with quality below 0.5; each opens its trace. Read five: what do the bad answers"
            " share? Empty though the mean is low: the traces were sampled away, or the data source is not Tempo.",
            in_traces(WORST),
        )
    ]
