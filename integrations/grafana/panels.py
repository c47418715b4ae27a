"""Building blocks of the dashboards: queries, panels and variables with spanscore's defaults, over Grafana's own builders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    table,
    tempo,
    timeseries,
)
from grafana_foundation_sdk.models.common import (
    BarGaugeDisplayMode,
    BigValueColorMode,
    BigValueGraphMode,
    DataSourceRef,
    GraphDrawStyle,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    DashboardLinkType,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.tempo import SearchTableType

METRICS = DataSourceRef(type_val="prometheus", uid="${datasource}")
TRACES = DataSourceRef(type_val="tempo", uid="${traces}")
SHARE, COUNT, SECONDS, BYTES, USD = "percentunit", "short", "s", "bytes", "currencyUSD"
GREEN, ORANGE, RED, GREY = "green", "orange", "red", "text"

Panel = Any
"""A builder of the SDK; its panel classes have no common type with ``title`` and ``span``."""
DASHED, IN_FRONT = "/^(low|high) /", "/^spent in /"
"""Legends of lines that bound another line, and of a sum in front of the stack of its parts."""
_DASHED = [
    DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [4, 6]}),
    DynamicConfigValue("custom.lineWidth", 1),
    DynamicConfigValue("color", {"mode": "fixed", "fixedColor": GREY}),
]
_IN_FRONT = [
    DynamicConfigValue("custom.drawStyle", GraphDrawStyle.LINE),
    DynamicConfigValue("custom.stacking", {"mode": StackingMode.NONE, "group": "A"}),
    DynamicConfigValue("custom.lineWidth", 2),
    DynamicConfigValue("custom.fillOpacity", 0),
]


# --- queries ---------------------------------------------------------------------------------------------------------


def over_time(expression: str, legend: str = "", *, exemplar: bool = False) -> prometheus.Dataquery:
    """Return a query evaluated along the time axis."""
    return prometheus.Dataquery().expr(expression).legend_format(legend).range().exemplar(exemplar).datasource(METRICS)


def at_end(expression: str, legend: str = "") -> prometheus.Dataquery:
    """Return a query evaluated once, at the end of the selected range."""
    return prometheus.Dataquery().expr(expression).legend_format(legend).instant().datasource(METRICS)


def as_rows(expression: str) -> prometheus.Dataquery:
    """Return a query evaluated once, for a table."""
    return at_end(expression).format(PromQueryFormat.TABLE)


def as_buckets(expression: str) -> prometheus.Dataquery:
    """Return a histogram's query for a heatmap, with exemplars."""
    return over_time(expression, "{{le}}", exemplar=True).format(PromQueryFormat.HEATMAP)


def in_traces(traceql: str) -> tempo.Dataquery:
    """Return a search for spans in Tempo."""
    search = tempo.Dataquery().query(traceql).query_type("traceql").table_type(SearchTableType.SPANS)
    return search.limit(50).datasource(TRACES)


# --- panels ----------------------------------------------------------------------------------------------------------


def lines(title: str, about: str, *queries: prometheus.Dataquery, unit: str = COUNT, width: int = 12) -> Panel:
    """Return lines over time; lines with a legend that begins with *low* or *high* are dashed and grey."""
    panel = _with(timeseries.Panel(), title, about, queries, width=width).unit(unit).min(0)
    if unit == SHARE:
        panel.max(1)
    return panel.legend(_legend()).tooltip(_all_series()).span_nulls(False).override_by_regexp(DASHED, _DASHED)


def stacked(title: str, about: str, *queries: prometheus.Dataquery, unit: str = COUNT, width: int = 12) -> Panel:
    """Return stacked bars over time; a series with a legend that begins with *spent* is a line in front of them."""
    panel = _with(timeseries.Panel(), title, about, queries, width=width).unit(unit).min(0).legend(_legend())
    panel.draw_style(GraphDrawStyle.BARS).fill_opacity(70).line_width(0).stacking(_stacking(StackingMode.NORMAL))
    return panel.tooltip(_all_series()).override_by_regexp(IN_FRONT, _IN_FRONT)


def shares(title: str, about: str, *queries: prometheus.Dataquery, width: int = 12) -> Panel:
    """Return stacked areas of shares of one whole, from 0 % to at least 10 %."""
    panel = _with(timeseries.Panel(), title, about, queries, width=width).unit(SHARE).min(0).axis_soft_max(0.1)
    panel.fill_opacity(50).line_width(1).stacking(_stacking(StackingMode.NORMAL)).no_value("0 %")
    return panel.legend(_legend()).tooltip(_all_series())


def bars(title: str, about: str, *queries: prometheus.Dataquery, unit: str = COUNT, width: int = 12) -> Panel:
    """Return one horizontal bar per series."""
    panel = _with(bargauge.Panel(), title, about, queries, width=width).unit(unit).min(0)
    return panel.orientation(VizOrientation.HORIZONTAL).display_mode(BarGaugeDisplayMode.BASIC).no_value("0")


def number(
    title: str,
    about: str,
    query: prometheus.Dataquery,
    *,
    unit: str = COUNT,
    steps: Sequence[Threshold] = (),
    width: int = 4,
    height: int = 4,
    empty: str = "no data",
    trend: bool = False,
) -> Panel:
    """Return one number.

    Args:
        steps: thresholds of its colour; empty = grey.
        empty: text that is shown if there is no number.
        trend: whether its course is drawn behind the number; the query is one over time.
    """
    panel = _with(stat.Panel(), title, about, [query], width=width, height=height).unit(unit).no_value(empty)
    panel.graph_mode(BigValueGraphMode.AREA if trend else BigValueGraphMode.NONE)
    chosen = list(steps) or [Threshold(color=GREY, value=None)]
    colours = dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(chosen)
    return panel.thresholds(colours).color_mode(BigValueColorMode.VALUE)


