"""Counters that grew, as a Prometheus that scraped them has them: no waiting, exact increases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from spanscore.monitoring import promql as names
from spanscore.outputs.instruments import Telemetry

END = 1_760_000_400  # seconds; any whole minute
MINUTES = 60

Labels: TypeAlias = Mapping[str, str]
Sample: TypeAlias = tuple[float, float]
"""Seconds since the epoch, and the counter's value."""


def write(prometheus: ModuleType, folder: Path, grown: Mapping[str, Iterable[tuple[Labels, float]]]) -> None:
    """Put into ``folder`` the data of a server in which each series grew by this much in the hour before ``END``."""
    totals = {name: [(labels, _steady(total)) for labels, total in series] for name, series in grown.items()}
    write_samples(prometheus, folder, totals)


def write_samples(
    prometheus: ModuleType, folder: Path, samples: Mapping[str, Iterable[tuple[Labels, Iterable[Sample]]]]
) -> None:
    """Put into ``folder`` the data of a server that scraped these samples of counters."""
    text = folder / "samples.txt"
    with text.open("w", encoding="utf-8") as file:
        file.writelines(_lines(samples))
    # Blocks of two hours, its default, take a pass over the file each.
    command = ("tsdb", "create-blocks-from", "--max-block-duration=1500h", "openmetrics")
    prometheus.promtool(*command, text, folder / "data")


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


def _steady(total: float) -> list[Sample]:
    return [(END - 60 * (MINUTES - minute), 1_000 + total * minute / MINUTES) for minute in range(MINUTES + 1)]


def _lines(samples: Mapping[str, Iterable[tuple[Labels, Iterable[Sample]]]]) -> Iterator[str]:
    for name, series in samples.items():
        yield f"# TYPE {name.removesuffix('_total')} counter\n"
        for labels, points in series:
            shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
            yield from (f"{name}{{{shown}}} {value!r} {time}\n" for time, value in points)
    yield "# EOF\n"
