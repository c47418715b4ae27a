"""Sections of monitoring: dimensions, alerts and baselines, the judge check, and the comparison of releases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from math import nan
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from spanscore import semconv
from spanscore.config.kinds import (
    AnyPath,
    FrozenDict,
    InnerShare,
    Items,
    PositiveSeconds,
    Rate,
    SettingsPart,
    Table,
    WebAddress,
    seconds_in,
    share_in,
)

__all__ = ["AlertSettings", "Compare", "HourOfWeekBaseline", "JudgeCheck", "Monitoring", "OffsetBaseline"]


class HourOfWeekBaseline(SettingsPart):
    """What is normal in each hour of the week.

    Attributes:
        hour_of_week: path of a file that ``spanscore baseline`` wrote, seen from the working directory.
    """

    hour_of_week: str


class OffsetBaseline(SettingsPart):
    """What is normal is what was before. It follows a slow decline, which then alarms nobody.

    Attributes:
        offset: how long before; whole days.
    """

    offset: PositiveSeconds


_DAY_S = 86_400
_BASELINES = "write a quality, [0, 1], {hour_of_week: FILE} of `spanscore baseline`, or {offset: 7d}"


def _baseline(value: Any) -> float | HourOfWeekBaseline | OffsetBaseline | None:
    match value:
        case None | HourOfWeekBaseline() | OffsetBaseline():
            return value
        case {"hour_of_week": str(path), **rest} if not rest:
            return HourOfWeekBaseline(hour_of_week=path)
        case {"offset": long_before, **rest} if not rest:
            return OffsetBaseline(offset=_whole_days(long_before))
    try:
        found = nan if isinstance(value, bool) else float(share_in(value))
    except (TypeError, ValueError):
        found = nan
    if not 0 <= found <= 1:  # nor where it is no number
        raise ValueError(_BASELINES)
    return found


def _whole_days(value: Any) -> float:
    seconds = float(seconds_in(value)) if isinstance(value, str | int | float) else 0.0
    if seconds <= 0 or seconds % _DAY_S:
        raise ValueError("an offset is a number of whole days, as the mean swings with the day; write offset: 7d")
    return seconds


LOOK_BACK_S = 300.0
"""For so long Prometheus sees a value of a series that gets no more of them."""
OURS = ("alertname", "severity", "metric", "window", "segment", "reason")
"""Labels that alerts have already."""


class AlertSettings(SettingsPart):
    """When one metric is worth a page. All numbers are quality: [0, 1], 1 good, whatever the metric's own scale.

    Attributes:
        baseline: the quality that is normal, measured and then frozen: a number, or ``{hour_of_week: FILE}``, or
            ``{offset: 7d}``; None = drops are not watched.
        min_drop: smallest drop below the baseline that matters; a quarter of it is tolerated.
        false_alarm_every: at most one false drop alarm in this time, over all windows, metrics and segments together.
        threshold: lowest acceptable mean, whatever is normal; None = none.
        baseline_sd: how far the true mean strays from its baseline by itself, as a standard deviation; added to the standard
            error of every window. None = what the file of the baseline has learned, else 0.
        min_scores: least effective scores of a window that an alert compares; None = 30.
        z: standard errors that a drop must have; None = computed from ``false_alarm_every``.
        evaluator_version: only this evaluator version (metric version, judge and votes), which the metric must have, is
            watched; None = whatever is scored.
        severity: label of the alerts on drops and on the threshold.
        labels: more labels of every alert on the metric: who is told.
        runbook: address that every alert on the metric links to; None = none.
    """

    baseline: Annotated[Rate | HourOfWeekBaseline | OffsetBaseline | None, BeforeValidator(_baseline)] = None
    min_drop: InnerShare = 0.05
    baseline_sd: Rate | None = None
    false_alarm_every: PositiveSeconds = 30 * 86_400.0
    threshold: Rate | None = None
    min_scores: int | None = Field(default=None, ge=1)
    z: Annotated[float, Field(gt=0)] | None = None
    evaluator_version: str | None = None
    severity: Annotated[str, Field(min_length=1)] = "warning"
    labels: Table[str, str] = Field(default_factory=FrozenDict)
    runbook: WebAddress | None = None

    @field_validator("labels")
    @classmethod
    def _are_free(cls, labels: Mapping[str, str]) -> Mapping[str, str]:
        wrong = [name for name in labels if name in OURS or not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name)]
        if wrong:
            raise ValueError(
                f"{wrong[0]!r} cannot be a label: write a word of letters, digits and _, but {', '.join(OURS)}"
            )
        return labels

    @model_validator(mode="after")
    def _can_drop(self) -> Self:
        if isinstance(self.baseline, float) and self.baseline <= self.min_drop:
            raise ValueError(f"a baseline of {self.baseline} cannot drop by {self.min_drop}: lower min_drop")
        return self


class Monitoring(SettingsPart):
    """What sums are told apart by, and what all alerts share.

    Attributes:
        dimensions: key of the metadata, the root's attributes or its resource's → values that are told apart in sums and
            watched by alerts of their own.
        interval: between two evaluations of the rules; at most Prometheus' look-back, 5 min.
        windows: over which the mean is watched; a short one finds a large drop soon, a long one a small drop at all.
        no_scores_after: without a single score for this long, something is broken; None = for the time of 15 scores, by those
            of the last day, at least 30 min and at most 24 h.
        services: which are to score; one that ever did and is not among them is not missed. Empty = each that ever did. They
            share the budget of false alarms; if the list is empty, each service has a budget of its own.
        max_failed: highest acceptable share of failed evaluations.
        dashboard_url: what an alert links to; ``{metric}``, ``{service}``, ``{from}`` and ``{to}`` (Unix ms) are replaced.
        trace_url: where the traces of failed units are listed, with the same places. None = no link.
        calibrations: files of ``spanscore calibrate``, one per metric: the pass rate of its evaluator version, and of no other,
            is recorded as humans would tell it, too. Alerts are not corrected.
    """

    section: ClassVar[str] = "monitoring"
    dimensions: Table[str, Items[str]] = Field(default_factory=FrozenDict)
    interval: PositiveSeconds = 60.0
    windows: Annotated[Items[PositiveSeconds], Field(min_length=1)] = (300.0, 900.0, 3_600.0, 21_600.0, 86_400.0)
    no_scores_after: PositiveSeconds | None = None
    services: Items[Annotated[str, Field(min_length=1)]] = ()
    max_failed: InnerShare = 0.1
    dashboard_url: WebAddress = (
        "http://localhost:3000/d/spanscore-metric?var-metric={metric}&var-service={service}&from={from}&to=now"
    )
    trace_url: WebAddress | None = None
    calibrations: Items[Annotated[str, Field(min_length=1)]] = ()

    @field_validator("interval")
    @classmethod
    def _is_seen(cls, interval: float) -> float:
        if interval > LOOK_BACK_S:
            raise ValueError(f"{interval:g} s: Prometheus looks back {LOOK_BACK_S:g} s, then what rules write is gone")
        return interval

    @model_validator(mode="after")
    def _is_long_enough(self) -> Self:
        short = [window for window in self.windows if window < 4 * self.interval]
        if short:
            raise ValueError(f"a window of {short[0]:g} s needs at least 4 evaluations, one in {self.interval:g} s")
        return self

    @field_validator("dimensions")
    @classmethod
    def _has_values(cls, dimensions: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        empty = [key for key, values in dimensions.items() if not values]
        if empty:
            raise ValueError(f"{empty[0]} lists no values; write for example {{user_tier: [gold, free]}}")
        return dimensions


SHORTEST_S: Final = 60.0
LONGEST_S: Final = 30 * 86_400.0


class JudgeCheck(SettingsPart):
    """Labelled samples that the judges are asked about on a schedule: a judge that has changed is told from an application
    that has. They are no part of sampling: their scores have the source ``judge_check``, and are in no mean.

    Attributes:
        golden_set: file of labelled samples, JSON lines: each with ``human`` and the fields of a sample, seen from the working
            directory. Read once, when the scorer is made.
        every: time from the start of one run to that of the next, 1m to 30d; the first is within a minute of the first unit.
        metrics: names of the watched metrics; none = each that asks a judge.
        name: name of the labels; None = the file has but one.
        baseline: file in which the first answers of each evaluator version are kept, with which later runs are compared; None =
            beside ``golden_set``, ending in ``.baseline.json``. It must outlive the process: where it cannot be written, each
            process compares with its own first run. Of the processes of a machine that share it and watch the same evaluator
            version, one has runs.
    """

    section: ClassVar[str] = "judge_check"
    golden_set: AnyPath
    every: Annotated[PositiveSeconds, Field(ge=SHORTEST_S, le=LONGEST_S)] = 21_600.0
    metrics: Items[str] = ()
    name: str | None = None
    baseline: AnyPath | None = None

    @property
    def path(self) -> Path:
        """The file of labels."""
        return Path(self.golden_set).expanduser()

    @property
    def baseline_path(self) -> Path:
        """Where the first answers are kept."""
        if self.baseline is not None:
            return Path(self.baseline).expanduser()
        return self.path.with_suffix(".baseline.json")

    def lock_path(self, evaluator_versions: Iterable[str]) -> Path:
        """Return the lock file of the one process that runs the check for these evaluator versions; others have their own."""
        of = blake2b("\n".join(sorted(evaluator_versions)).encode("utf-8", "replace"), digest_size=4).hexdigest()
        return self.baseline_path.with_name(f"{self.baseline_path.name}.{of}.lock")


def _check_attribute(name: str) -> str:
    if not name.strip():
        raise ValueError(f"{name!r} is no name; write what differs: 'service.version'")
    if semconv.is_content(name):
        raise ValueError(f"{name!r} quotes what users write, and would be a label")
    return name


class Compare(SettingsPart):
    """Two releases on live traffic: the sums are kept per value of what tells them apart, for ``spanscore compare``.

    Attributes:
        by: attribute of the resource (``service.version``), key of the run's metadata, attribute of the unit's root
            (``gen_ai.prompt.version``), ``gen_ai.request.model``, or ``spanscore.evaluator.version``. The first eight values
            that come are told apart; any other is ``other``, none at all ``unknown``. They leave as a label: of metadata and
            attributes by way of the redactor.
    """

    section: ClassVar[str] = "compare"
    by: Annotated[str, AfterValidator(_check_attribute)]
