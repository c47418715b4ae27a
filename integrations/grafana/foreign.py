"""Panels of scores that others made: beside ours, and in none of the panels of ours."""

from __future__ import annotations

from typing import Any

import queries as q
from panels import COUNT, SHARE, lines, over_time, rows

from spanscore import semconv
from spanscore.monitoring import promql
from spanscore.monitoring.names import label

FOREIGN = f'{q.OF_SERVICE},{label(semconv.STRATUM)}="{semconv.STRATUM_FOREIGN}"'
"""Of whichever name: they are none of the chosen metrics, though they may be called alike."""


def of_others() -> list[Any]:
    """Return a table of what came, and its means over time."""
    by_label = (promql.METRIC, q.PASS, q.SERVICE)
    return [
        rows(
            "Scores of others",
            "Evaluations that others made and that `spanscore serve` received: events `gen_ai.evaluation.result`, evaluators of"
            " OpenInference, other spanscores. They are in no mean of ours and in no alert. `other`: names and labels past the"
            " first hundred, and those that are no words.",
            [
                ("scores", q.counted(semconv.SCORED, where=FOREIGN, by=by_label)),
                ("mean", promql.mean(q.sums(q.RANGE, where=FOREIGN, by=by_label))),
            ],
            width=12,
            unit=COUNT,
        ),
        lines(
            "Mean of scores of others",
            "Their scales are not declared: the mean of a name whose values were all from 0 to 1, where 1 need not be good."
            " Each point looks back over *Window*.",
            over_time(promql.mean(q.sums(where=FOREIGN)), q.NAMED),
            unit=SHARE,
        ),
    ]
