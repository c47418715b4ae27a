"""The sections of monitoring: dimensions, alerts and baselines, the judge check, and the comparison of releases."""

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


class HourOfWeekBaseline(SettingsPart):
    """A baseline with a normal quality for each hour of the week.

    Attributes:
        hour_of_week: path of a file that ``spanscore baseline`` wrote, relative to the working directory.
    """

    hour_of_week: str


class OffsetBaseline(SettingsPart):
    """A baseline that is the mean of an earlier time. The baseline follows a slow decline, which therefore raises no alert.

    Attributes:
        offset: time between the baseline and the window; whole days, at least the longest window. The earlier window needs 200
            effective scores.
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
    if not 0 <= found <= 1:  # also true for NaN
        raise ValueError(_BASELINES)
    return found


def _whole_days(value: Any) -> float:
    seconds = float(seconds_in(value)) if isinstance(value, str | int | float) else 0.0
    if seconds <= 0 or seconds % _DAY_S:
        raise ValueError("an offset is a number of whole days, as the mean swings with the day; write offset: 7d")
    return seconds


LOOK_BACK_S = 300.0
"""Prometheus' look-back: a query finds the last value of a series for 300 s."""
OURS = ("alertname", "severity", "metric", "category", "window", "segment", "reason")
"""Labels that spanscore sets on some or all alerts."""


class AlertSettings(SettingsPart):
    """The alerts of one metric. All numbers are quality: [0, 1], 1 good, whatever the metric's own scale. With ``share_of``
    they are shares of units, [0, 1].

    Attributes:
        share_of: a category of the metric, whose share of units is watched instead of the quality: the alerts are on a rise
            above ``baseline`` and on a share above ``max``. None = the quality is watched.
        max: highest acceptable share, whatever is normal; only with ``share_of``. None = no highest share.
        min_rise: smallest rise of the share above the baseline that matters, with ``share_of``. The tolerated share is the
            baseline plus a quarter of this rise.
        baseline: normal quality, or normal share with ``share_of``, measured once and then fixed: a number,
            ``{hour_of_week: FILE}`` or ``{offset: 7d}``. ``hour_of_week`` is refused with ``share_of``. None = no alerts on
            drops and rises.
        min_drop: smallest drop below the baseline that matters, not with ``share_of``. The tolerated mean is the baseline minus
            a quarter of this drop.
        false_alarm_every: shortest mean time between two false alarms, of all metrics together if they have the same value.
            Each window of each metric, segment and listed service has an equal share of the false alarms; so has each judge
            check.
        threshold: lowest acceptable mean, whatever is normal, not with ``share_of``; None = no threshold.
        baseline_sd: standard deviation of the true mean around its baseline. Its square is added to the squared standard error
            of every window. None = the value in the file of the baseline, or 0 if it has no value.
        min_scores: smallest number of effective scores of a window that an alert compares; None = 30.
        z: standard errors below the tolerated mean, or above the tolerated share, at which a window alerts; None = computed
            from ``false_alarm_every``.
        evaluator_version: the only evaluator version (metric version, judge and votes) that is watched; the metric must have
            this version. None = every version.
        severity: label ``severity`` of the alerts on drops, rises, ``threshold``, ``max`` and a changed judge.
        labels: further labels of the alerts on the metric, for routing notifications. ``SpanscoreNeverApplies`` and
            ``SpanscoreOutcomesDoNotAddUp`` do not get them.
        runbook: address that the alerts with these labels link to; None = no link.
    """

    baseline: Annotated[Rate | HourOfWeekBaseline | OffsetBaseline | None, BeforeValidator(_baseline)] = None
    min_drop: InnerShare = 0.05
    share_of: Annotated[str, Field(min_length=1)] | None = None
    max: Rate | None = None
    min_rise: InnerShare = 0.05
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
                f"{wrong[0]!r} cannot be a label: write a word of letters, digits and _, except {', '.join(OURS)}"
            )
        return labels

    @model_validator(mode="after")
    def _is_of_a_share(self) -> Self:
        of_share, of_quality = ("max", "min_rise"), ("threshold", "min_drop")
        for key in of_quality if self.share_of else of_share:
            if getattr(self, key) != type(self).model_fields[key].default:
                which = (
                    "a share has max and min_rise"
                    if self.share_of
                    else "it is for a share: name a category in share_of"
                )
                raise ValueError(f"{key} cannot be given {'with' if self.share_of else 'without'} share_of: {which}")
        if self.share_of is None:
            return self
        if self.max is None and self.baseline is None:
            raise ValueError("share_of needs max, the highest acceptable share, or baseline, the normal share")
        if isinstance(self.baseline, HourOfWeekBaseline):
            raise ValueError("the baseline of a share is a number, [0, 1], or {offset: 7d}")  # noqa: TRY004  (pydantic reads it)
        if isinstance(self.baseline, float) and self.baseline + self.min_rise >= 1:
            raise ValueError(f"a share of {self.baseline} cannot rise by {self.min_rise}: lower min_rise")
        return self

    @property
    def least_change(self) -> float:
        """The smallest change of the watched mean that matters: ``min_drop``, or ``min_rise`` of a share."""
        return self.min_rise if self.share_of else self.min_drop

    @model_validator(mode="after")
    def _can_drop(self) -> Self:
        if self.share_of is None and isinstance(self.baseline, float) and self.baseline <= self.min_drop:
            raise ValueError(f"a baseline of {self.baseline} cannot drop by {self.min_drop}: lower min_drop")
        return self


