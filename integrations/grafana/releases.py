"""The row of the dashboard that compares two releases: means, differences, and missing scores."""

from __future__ import annotations

from typing import Any

import formulas
import queries as q
from panels import SHARE, choice, lines, over_time, rows

from spanscore import semconv
from spanscore.monitoring import promql
from spanscore.monitoring.promql import series

METRIC_ALONE = (promql.METRIC,)
"""Labels without the job, which may differ between releases."""


def release_choices() -> list[Any]:
    """Return the variables of the row."""
    values = f'label_values({series(semconv.SCORED)}{{{q.OF_SERVICE},{promql.RELEASE}!=""}}, {promql.RELEASE})'
    return [
        choice("before", "Release before", values, several=False),
        choice("after", "Release after", values, several=False),
    ]


def two_releases() -> list[Any]:
    """Return the panels."""
    a, b = (formulas.release_sums(name, q.RANGE, q.WHERE, METRIC_ALONE) for name in ("$before", "$after"))
    low, high = formulas.difference_interval(a, b)
    at_worst, at_best = formulas.difference_bounds(a, b)
    columns = [
        ("before", formulas.mean(a)),
        ("after", formulas.mean(b)),
        ("difference", formulas.difference(a, b)),
        ("low", low),
        ("high", high),
        ("excluded before", formulas.missing_of(a)),
        ("excluded after", formulas.missing_of(b)),
        ("at worst", at_worst),
        ("at best", at_best),
    ]
    by_release = (promql.METRIC, promql.RELEASE)
    return [
        rows(
            "Two releases over the selected time",
            "Weighted means of the releases chosen above, and their difference with the 95 % interval of one look: choose the"
            " time first, from when both had traffic on, and look once. To watch a release, use `spanscore compare`, whose"
            " interval holds at every look. *Excluded*: units without a score; *at worst* and *at best* bound the difference,"
            " whatever they would have got. Empty: `compare` is not configured, or one of them has no scores.",
            columns,
        ),
        lines(
            "Mean by release",
            "Weighted mean of each compared value. A new line below the old one: that release answers worse, or gets other"
            " requests. `unknown`: units without a release; `other`: releases after the first eight.",
            over_time(
                formulas.mean(q.sums(where=f'{q.WHERE},{promql.RELEASE}!=""', by=by_release)),
                f"{{{{{promql.METRIC}}}}} {{{{{promql.RELEASE}}}}}",
            ),
            unit=SHARE,
            width=24,
        ),
    ]
