"""Alert: its query, duration, labels and wording as plain values, before any tool's format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spanscore.config.monitoring import Monitoring
from spanscore.core.score import UNIT_INTERVAL, Scale
from spanscore.monitoring import promql, recorded
from spanscore.monitoring.estimates import WORTH_TELLING
from spanscore.monitoring.promql import label
from spanscore.monitoring.recorded import WINDOW

PATIENCE = 1
"""Intervals for which a condition must hold, so at two evaluations: near a series' start ``increase()`` errs at one."""
ALL = "all"
"""The metric label of an alert that is about none in particular."""


@dataclass(frozen=True, slots=True)
class AlertScope:
    """All units, or those of one segment."""

    key: str = ""
    value: str = ""

    @property
    def name(self) -> str:
        """``user_tier=gold``; empty for all units."""
        return f"{self.key}={self.value}" if self.key else ""

    @property
    def labels(self) -> dict[str, str]:
        """The label of its counters; none for all units."""
        return {label(self.key): self.value} if self.key else {}


@dataclass(frozen=True, slots=True)
class AlertNumber:
    """A number in the text of an alert.

    Attributes:
        expression: a query of one value; ``promql.OWN`` and its like among the matchers = of what the alert is about.
        form: of ``printf``, or a fixed text without ``%``. If there is no value, the place stays empty.
        pipe: the template's functions that write the value in place of ``printf``; empty = by ``form``.
    """

    expression: str
    form: str = "%.3g"
    pipe: str = ""

    def written(self, value: str) -> str:
        """Return the template that writes ``value``, a template's expression."""
        if not self.pipe and "%" not in self.form:
            return self.form
        return f"{{{{ {value} | {self.pipe or f'printf {chr(34)}{self.form}{chr(34)}'} }}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert: what must be wrong for ``PATIENCE`` intervals.

    Attributes:
        expression: returns the value where something is wrong, and nothing elsewhere.
        labels: severity, metric; window, and reason where there are several. Templates, as ``summary``.
        summary: for people, in one line; a template, so what comes from outside is ``literal`` in it.
        text: for people, a template as well; ``{value}`` (``{count}`` where it is whole, ``{lasting}`` where it is seconds),
            ``{service}`` and ``{<figure>}`` are what each tool puts in.
        figures: name → what the text says besides the value.
        runbook: address of what to do, a template; empty = none.
        keep_s: seconds for which it stays on when its condition holds no more.
    """

    name: str
    expression: str
    labels: Mapping[str, str]
    summary: str
    text: str
    figures: Mapping[str, AlertNumber] = field(default_factory=dict)
    runbook: str = ""
    keep_s: float = 0.0


def literal(text: str) -> str:
    """Return a template that says just this: no brace in it opens an action, no dollar is a variable of Grafana's."""
    return re.sub(r"[{$]", lambda found: f'{{{{ "\\x{ord(found[0]):02x}" }}}}', text)


def filled(template: str, parts: Mapping[str, str]) -> str:
    """Return a template with the parts in the place of their names in braces."""
    return _PLACE.sub(lambda found: parts.get(found[1], found[0]), template)


_PLACE = re.compile(r"\{(\w+)\}")


def streams_of(shared: Monitoring) -> list[AlertScope]:
    """Return all units, then each listed segment."""
    return [AlertScope(), *(AlertScope(key, value) for key, values in shared.dimensions.items() for value in values)]


def labels_of(severity: str, metric: str, window: str = "") -> dict[str, str]:
    """Return an alert's labels; without a window, it is about several."""
    return {"severity": severity, "metric": metric, **({WINDOW: window} if window else {})}


OF_METRIC = f"{{{{ $labels.{promql.METRIC} }}}}"
"""The template of the name of the metric that an alert is about."""


def of_metric(texts: Mapping[str, str]) -> str:
    """Return the template of a text that each metric has of its own: metric → template."""
    return by_label(promql.METRIC, texts)


def by_label(name: str, texts: Mapping[str, str]) -> str:
    """Return the template of a text that depends on a label: its value → template."""
    by_text: dict[str, list[str]] = {}
    for value, text in texts.items():
        by_text.setdefault(text, []).append(value)
    if len(by_text) <= 1:
        return next(iter(by_text), "")
    cases = (
        f"if eq $labels.{name} {' '.join(map(_quoted, values))} }}}}{text}" for text, values in by_text.items() if text
    )
    return "{{ " + "{{ else ".join(cases) + "{{ end }}"


def _quoted(text: str) -> str:
    """Return a string of a template, in which no sign begins anything."""
    return '"' + "".join(f"\\u{ord(c):04x}" if c in _SIGNS else c for c in text) + '"'


_SIGNS = frozenset('{}$"\\\n\r')


def listed(metrics: Iterable[str]) -> str:
    """Return the matcher of metrics."""
    return f'{promql.METRIC}=~"{promql.any_of(metrics)}"'


# A mean is written as quality, as baselines are; if the raw mean is another number, it stands beside it.

FOR_SEGMENT = f"{{{{ with $labels.{recorded.SEGMENT} }}}} for {{{{ . }}}}{{{{ end }}}}"


def mean_of(scales: Mapping[str, Scale]) -> str:
    """Return the subject: ``Quality of hedging (lower is better; raw mean {raw}) for tier=gold``.

    Args:
        scales: metric → its scale.
    """
    raw = dict.fromkeys(scales, "")
    for metric, scale in scales.items():
        if not _is_quality(scale):
            low, high = _ends(scale)
            within = "" if (low, high) == UNIT_INTERVAL.range else f", {low:g} to {high:g}"
            raw[metric] = f" ({scale.direction} is better{within}; raw mean {{{_raw_name(scale)}}})"
    return f"Quality of {OF_METRIC}{of_metric(raw)}{FOR_SEGMENT}"


def figures_of(scales: Iterable[Scale], value: str, window: str) -> Mapping[str, AlertNumber]:
    """Return the figures of ``mean_of``, and ``{worst}``, which is empty if few units lack a score.

    Args:
        scales: scales of the metrics.
        value: the expression of the alert's own mean, with ``promql.OWN``.
        window: over which the share of units without a score is counted.
    """
    share = f'{recorded.MISSING_SHARE}{{{recorded.WINDOW}="{window}",{promql.OWN_SERVICE}}} >= {WORTH_TELLING:g}'
    rest = f"on ({', '.join(promql.GROUP)}) group_left () (1 - ({share}))"
    figures = {"worst": AlertNumber(f"{value} * {rest}", " At worst %.2f, if all units without a score failed.")}
    for scale in (scale for scale in scales if not _is_quality(scale)):
        low, high = _ends(scale)  # the value that has a quality: the inverse of ``Scale.quality``
        begin, sign = (low, "+") if scale.direction == "higher" else (high, "-")
        figures[_raw_name(scale)] = AlertNumber(f"{begin:g} {sign} {high - low:g} * {value}", "%.2f")
    return figures


def _is_quality(scale: Scale) -> bool:
    return (scale.range, scale.direction) == (UNIT_INTERVAL.range, UNIT_INTERVAL.direction)


def _raw_name(scale: Scale) -> str:
    """Return the name of the figure of a raw mean, one per scale."""
    return re.sub(r"\W", "_", f"raw_{scale.direction}_{_ends(scale)}")


def _ends(scale: Scale) -> tuple[float, float]:
    low, high = scale.range or (0.0, 1.0)
    return (0.0 if scale.negatives_are_zero else low), high
