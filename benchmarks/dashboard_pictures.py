"""Draws Prometheus' answers as the panels of a dashboard in SVG, one picture per row of panels.

Axes, ticks, times and bars come from the chart code of the report page. Differences from Grafana: colours, fonts, and no legend
for a series that is always 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from spanscore.report.charts import _Axis, _format_time, _grid, _rect, _round_times, _text, _ticks, _time_format

DASHBOARDS = Path(__file__).parents[1] / "integrations" / "grafana" / "dashboards"
DRAWN = ("spanscore-overview", "spanscore-operators")
NO_DATA_HERE = {"Handed over to another process": "no process of this run hands over"}
"""Panels that may be empty → reason."""
WIDTH, GAP, PLOT = 760, 12, 132
"""Pixels: width of a picture, gap between two cards, height of a plot."""
TOP, BELOW, LINE = 42, 34, 16
"""Pixels: space above a plot, space between it and its legend, height of a line of the legend."""
LEFT, RIGHT, CHARACTER = 58, 16, 6.1
ROOM = 1.04
"""Height of a plot relative to its highest value."""
COLOURS = ("#2460c9", "#d9822b", "#1b8a5a", "#8e44ad", "#c0392b", "#0e8fa3", "#7f6a00", "#d6337c", "#5a6673", "#6b8e23")
NAMED = {"scored": "#1b8a5a", "judge_error": "#c0392b", "judge_unavailable": "#d9822b"}
STYLE = """
.plot,.card{font:11px system-ui,sans-serif}.bg{fill:#fff;stroke:#d8dee6}.head{fill:#1b2026;font-weight:600;font-size:12.5px}
text{fill:#5b6673}.tick,.key{fill:#1b2026}.grid{stroke:#e3e7ec}
.big{font-size:46px;font-weight:650;fill:#1b6e42}.big.bad{fill:#b3261e}
.line{fill:none;stroke-width:1.8;vector-effect:non-scaling-stroke}.dash{stroke-dasharray:4 4;stroke-width:1.2}
.area{fill-opacity:.75}@media(prefers-color-scheme:dark){.bg{fill:#181d23;stroke:#2e3741}.head,.tick,.key{fill:#e5e9ee}text{fill:#9aa7b5}.grid{stroke:#2a323b}
.big{fill:#7fd3a2}.big.bad{fill:#ff8a80}}
"""

Asked = Callable[[str], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Series:
    """One line, bar or row of a panel.

    Attributes:
        points: (Unix seconds, value), without values that are not numbers.
    """

    legend: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel with its answers.

    Attributes:
        kind: Grafana's name of the kind: timeseries, stat, bargauge or table.
        is_stacked: whether its series are stacked.
    """

    dashboard: str
    row: str
    title: str
    kind: str
    unit: str
    columns: int
    is_stacked: bool
    series: Sequence[Series]


@dataclass(frozen=True, slots=True)
class Answers:
    """Prometheus' answers to every query of the two dashboards."""

    begin_s: float
    end_s: float
    panels: Sequence[Panel] = field(default_factory=tuple)

    @classmethod
    def asked(cls, over_time: Asked, at_end: Asked, *, begin_s: float, end_s: float) -> Answers:
        """Run every query; the query of a repeated panel is run once for each metric."""
        counted = at_end("count by (gen_ai_evaluation_name) (spanscore_eligible_total)")
        metrics = sorted(one["metric"]["gen_ai_evaluation_name"] for one in counted)
        panels: list[Panel] = []
        for uid in DRAWN:
            row = ""
            for panel in json.loads((DASHBOARDS / f"{uid}.json").read_text(encoding="utf-8"))["panels"]:
                if panel["type"] == "row":
                    row = panel["title"]
                    continue
                repeated = metrics if panel.get("repeat") else [""]
                panels += [_answered(uid, row, panel, metric, over_time, at_end) for metric in repeated]
        return cls(begin_s, end_s, panels)

    @classmethod
    def read(cls, file: Path) -> Answers:
        """Return the answers in a file."""
        tree = json.loads(file.read_text(encoding="utf-8"))
        panels = [
            Panel(**{**panel, "series": [Series(**series) for series in panel["evaluator_version"]]})
            for panel in tree["panels"]
        ]
        return cls(tree["begin_s"], tree["end_s"], panels)

    def write(self, file: Path) -> None:
        """Write the answers as JSON."""
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")

    def empty(self) -> list[str]:
        """Return the titles of panels that have no data without a known reason."""
        return [panel.title for panel in self.panels if not panel.series and panel.title not in NO_DATA_HERE]


def _answered(uid: str, row: str, panel: Mapping[str, Any], metric: str, over_time: Asked, at_end: Asked) -> Panel:
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    series: list[Series] = []
    for target in panel["targets"]:
        expression = target["expr"].replace("$metric", metric) if metric else target["expr"]
        answer = over_time(expression) if target.get("range") else at_end(expression)
        series += [Series(_legend(target, one["metric"]), _points(one)) for one in answer]
    return Panel(
        uid,
        row,
        panel["title"].replace("$metric", metric),
        panel["type"],
        panel["fieldConfig"]["defaults"].get("unit", ""),
        12 if metric else panel["gridPos"]["w"],
        "stacking" in custom,
        [one for one in series if one.points],
    )


def _legend(target: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    text = target.get("legendFormat") or " ".join(value for name, value in labels.items() if name != "__name__")
    for name, value in labels.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    while "{{" in text:  # a label that the series does not have
        text = text[: text.index("{{")] + text[text.index("}}") + 2 :]
    return " ".join(text.split())


def _points(series: Mapping[str, Any]) -> list[tuple[float, float]]:
    values = series["values"] if "values" in series else [series["value"]]
    return [(float(at), float(value)) for at, value in values if math.isfinite(float(value))]


# --- pictures ----------------------------------------------------------------------------------------------------


def pictures(answers: Answers) -> dict[str, str]:
    """Return file name → SVG: the overview, and each row of the operators' dashboard."""
    return {
        picture_name(uid, row): _picture(
            row, [panel for panel in answers.panels if (panel.dashboard, panel.row) == (uid, row)], answers
        )
        for uid, row in dict.fromkeys((panel.dashboard, panel.row) for panel in answers.panels)
    }


def picture_name(uid: str, row: str) -> str:
    """Return the file name of a row's picture."""
    words = [uid.removeprefix("spanscore-"), *row.lower().split()]
    return f"{'-'.join(words)}.svg"


class _Card(NamedTuple):
    width: int
    height: int
    svg: str


def _picture(row: str, panels: Sequence[Panel], answers: Answers) -> str:
    placed: list[str] = []
    top = 0
    for cards in _lines_of([_card(panel, answers) for panel in panels]):
        left, height = 0, max(card.height for card in cards)
        for card in cards:
            ground = f'<rect class="bg" x=".5" y=".5" width="{card.width - 1}" height="{height - 1}" rx="8"/>'
            placed.append(
                f'<svg class="card" x="{left}" y="{top}" width="{card.width}" height="{height}">{ground}{card.svg}</svg>'
            )
            left += card.width + GAP
        top += height + GAP
    size = f'viewBox="0 0 {WIDTH} {top - GAP}"'
    title = f"<title>{escape(row or 'Overview')}: {escape(', '.join(panel.title for panel in panels))}</title>"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>',
            title,
            f"<style>{STYLE}</style>",
            *placed,
            "</svg>",
            "",
        ]
    )


def _lines_of(cards: Sequence[_Card]) -> Iterator[list[_Card]]:
    line: list[_Card] = []
    for card in cards:
        if line and sum(one.width + GAP for one in line) + card.width > WIDTH:
            yield line
            line = []
        line.append(card)
    yield line


def _card(panel: Panel, answers: Answers) -> _Card:
    width = WIDTH if panel.columns == 24 else (WIDTH - GAP) // 2
    head = _text("14", 22, panel.title, "head", "start")
    draw = {"stat": _number, "bargauge": _bars, "table": _table}.get(panel.kind, _plot)
    if not panel.series:
        reason = NO_DATA_HERE.get(panel.title, "no data")
        return _Card(width, TOP + 40, head + _text("14", TOP + 12, reason, "", "start"))
    body, height = draw(panel, answers, width)
    return _Card(width, height, head + body)


def _plot(panel: Panel, answers: Answers, width: int) -> tuple[str, int]:
    factor, unit = _scale(panel)
    shown = [one for one in panel.series if any(value for _, value in one.points)] or panel.series[:1]
    lines = [one for one in shown if not panel.is_stacked or one.legend.startswith("spent in")]
    areas = _stacked([one for one in shown if one not in lines], factor)
    most = max(
        chain(
            (factor * value for one in lines for _, value in one.points), (top for area in areas for _, _, top in area)
        )
    )
    most = {"quality": 1.0}.get(unit, ROOM * max(most, 10.0 if unit == "%" else 0.0)) or 1.0
    x, y = _Axis(answers.begin_s, answers.end_s, 0, 1_000), _Axis(0, most, PLOT, 0)
    colours = _colours(shown)
    parts = [*_grid(y, _ticks(0, most, 4), unit), *_times(answers)]
    drawn = [
        f'<path class="area" fill="{colours[one.legend]}" d="{_area(area, x, y)}"/>'
        for one, area in zip((one for one in shown if one not in lines), areas, strict=True)
    ]
    for one in lines:
        dash = " dash" if _is_bound(one) else ""
        drawn.append(f'<path class="line{dash}" stroke="{colours[one.legend]}" d="{_path(one, factor, x, y)}"/>')
    frame = f'viewBox="0 0 1000 {PLOT}" preserveAspectRatio="none" width="100%" height="{PLOT}"'
    place = f'x="{LEFT}" y="{TOP}" width="{width - LEFT - RIGHT}" height="{PLOT}" overflow="visible"'
    plot = f'<svg class="plot" {place}>{"".join(parts)}<svg {frame}>{"".join(drawn)}</svg></svg>'
    legend, height = _legends(shown, colours, width, TOP + PLOT + BELOW)
    return plot + legend, height


def _scale(panel: Panel) -> tuple[float, str]:
    """Return the factor for values, and the unit of the axis."""
    if panel.title.startswith("Mean quality"):
        return 1, "quality"
    most = max(value for one in panel.series for _, value in one.points)
    if panel.unit == "bytes":
        return (1e-6, "MB") if most > 2e6 else (1e-3, "kB") if most > 2e3 else (1, "bytes")
    if panel.unit == "s" and most < 1:
        return 1_000.0, "ms"
    return {"percentunit": (100.0, "%"), "s": (1.0, "s"), "currencyUSD": (1.0, "USD")}.get(panel.unit, (1.0, ""))


def _stacked(series: Sequence[Series], factor: float) -> list[list[tuple[float, float, float]]]:
    """Return (time, bottom, top) for each series."""
    below: dict[float, float] = {}
    areas = []
    for one in series:
        area = []
        for at, value in one.points:
            bottom = below.get(at, 0.0)
            below[at] = bottom + factor * value
            area.append((at, bottom, below[at]))
        areas.append(area)
    return areas


def _area(area: Sequence[tuple[float, float, float]], x: _Axis, y: _Axis) -> str:
    """Return steps along the tops, and back along the bottoms."""
    step = min((b[0] - a[0] for a, b in pairwise(area)), default=1.0)
    runs: list[list[tuple[float, float, float]]] = [[]]
    for point in area:
        if runs[-1] and point[0] - runs[-1][-1][0] > 1.5 * step:
            runs.append([])
        runs[-1].append(point)
    return "".join(_steps(run, step, x, y) for run in runs)


def _steps(run: Sequence[tuple[float, float, float]], step: float, x: _Axis, y: _Axis) -> str:
    there = "".join(f"V{y(top):.1f}H{x(at + step):.0f}" for at, _, top in run)
    back = "".join(f"V{y(bottom):.1f}H{x(at):.0f}" for at, bottom, _ in reversed(run))
    return f"M{x(run[0][0]):.0f} {y(run[0][1]):.1f}{there}{back}Z"


def _path(one: Series, factor: float, x: _Axis, y: _Axis) -> str:
    step = min((b[0] - a[0] for a, b in pairwise(one.points)), default=1.0)
    parts, before = [], -math.inf
    for at, value in one.points:
        parts.append(f"{'L' if at - before < 1.5 * step else 'M'}{x(at):.0f} {y(factor * value):.1f}")
        before = at
    return "".join(parts)


def _times(answers: Answers) -> Iterator[str]:
    begin, end = int(answers.begin_s * 1e9), int(answers.end_s * 1e9)
    x, shape = _Axis(begin, end, 0, 100), _time_format(end - begin, 60_000_000_000)
    for place in _round_times(begin, end, 4):
        yield _text(f"{x(place)}%", PLOT + 17, _format_time(place, shape), "tick", "middle")


def _is_bound(one: Series) -> bool:
    return one.legend.startswith(("low ", "high "))


def _colours(shown: Sequence[Series]) -> dict[str, str]:
    """Return a colour for each legend; bounds are grey, as on the dashboards."""
    taken = {NAMED.get(one.legend) for one in shown}
    free = iter([colour for colour in COLOURS if colour not in taken] * 4)
    return {one.legend: "#8c959f" if _is_bound(one) else NAMED.get(one.legend) or next(free) for one in shown}


def _legends(shown: Sequence[Series], colours: Mapping[str, str], width: int, top: int) -> tuple[str, int]:
    """Return the legend and its lower edge; the two bounds of a mean have one entry."""
    named = dict.fromkeys(_legend_name(one) for one in shown if one.legend)
    parts: list[str] = []
    left, height = 14.0, top
    for name, legend in {
        name: next(one.legend for one in shown if _legend_name(one) == name) for name in named
    }.items():
        wide = 16 + CHARACTER * len(name) + 12
        if left > 14 and left + wide > width - 8:
            left, height = 14.0, height + LINE
        mark = f'<rect x="{left:.0f}" y="{height - 8}" width="9" height="9" rx="2" fill="{colours[legend]}"/>'
        parts.append(mark + _text(f"{left + 14:.0f}", height, name, "key", "start"))
        left += wide
    return "".join(parts), height + 12


def _legend_name(one: Series) -> str:
    return "95 % interval" if one.legend.startswith(("low ", "high ")) else one.legend


def _number(panel: Panel, answers: Answers, width: int) -> tuple[str, int]:
    last = panel.series[0].points[-1][1]
    kind = "big" if last == 0 else "big bad"
    body, height = _plot(panel, answers, width)
    return body + _text(f"{(width + LEFT) / 2:.0f}", TOP + PLOT // 2, f"{last:g}", kind, "middle"), height


def _bars(panel: Panel, answers: Answers, width: int) -> tuple[str, int]:
    most = max(one.points[-1][1] for one in panel.series)
    parts = []
    for place, one in enumerate(panel.series):
        value, y = one.points[-1][1], 30 * place
        parts.append(_text("0", y + 14, one.legend, "key", "end", ' dx="-8"'))
        parts.append(_rect(0, y, 84 * value / most, 20, "share"))
        parts.append(_text(f"{84 * value / most:.1f}%", y + 14, f"{value:,.0f}", "key", "start", ' dx="6"'))
    size = f'x="{LEFT + 14}" y="{TOP + 8}" width="{width - LEFT - RIGHT - 24}" height="{PLOT}"'
    plot = f'<svg class="plot" {size} fill="{COLOURS[0]}" overflow="visible">{"".join(parts)}</svg>'
    return plot, TOP + 30 * len(panel.series) + 24


def _table(panel: Panel, answers: Answers, width: int) -> tuple[str, int]:
    rows: dict[str, list[str]] = {}
    for one in panel.series:
        rows.setdefault(one.legend, []).append(f"{one.points[-1][1]:,.3g}")
    parts = []
    for place, (name, cells) in enumerate([("name, label, service", ["scores", "mean"]), *rows.items()]):
        y, kind = TOP + 14 + 22 * place, "key" if place else ""
        parts.append(_text("14", y, name, kind, "start"))
        parts += [_text(f"{width - 100 + 80 * at}", y, cell, kind, "end") for at, cell in enumerate(cells)]
    return "".join(parts), TOP + 22 * (len(rows) + 1) + 16
