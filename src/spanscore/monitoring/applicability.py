"""Whether a metric with a condition applies → to how much of traffic it does, with an interval, and the alert on one of none.

y is 1 for a scored unit, 0 for one that is ``not applicable``; a unit of which nobody could say, as its judge failed, is in
neither. So Hájek's share and its interval are those of ``estimates.py``, and as y² = y two sums apart by y are all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from spanscore import semconv
from spanscore.core.job import Weights
from spanscore.monitoring import promql
from spanscore.monitoring.alert import OF_METRIC, Alert, labels_of
from spanscore.monitoring.estimates import (
    WORTH_TELLING,
    Moments,
    interval,
    mean,
    missing_bounds,
    missing_share,
    moments,
)
from spanscore.monitoring.names import label

__all__ = ["ENOUGH", "WINDOW_S", "Applicability", "applicability", "applied_so_far", "applying", "never_applies"]

ENOUGH: Final = 300
"""Effective units among which none applied: by the rule of three, the share is then under 3 / 300 = 1 % (95 %). A condition
that holds for 3 % of traffic is silent for so long once in 9,000 times, one of 1 % once in 20."""
WINDOW_S: Final = 86_400.0
"""Over which they are counted: a day, as what people ask differs by the hour."""
_APPLIES, _DOES_NOT = (f'{label(semconv.APPLICABLE)}="{value}"' for value in ("true", "false"))
_SUMS: Final = MappingProxyType(
    {
        semconv.WEIGHT: (semconv.APPLICABLE_WEIGHT, ""),
        semconv.WEIGHT_QUALITY: (semconv.APPLICABLE_WEIGHT, _APPLIES),
        semconv.WEIGHT2: (semconv.APPLICABLE_WEIGHT2, ""),
        semconv.WEIGHT2_QUALITY: (semconv.APPLICABLE_WEIGHT2, _APPLIES),
        semconv.WEIGHT2_QUALITY2: (semconv.APPLICABLE_WEIGHT2, _APPLIES),
    }
)
"""The sum of a mean → that of the share: its instrument and the matcher on it."""
_Read: TypeAlias = Callable[[str], Mapping[tuple[tuple[str, str], ...], float]]
"""Instrument → attributes → sum, as ``Telemetry.sums`` returns them."""


class Applicability(NamedTuple):
    """To how much of all traffic a metric applies.

    Attributes:
        share: of the units of which the judge said whether it does, weighted; [0, 1].
        low: end of its 95 % interval; where units are missing that are worth telling of, whatever these would have been.
        high: likewise.
        undecided: of the chosen units, those without an answer of the configured judge; [0, 1].
    """

    share: float
    low: float
    high: float
    undecided: float

    def __str__(self) -> str:
        digits = 0 if self.share >= 0.1 else 1  # noqa: PLR2004  (where whole percents would say too little)
        share, low, high = (f"{100 * one:.{digits}f}" for one in (self.share, self.low, self.high))
        missing = f" (of {100 * self.undecided:.0f} % of the chosen units nobody could say)"
        return f"applies to {share} % of traffic, {low}–{high} %{missing if self.undecided >= WORTH_TELLING else ''}"


def applicability(decided: Iterable[tuple[bool, float]], lost: Iterable[float] = ()) -> Applicability | None:
    """Return the share from pairs (it applies, probability); None where there is none.

    Args:
        lost: probability of each chosen unit of which nobody could say.
    """
    return _share(moments(((float(applies), probability) for applies, probability in decided), lost))


def applied_so_far(metric: str, sums: _Read, lost: Weights) -> Applicability | None:
    """Return the share from a scorer's own sums, over all series since it began; None where nothing was decided."""
    w, w2 = (_by_answer(metric, sums(name)) for name in (semconv.APPLICABLE_WEIGHT, semconv.APPLICABLE_WEIGHT2))
    squares = {"w2": sum(w2.values()), "w2y": w2["true"], "w2y2": w2["true"]}
    return _share(Moments(w=sum(w.values()), wy=w["true"], **squares, lost=lost.w, lost2=lost.w2))


def _by_answer(metric: str, sums: Mapping[tuple[tuple[str, str], ...], float]) -> dict[str, float]:
    found = {"true": 0.0, "false": 0.0}
    for labels, value in sums.items():
        named = dict(labels)
        if named[semconv.EVALUATION_NAME] == metric:
            found[named[semconv.APPLICABLE]] += value
    return found


def _share(of: Moments) -> Applicability | None:
    if not of.w:
        return None
    undecided = missing_share(of)
    ends = missing_bounds(of) if undecided >= WORTH_TELLING else interval(of)
    return Applicability(mean(of), *ends, undecided)


def applying(window: str, where: str = "", by: Iterable[str] = promql.GROUP) -> promql.Sums:
    """Return the sums from which ``promql.mean`` and ``promql.interval`` give the share; of metrics with a condition alone."""
    labels = tuple(by)

    def of(name: str) -> str:
        counter, matcher = _SUMS[name]
        return promql.increase(counter, window, ",".join(filter(None, (where, matcher))), labels)

    return of


def never_applies() -> Alert:
    """Return the alert on a condition that holds for nobody."""
    window = promql.duration(WINDOW_S)
    w, w2, applied = (
        promql.increase(name, window, matcher)
        for name, matcher in (
            (semconv.APPLICABLE_WEIGHT, _DOES_NOT),
            (semconv.APPLICABLE_WEIGHT2, _DOES_NOT),
            (semconv.APPLICABLE_WEIGHT, _APPLIES),
        )
    )
    never = f"{w} ^ 2 / {w2} >= {ENOUGH}\nunless {applied} > 0"
    return Alert(
        name="SpanscoreNeverApplies",
        expression=never,
        labels=labels_of("warning", OF_METRIC, window),
        summary="a metric applies to nothing",
        text=f"The condition of {OF_METRIC} (applies_when) held for none of the units that were judged over {window}, worth "
        f"{{count}} of equal weight ({{service}}): it applies to under {300 / ENOUGH:.0f} % of traffic. Read the "
        "judge's questions with judge.trace, and write the condition in plainer words.",
    )