class Monitoring(SettingsPart):
    """Settings that all alerts share, and the dimensions of sums.

    Attributes:
        dimensions: key of the metadata, of the root's attributes or of its resource → values with separate sums and alerts.
        interval: time between two evaluations of the rules; at most Prometheus' look-back, 5 min.
        windows: lengths of time over which the mean is watched, each at least 4 × ``interval``. A short window finds a large
            drop early; only a long window finds a small drop.
        no_scores_after: time without any score after which an alert fires. None = the time of 15 scores at the rate of the last
            day, at least 30 min and at most 24 h.
        services: services that must have scores; a missing service outside the list raises no alert. Empty = every service that
            ever had a score. The services of the list share the budget of false alarms; if the list is empty, each service has
            a separate budget.
        max_failed: highest acceptable share of failed evaluations.
        dashboard_url: address that alerts link to; ``{metric}``, ``{service}``, ``{from}`` and ``{to}`` (Unix ms) are replaced.
        trace_url: address of a list of the traces of failed units, with the placeholders of ``dashboard_url``. None = no link.
        calibrations: files of ``spanscore calibrate``, one per metric. Each adds a pass rate corrected by human labels, for the
            evaluator version of the file. Alerts are not corrected.
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
            raise ValueError(f"{interval:g} s: Prometheus looks back {LOOK_BACK_S:g} s; results of rules expire then")
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
    """Labelled samples that the judges score on a schedule, to distinguish a changed judge from a changed application.
    Sampling does not apply to them: the scores have the source ``judge_check`` and are in no mean.

    Attributes:
        golden_set: path of a file of labelled samples, relative to the working directory: JSON lines, each with ``human`` and
            the fields of a sample. Read once, when the scorer is created.
        every: time from the start of one run to the start of the next, 1m to 30d; the first run is within a minute of the first
            unit.
        metrics: names of the watched metrics; empty = each metric with a judge and a quality.
        name: name of the labels to use. With None, all labels of the file must have one name.
        baseline: path of the file with the first answers of each evaluator version, with which later runs are compared. None =
            next to ``golden_set``, ending in ``.baseline.json``. The file must outlive the process: if it cannot be written,
            each process compares with its own first run. If processes of one machine share the file and watch exactly the
            same evaluator versions, one of them runs the check.
    """

    section: ClassVar[str] = "judge_check"
    golden_set: AnyPath
    every: Annotated[PositiveSeconds, Field(ge=SHORTEST_S, le=LONGEST_S)] = 21_600.0
    metrics: Items[str] = ()
    name: str | None = None
    baseline: AnyPath | None = None

    @property
    def path(self) -> Path:
        """Path of the file of labelled samples."""
        return Path(self.golden_set).expanduser()

    @property
    def baseline_path(self) -> Path:
        """Path of the file with the first answers."""
        if self.baseline is not None:
            return Path(self.baseline).expanduser()
        return self.path.with_suffix(".baseline.json")

    def lock_path(self, evaluator_versions: Iterable[str]) -> Path:
        """Return the lock file of the one process that runs the check for these evaluator versions."""
        of = blake2b("\n".join(sorted(evaluator_versions)).encode("utf-8", "replace"), digest_size=4).hexdigest()
        return self.baseline_path.with_name(f"{self.baseline_path.name}.{of}.lock")


def _check_attribute(name: str) -> str:
    if not name.strip():
        raise ValueError(f"{name!r} is no name; write the attribute that differs: 'service.version'")
    if semconv.is_content(name):
        raise ValueError(f"{name!r} has texts of users, and would become a label")
    return name


class Compare(SettingsPart):
    """The comparison of two releases on live traffic, by ``spanscore compare``: sums are kept for each release.

    Attributes:
        by: name of the attribute that differs between releases. It is read from the run's metadata, else from the unit's root
            (``gen_ai.prompt.version``), its model span or the resource (``service.version``). ``gen_ai.request.model``
            (read from each unit) and ``spanscore.evaluator.version`` (read from each score) need no metadata. The first eight
            values (of evaluator versions: of each metric) have separate sums; a further value or one above 128 characters is
            ``other``, a missing value ``unknown``. The values become a label; values of metadata and attributes are redacted
            first.
    """

    section: ClassVar[str] = "compare"
    by: Annotated[str, AfterValidator(_check_attribute)]
