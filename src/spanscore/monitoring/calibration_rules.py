"""Calibrations → the rules that record pass rates as humans would tell them: ``Calibration.corrected`` as PromQL.

They look at the longest window, and record nothing of a series that is not calibrated, or is no longer written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spanscore import semconv
from spanscore.config.monitoring import Monitoring
from spanscore.errors import ConfigurationError
from spanscore.monitoring import promql
from spanscore.monitoring.calibration import MORE, Calibration, Z
from spanscore.monitoring.calibration_file import SavedCalibration
from spanscore.monitoring.names import label
from spanscore.monitoring.recorded import WRITTEN, among
from spanscore.protocols import Metric

__all__ = [
    "CORRECTED",
    "HIGH",
    "LOW",
    "corrected",
    "corrected_ends",
    "corrected_records",
    "refuse_unknown",
    "smoothed_share",
    "smoothed_variance",
]

CORRECTED = "spanscore:corrected_pass_rate"
LOW, HIGH = f"{CORRECTED}:low", f"{CORRECTED}:high"
"""The names of the corrected rate and of the ends of its interval; the label ``window`` says over which."""
_SHARE, _VARIANCE = "spanscore:smoothed_pass_rate", "spanscore:smoothed_pass_rate:variance"
_PASSED = promql.matching({label(semconv.EVALUATION_SCORE_LABEL): "pass"})


def refuse_unknown(calibrations: Mapping[str, SavedCalibration], metrics: Sequence[Metric]) -> None:
    """Refuse a calibration of a metric that there is not.

    Raises:
        ConfigurationError: there is one.
    """
    names = [metric.name for metric in metrics]
    for metric in calibrations:
        if metric not in names:
            raise ConfigurationError(
                f"monitoring.calibrations: one is of {metric!r}, which is no metric of this scorer; it has {', '.join(names)}"
            )


def corrected_records(saved: SavedCalibration, shared: Monitoring) -> Iterator[dict[str, Any]]:
    """Yield the rules of one calibration; each sees what those before it have recorded."""
    window = promql.duration(max(shared.windows))
    own = promql.matching({promql.METRIC: saved.metric, promql.EVALUATOR_VERSION: saved.evaluator_version})
    every = promql.increases(window, own, promql.BY_EVALUATOR)
    passed = _or_none(promql.increases(window, f"{own},{_PASSED}", promql.BY_EVALUATOR), every)
    share, variance = (f"{name}{{{own}}}" for name in (_SHARE, _VARIANCE))
    low, high = corrected_ends(saved.calibration, share, variance)
    for name, expression in (
        (_SHARE, among(WRITTEN, smoothed_share(passed, every))),
        (_VARIANCE, smoothed_variance(passed, every, f"sum without (window) ({share})")),  # sums have no such label
        (CORRECTED, among(WRITTEN, corrected(saved.calibration, passed, every))),
        (LOW, low),
        (HIGH, high),
    ):
        yield {"record": name, "expr": expression, "labels": {promql.METRIC: saved.metric, "window": window}}


def corrected(by: Calibration, passed: promql.Sums, every: promql.Sums) -> str:
    """Return the corrected rate, [0, 1].

    Args:
        passed: sums over what the judge passed.
        every: over all that it judged.
    """
    raw = f"{passed(semconv.WEIGHT)} / {every(semconv.WEIGHT)}"
    return _clamped(f"({raw} - {1.0 - by.specificity.value:.9g}) / {by.informedness.value:.9g}")


def smoothed_share(passed: promql.Sums, every: promql.Sums) -> str:
    """Return the share that passed with ``MORE`` units more that did and as many that did not, of typical weight."""
    return f"({passed(semconv.WEIGHT)} + {_more(every, 1)}) / {_weight(every)}"


def smoothed_variance(passed: promql.Sums, every: promql.Sums, share: str) -> str:
    """Return the variance of its estimate."""
    more = _more(every, 2)
    ones, zeros = passed(semconv.WEIGHT2), f"{every(semconv.WEIGHT2)} - {passed(semconv.WEIGHT2)}"
    return f"((1 - {share}) ^ 2 * ({ones} + {more}) + {share} ^ 2 * ({zeros} + {more})) / {_weight(every)} ^ 2"


def corrected_ends(by: Calibration, share: str, variance: str) -> tuple[str, str]:
    """Return the ends of the corrected rate's interval, each in [0, 1]."""
    right, wrong = by.smoothed()
    j = right.share + wrong.share - 1.0
    rate = f"(({share} - {1.0 - wrong.share:.9g}) / {j:.9g})"
    shift = f"{4.0 * MORE:.9g} * ({rate} * {right.variance:.9g} - (1 - {rate}) * {wrong.variance:.9g})"
    spread = f"{variance} + {rate} ^ 2 * {right.variance:.9g} + (1 - {rate}) ^ 2 * {wrong.variance:.9g}"
    low, high = (_clamped(f"{rate} + {shift} {sign} {Z / j:.9g} * sqrt({spread})") for sign in "-+")
    return low, high


def _or_none(passed: promql.Sums, every: promql.Sums) -> promql.Sums:
    """Return sums that are 0 where something was judged and nothing has ever passed, and so no counter of passes stands."""
    return lambda instrument: f"({passed(instrument)} or 0 * {every(instrument)})"


def _more(every: promql.Sums, power: int) -> str:
    """Return what so many units more of typical weight add to a sum of weights, or of their squares."""
    return f"{MORE:.9g} * ({every(semconv.WEIGHT2)} / {every(semconv.WEIGHT)}) ^ {power}"


def _weight(every: promql.Sums) -> str:
    return f"({every(semconv.WEIGHT)} + 2 * {_more(every, 1)})"


def _clamped(expression: str) -> str:
    return f"clamp({expression}, 0, 1)"
