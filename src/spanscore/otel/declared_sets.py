"""Metrics × dimensions → the attribute sets that are there from the first collection on, and whether all of them fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

from spanscore import semconv
from spanscore.errors import ConfigurationError
from spanscore.otel.compared_values import MOST_VALUES
from spanscore.otel.sums import MOST_DECLARED, OTHER, SDK_SETS, Labels, labels_of_score
from spanscore.protocols import Metric

__all__ = ["closed_sets", "is_conditional", "refuse_too_many"]


def closed_sets(metric: Metric, dimensions: Mapping[str, Sequence[str]], source: str | None = None) -> Iterator[Labels]:
    """Yield every set of attributes that the scores of a metric's present evaluator version can have."""
    values = [[(key, value) for value in (*values, OTHER)] for key, values in dimensions.items()]
    for label, segment in product(_labels_of(metric), list(product(*values))):
        yield labels_of_score(metric.name, label, metric.evaluator_version, segment, source)


def is_conditional(metric: Metric) -> bool:
    """Whether a metric has a condition, so that it does not apply to all that it is asked about; an external one may not
    say.
    """
    return bool(getattr(metric, "is_conditional", False))


def refuse_too_many(
    metrics: Sequence[Metric], dimensions: Mapping[str, Sequence[str]], shadowed: int = 0, *, compared: bool = False
) -> None:
    """Refuse metrics and dimensions of which not all can be told apart.

    Args:
        metrics: with an evaluator version each.
        shadowed: how many of them a second judge scores, too: an evaluator version more.
        compared: whether each set is there per compared value.

    Raises:
        ConfigurationError: there are too many, with the numbers.
    """
    labels = [len(_labels_of(metric)) for metric in metrics]
    values = {key: len(listed) + 1 for key, listed in dimensions.items()}
    values |= {semconv.COMPARED: MOST_VALUES + 2} if compared else {}  # unknown and other
    sets = (sum(labels) + shadowed * max(labels, default=0)) * prod(values.values())
    if sets <= MOST_DECLARED:
        return
    told = " × ".join(f"{number} of {key} (other included)" for key, number in values.items())
    raise ConfigurationError(
        f"{len(metrics) + shadowed} evaluator versions of {len(metrics)} metrics × pass or fail × "
        f"{told or 'no dimensions'} make {sets:,} "
        f"attribute sets per instrument, and {MOST_DECLARED:,} fit: past {SDK_SETS:,} the OpenTelemetry SDK makes one of them "
        "all. Leave out a dimension, values or metrics"
    )


def _labels_of(metric: Metric) -> Sequence[str | None]:
    return (None,) if metric.scale.range is None else ("pass", "fail")
