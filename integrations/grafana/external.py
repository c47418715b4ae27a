"""Panels of external scores, which appear in no other panel."""

from __future__ import annotations

from typing import Any

import formulas
import queries as q
from panels import COUNT, SHARE, lines, over_time, rows

from spanscore import semconv
from spanscore.monitoring import promql
from spanscore.monitoring.promql import label

EXTERNAL = f'{q.OF_SERVICE},{label(semconv.EVALUATION_SOURCE)}="{semconv.SOURCE_EXTERNAL}"'
"""Selector of external scores of any name: an equal name does not make them scores of a chosen metric."""


def of_others() -> list[Any]:
    """Return a table of the scores that arrived, and their means over time."""
    by_label = (promql.METRIC, q.PASS, q.SERVICE)
    return [
        rows(
            "External scores",
            "Evaluations that other tools made and `spanscore serve` received: events `gen_ai.evaluation.result`, evaluators of"
            " OpenInference, other installations of spanscore. They are in no mean of ours and in no alert. *other*: names and"
            " labels after the first hundred, and malformed names.",
            [
                ("scores", q.counted(semconv.SCORED, where=EXTERNAL, by=by_label)),
                ("mean", formulas.mean(q.sums(q.RANGE, where=EXTERNAL, by=by_label))),
            ],
            width=12,
            unit=COUNT,
        ),
        lines(
            "Mean of external scores",
            "The scale of an external score is not declared: shown is the mean of each name whose values were all between 0 and"
            " 1, and 1 need not be good. Each point looks back over *Window*.",
            over_time(formulas.mean(q.sums(where=EXTERNAL)), q.NAMED),
            unit=SHARE,
        ),
    ]
