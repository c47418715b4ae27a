"""An alert (query, labels, texts) independent of the tool that evaluates it, and functions that build its text templates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import get_args

from spanscore.config.monitoring import Monitoring
from spanscore.core.score import UNIT_INTERVAL, Scale
from spanscore.core.span import InnerKind
from spanscore.monitoring import promql, recorded
from spanscore.monitoring.estimates import WORTH_TELLING
from spanscore.monitoring.promql import label
from spanscore.monitoring.recorded import WINDOW

FOR_INTERVALS = 1
"""Evaluation intervals for which a condition must hold, because ``increase()`` near the start of a series may be wrong once."""
ALL = "all"
"""Value of the alert's label ``metric`` if the alert concerns all metrics."""


@dataclass(frozen=True, slots=True)
class AlertScope:
    """The units that an alert covers: all units, or one segment (the units with ``value`` in the dimension ``key``)."""

    key: str = ""
    value: str = ""

    @property
    def name(self) -> str:
        """The scope's name, such as ``user_tier=gold``; empty for all units."""
        return f"{self.key}={self.value}" if self.key else ""

    @property
    def labels(self) -> dict[str, str]:
        """The Prometheus label of the segment's counters; empty for all units."""
        return {label(self.key): self.value} if self.key else {}


@dataclass(frozen=True, slots=True)
class AlertNumber:
    """A number in the text of an alert.

    Attributes:
        expression: PromQL query of one value; ``promql.OWN`` and similar placeholders select the series of the alert.
        form: ``printf`` format, or a fixed text without ``%``. The text is empty if the query has no result.
        pipe: template functions that format the value in place of ``printf``; empty = use ``form``.
    """

    expression: str
    form: str = "%.3g"
    pipe: str = ""

    def template(self, value: str) -> str:
        """Return the template of the number; ``value`` is a template expression with its value."""
        if not self.pipe and "%" not in self.form:
            return self.form
        pipe = self.pipe or f'printf "{self.form}"'
        return f"{{{{ {value} | {pipe} }}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert: a condition that must hold for ``FOR_INTERVALS`` intervals, its labels and its texts.

    Attributes:
        expression: query that returns a value while the condition holds, otherwise an empty result.
        labels: Prometheus labels of the alert: severity and metric; window and reason if there are several. The values are
            templates.
        summary: one line for people; a template, so text from outside must go through ``literal``.
        text: description for people, also a template. It may contain these places, which the writer of a tool's file fills:
            ``{value}`` (``{count}`` for a whole number, ``{lasting}`` for seconds), ``{service}``, and ``{<figure>}``.
        figures: name → further number in the text.
        metric: template expression of the name of the alert's metric, for links.
        runbook: address of the instructions, a template; empty = no runbook.
        keep_s: seconds for which the alert stays on after its condition has ended.
    """

    name: str
    expression: str
    labels: Mapping[str, str]
    summary: str
    text: str
    figures: Mapping[str, AlertNumber] = field(default_factory=dict)
    metric: str = f"$labels.{promql.METRIC}"
    runbook: str = ""
    keep_s: float = 0.0


def literal(text: str) -> str:
    """Return a template that yields exactly this text: its braces and dollars are escaped for Go templates and Grafana."""
    return re.sub(r"[{$]", lambda sign: f'{{{{ "\\x{ord(sign[0]):02x}" }}}}', text)


def fill_template(template: str, parts: Mapping[str, str]) -> str:
    """Return a template in which each ``{name}`` of ``parts`` is replaced by its part."""
    return _PLACE.sub(lambda place: parts.get(place[1], place[0]), template)


_PLACE = re.compile(r"\{(\w+)\}")


def scopes_of(shared: Monitoring) -> list[AlertScope]:
    """Return the scope of all units, then the scope of each segment in ``monitoring.dimensions``."""
    return [AlertScope(), *(AlertScope(key, value) for key, values in shared.dimensions.items() for value in values)]


def alert_labels(severity: str, metric: str, window: str = "") -> dict[str, str]:
    """Return the labels of an alert; ``window`` is empty if the alert covers several windows."""
    return {"severity": severity, "metric": metric, **({WINDOW: window} if window else {})}


METRIC_NAME = f"{{{{ $labels.{promql.METRIC} }}}}"
"""Template that yields the name of the alert's metric."""
_PARTS_OF_SHARE = ("=.*", ".*=")
METRIC_OF_SHARE, CATEGORY_OF_SHARE = (f'reReplaceAll "{rest}" "" $labels.{promql.METRIC}' for rest in _PARTS_OF_SHARE)
"""Template expressions of the metric and the category of a share, whose name is ``metric=category``."""
WITHOUT_UNITS = f' | reReplaceAll " [(]({"|".join(get_args(InnerKind))})( .*)?[)]$" ""'
"""End of a template expression. It removes the name of inner units: ``context_relevance (retriever)``."""
SHARE_NAME = f"{{{{ {CATEGORY_OF_SHARE} }}}} in {{{{ {METRIC_OF_SHARE} }}}}"
"""Template that yields the name of a share: ``refund in intent``."""


