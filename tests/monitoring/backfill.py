"""Counters that grow steadily for an hour, as a Prometheus that scraped them has them: no waiting, exact increases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from spanscore.monitoring import names
from spanscore.otel.instruments import Telemetry

END = 1_760_000_400  # seconds; any whole minute
MINUTES = 60

Labels: TypeAlias = Mapping[str, str]


def write(prometheus: ModuleType, folder: Path, grown: Mapping[str, Iterable[tuple[Labels, float]]]) -> None:
    """Put into ``folder`` what a server has in which each series grew by this much in the hour before ``END``."""
    text = folder / "samples.txt"
    text.write_text("".join(_lines(grown)), encoding="utf-8")
    prometheus.promtool("tsdb", "create-blocks-from", "openmetrics", text, folder / "data")


def read(replicas: Mapping[str, Telemetry], instruments: Iterable[str]) -> dict[str, list[tuple[Labels, float]]]:
    """Return the series of each replica, as a scrape would name and label them."""
    return {
        names.series(instrument): [
            ({**{names.label(key): value for key, value in labels}, "instance": replica, "job": "bot"}, total)
            for replica, telemetry in replicas.items()
            for labels, total in telemetry.sums(instrument).items()
        ]
        for instrument in instruments
    }


def _lines(grown: Mapping[str, Iterable[tuple[Labels, float]]]) -> Iterator[str]:
    for name, series in grown.items():
        yield f"# TYPE {name.removesuffix('_total')} counter\n"
        for labels, total in series:
            shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
            for minute in range(MINUTES + 1):
                yield f"{name}{{{shown}}} {1_000 + total * minute / MINUTES!r} {END - 60 * (MINUTES - minute)}\n"
    yield "# EOF\n"
