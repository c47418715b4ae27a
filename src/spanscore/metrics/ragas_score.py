"""The former "ragas score": one number from several metrics, for comparison with figures published before 2024."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from math import isnan

from spanscore.errors import SampleError

_FEWEST = 2
_SLACK = 1e-9


def ragas_score(values: Mapping[str, Sequence[float | None]], *, binary_columns: Iterable[str] = ()) -> float | None:
    """Return the harmonic mean of the metrics' means, 0…1; None for fewer than two metrics that have a value.

    One metric with mean 0 makes the result 0. None and nan are left out of their metric's mean, and a warning counts them. One
    number hides which metric fell: do not alert on it.

    Args:
        values: metric → one value per sample, 0…1, higher better.
        binary_columns: metrics to omit (pass/fail critics).

    Raises:
        SampleError: a value is outside of 0…1; a harmonic mean with it means nothing.

    Source: ragas 0.0.15's ``Result``. Deviations: undefined values are left out (there one makes the whole undefined), and
    values outside of 0…1 are refused (there they give nonsense).
    """
    left_out = set(binary_columns)
    means = [_mean(metric, column) for metric, column in values.items() if metric not in left_out]
    numbers = [mean for mean in means if mean is not None]
    if len(numbers) < _FEWEST:
        return None
    return len(numbers) / sum(1 / mean for mean in numbers) if all(numbers) else 0.0


def _mean(metric: str, column: Sequence[float | None]) -> float | None:
    numbers = [float(value) for value in column if value is not None and not isnan(value)]
    for value in numbers:
        if not -_SLACK <= value <= 1 + _SLACK:
            raise SampleError(f"ragas_score: {metric} has the value {value:g}; values lie between 0 and 1")
    if len(numbers) < len(column):
        lost = len(column) - len(numbers)
        warnings.warn(f"ragas_score: {lost} of {len(column)} values of {metric} are undefined, left out", stacklevel=3)
    return sum(numbers) / len(numbers) if numbers else None