def share_labels(severity: str, window: str = "") -> dict[str, str]:
    """Return the labels of an alert on shares, with the category; ``window`` is empty if it covers several windows."""
    metric, category = (f"{{{{ {name} }}}}" for name in (METRIC_OF_SHARE, CATEGORY_OF_SHARE))
    return {**alert_labels(severity, metric, window), "category": category}


def worst_share(value: str, window: str) -> AlertNumber:
    """Return the figure ``worst``: the share if all units without a score had the category. Empty if few units lack a score.

    Args:
        value: expression of the share, with ``promql.OWN``.
        window: window for the share of units without a score.
    """
    at_worst = f"1 - (1 - {value}) * {_scored_share(window)}"
    return AlertNumber(at_worst, " At worst %.2f, if all units without a score had it.")


def _scored_share(window: str) -> str:
    """Return the factor for a mean: the share of units with a score; no result if below 1 % of the units have none."""
    missing = f'{recorded.MISSING_SHARE}{{{recorded.WINDOW}="{window}",{promql.OWN_SERVICE}}} >= {WORTH_TELLING:g}'
    return f"on ({', '.join(promql.GROUP)}) group_left () (1 - ({missing}))"


def by_metric(texts: Mapping[str, str]) -> str:
    """Return one template for texts that differ by metric; ``texts``: metric → template."""
    return by_label(promql.METRIC, texts)


def by_label(name: str, texts: Mapping[str, str]) -> str:
    """Return one template for texts that differ by a Prometheus label; ``texts``: label value → template."""
    by_text: dict[str, list[str]] = {}
    for value, text in texts.items():
        by_text.setdefault(text, []).append(value)
    if len(by_text) <= 1:
        return next(iter(by_text), "")
    cases = (
        f"if eq $labels.{name} {' '.join(map(_quote, values))} }}}}{text}" for text, values in by_text.items() if text
    )
    return "{{ " + "{{ else ".join(cases) + "{{ end }}"


def _quote(text: str) -> str:
    """Return a quoted template string in which each special sign is escaped."""
    return '"' + "".join(f"\\u{ord(c):04x}" if c in _SIGNS else c for c in text) + '"'


_SIGNS = frozenset('{}$"\\\n\r')


def match_metrics(metrics: Iterable[str]) -> str:
    """Return the PromQL label matcher of these metrics."""
    return f'{promql.METRIC}=~"{promql.any_of(metrics)}"'


FOR_SEGMENT = f"{{{{ with $labels.{recorded.SEGMENT} }}}} for {{{{ . }}}}{{{{ end }}}}"


def describe_mean(scales: Mapping[str, Scale]) -> str:
    """Return the subject of an alert's text: ``Quality of hedging (lower is better; raw mean {raw}) for tier=gold``.

    An alert's text has the mean quality, as baselines do. For a metric with another scale it also has the raw mean, of the
    values.

    Args:
        scales: metric → its scale.
    """
    raw = dict.fromkeys(scales, "")
    for metric, scale in scales.items():
        if not _is_quality(scale):
            low, high = _ends(scale)
            within = "" if (low, high) == UNIT_INTERVAL.range else f", {low:g} to {high:g}"
            raw[metric] = f" ({scale.direction} is better{within}; raw mean {{{_raw_name(scale)}}})"
    return f"Quality of {METRIC_NAME}{by_metric(raw)}{FOR_SEGMENT}"


def mean_figures(scales: Iterable[Scale], value: str, window: str) -> Mapping[str, AlertNumber]:
    """Return the figures in the text of ``describe_mean``, and ``worst``: the mean if all units without a score failed.

    ``worst`` is empty if few units lack a score.

    Args:
        value: expression of the alert's mean, with ``promql.OWN``.
        window: window for the share of units without a score.
    """
    at_worst = f"{value} * {_scored_share(window)}"
    figures = {"worst": AlertNumber(at_worst, " At worst %.2f, if all units without a score failed.")}
    for scale in (scale for scale in scales if not _is_quality(scale)):
        low, high = _ends(scale)  # the inverse of ``Scale.quality``: quality → raw value
        begin, sign = (low, "+") if scale.direction == "higher" else (high, "-")
        figures[_raw_name(scale)] = AlertNumber(f"{begin:g} {sign} {high - low:g} * {value}", "%.2f")
    return figures


def _is_quality(scale: Scale) -> bool:
    return (scale.range, scale.direction) == (UNIT_INTERVAL.range, UNIT_INTERVAL.direction)


def _raw_name(scale: Scale) -> str:
    """Return the name of the figure with the raw mean; each scale has another name."""
    return re.sub(r"\W", "_", f"raw_{scale.direction}_{_ends(scale)}")


def _ends(scale: Scale) -> tuple[float, float]:
    low, high = scale.range or (0.0, 1.0)
    return (0.0 if scale.negatives_are_zero else low), high