def rows(title: str, about: str, columns: Sequence[tuple[str, str]], *, width: int = 24, unit: str = SHARE) -> Panel:
    """Return a table of one row per label set and one column per (name, expression)."""
    queries = [as_rows(expression) for _, expression in columns]
    panel = _with(table.Panel(), title, about, queries, width=width).unit(unit).decimals(3)
    names = {f"Value #{_ref(place)}": name for place, (name, _) in enumerate(columns)}
    organize = {"excludeByName": {"Time": True}, "renameByName": names, "indexByName": {}}
    return panel.with_transformation(DataTransformerConfig(id_val="merge", options={})).with_transformation(
        DataTransformerConfig(id_val="organize", options=organize)
    )


def spread(title: str, about: str, query: prometheus.Dataquery, *, width: int = 24) -> Panel:
    """Return a heatmap of a histogram's buckets over time."""
    panel = _with(heatmap.Panel(), title, about, [query], width=width, height=10)
    colour = heatmap.HeatmapColorOptions().scheme("Blues").steps(32)
    return panel.calculate(False).color(colour).y_axis(heatmap.YAxisConfig().unit(COUNT).decimals(1)).cell_gap(1)


def found(title: str, about: str, query: tempo.Dataquery) -> Panel:
    """Return a table of spans; each opens its trace."""
    return _with(table.Panel(), title, about, [query], width=24, height=10).datasource(TRACES)


def steps(*pairs: tuple[float | None, str]) -> list[Threshold]:
    """Return thresholds: (from this value on, colour); the first has None."""
    return [Threshold(color=colour, value=value) for value, colour in pairs]


def _with(panel: Panel, title: str, about: str, queries: Sequence[Any], *, width: int, height: int = 8) -> Panel:
    panel.title(title).description(about).datasource(METRICS).span(width).height(height)
    for place, query in enumerate(queries):
        panel.with_target(query.ref_id(_ref(place)))
    return panel


def _ref(place: int) -> str:
    return chr(ord("A") + place)


def _stacking(mode: StackingMode) -> common.StackingConfig:
    return common.StackingConfig().mode(mode)


def _all_series() -> common.VizTooltipOptions:
    return common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI)


def _legend() -> common.VizLegendOptions:
    shown = common.VizLegendOptions().show_legend(True).display_mode(LegendDisplayMode.LIST)
    return shown.placement(LegendPlacement.BOTTOM)


# --- dashboards ------------------------------------------------------------------------------------------------------


def source(name: str, plugin: str, label: str) -> dashboard.DatasourceVariable:
    """Return the choice of a data source."""
    return dashboard.DatasourceVariable(name).type(plugin).label(label)


def choice(name: str, label: str, query: str, *, several: bool = True) -> dashboard.QueryVariable:
    """Return a choice among the values of a label; of several, all by default."""
    variable = dashboard.QueryVariable(name).label(label).query(query).datasource(METRICS)
    variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    if not several:
        return variable
    everything = VariableOption(selected=True, text=["All"], value=["$__all"])
    return variable.multi(True).include_all(True).all_value(".*").current(everything)


def segment(name: str, label: str, query: str) -> dashboard.QueryVariable:
    """Return the choice of one value of a label that not every series has; *All* selects the series without the label."""
    everything = VariableOption(selected=True, text="All", value="$__all")
    return choice(name, label, query, several=False).include_all(True).all_value("^$").current(everything)


def window() -> dashboard.CustomVariable:
    """Return the choice of the window that moving means look back over."""
    hour = VariableOption(selected=True, text="1h", value="1h")
    return dashboard.CustomVariable("window").label("Window").values("5m,15m,1h,6h,1d").current(hour)


def address(name: str, label: str) -> dashboard.TextBoxVariable:
    """Return a field for an address, empty by default."""
    return dashboard.TextBoxVariable(name).label(label).default_value("")


def outside(title: str, url: str, about: str) -> dashboard.DashboardLink:
    """Return a link to another page; variables in its address are filled in."""
    to = dashboard.DashboardLink(title).type(DashboardLinkType.LINK).url(url).tooltip(about)
    return to.target_blank(True).icon("external link")


def link(title: str, uid: str) -> dashboard.DashboardLink:
    """Return a link to another dashboard that takes the choices and the time along."""
    to = dashboard.DashboardLink(title).type(DashboardLinkType.LINK).url(f"/d/{uid}")
    return to.include_vars(True).keep_time(True).icon("dashboard")


def board(
    title: str, uid: str, about: str, variables: Sequence[Any], links: Sequence[Any], parts: dict[str, list[Panel]]
) -> Dashboard:
    """Return a dashboard of rows (title → panels); an empty title = panels without a row. Panels are numbered in order."""
    made = dashboard.Dashboard(title).uid(uid).description(about).tags(["spanscore"]).time("now-24h", "now")
    made.refresh("1m").timezone("browser").tooltip(DashboardCursorSync.CROSSHAIR).readonly()
    for variable in variables:
        made.with_variable(variable)
    for one in links:
        made.link(one)
    for heading, panels in parts.items():
        if heading:
            made.with_row(dashboard.Row(heading))
        for panel in panels:
            made.with_panel(panel)
    built = made.build()
    for place, panel in enumerate(built.panels or [], start=1):
        panel.id_val = place
    return built
