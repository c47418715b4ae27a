"""What an operator says of the traffic → ExpectedTraffic: requests of each hour of a day or a week."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

from spanscore.errors import ConfigurationError

__all__ = ["FORMS", "ExpectedTraffic", "requests_per_day_in", "traffic_in"]

FORMS = "1e6, 1_000_000, 500k, 1.5M (a day), 12/s, 700/min, 40k/h, 1e6/d"
"""How a rate of requests may be written."""
_A_DAY = {"s": 86_400.0, "min": 1_440.0, "h": 24.0, "d": 1.0}
_TIMES = {"": 1.0, "k": 1e3, "M": 1e6}
_RATE = re.compile(
    r"(?P<number>\d{1,3}(?:,\d{3})+|\d[\d_]*(?:\.\d+)?(?:[eE]\+?\d+)?)(?P<times>[kM]?)(?:\s*/\s*(?P<unit>s|min|h|d))?"
)
_COLUMNS = ["hour", "requests"]
_HOURS = (24, 168)
"""Rows of a profile: of a day, of a week."""


@dataclass(frozen=True, slots=True)
class ExpectedTraffic:
    """Requests that all replicas together see.

    Attributes:
        hourly: of each hour of a day or a week, which then begins again; one number where all hours are alike.
    """

    hourly: tuple[float, ...]

    @property
    def per_day(self) -> float:
        """Requests of a mean day."""
        return 24 * sum(self.hourly) / len(self.hourly)

    def scale_to(self, per_day: float) -> ExpectedTraffic:
        """Return the same profile with so many requests a day."""
        return replace(self, hourly=tuple(share * per_day / self.per_day for share in self.hourly))


def traffic_in(per_day: float | None, profile: Path | None) -> ExpectedTraffic | None:
    """Return the traffic that is told: a number, a profile, or a number that comes as a profile says; None where neither is.

    Raises:
        ConfigurationError: the profile is none; names its line.
    """
    if profile is None:
        return None if per_day is None else ExpectedTraffic((per_day / 24,))
    traffic = _profile(profile)
    return traffic if per_day is None else traffic.scale_to(per_day)


def requests_per_day_in(text: str) -> float:
    """Return requests a day.

    Raises:
        ValueError: it is no rate above 0; the message says what is.
    """
    match = _RATE.fullmatch(text.strip())
    number = float(re.sub("[_,]", "", match["number"])) if match else 0.0
    per_day = number * _TIMES[match["times"]] * _A_DAY[match["unit"] or "d"] if match else 0.0
    if not 0 < per_day < float("inf"):
        raise ValueError(f"{text!r} is no rate of requests; write for example {FORMS}")
    return per_day


def _profile(file: Path) -> ExpectedTraffic:
    """Read rows of hour and requests, each hour of a day or a week once; a first row may name the columns."""
    hours = dict[int, float]()
    try:
        with file.open(newline="", encoding="utf-8-sig") as opened:
            for line, hour, requests in _rows(file, enumerate(csv.reader(opened), 1)):
                if hour in hours:
                    raise ConfigurationError(f"{file}, line {line}: hour {hour} is there twice")
                hours[hour] = requests
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"{file}: {getattr(error, 'strerror', None) or error}") from None
    length = next(length for length in _HOURS if max(hours, default=0) < length)
    missing = [hour for hour in range(length) if hour not in hours]
    if missing:
        raise ConfigurationError(
            f"{file}: hour {missing[0]} is missing; a profile has {_HOURS[0]} rows, of a day, or {_HOURS[1]}, of a week"
        )
    if not any(hours.values()):
        raise ConfigurationError(f"{file}: no hour has a request")
    return ExpectedTraffic(tuple(hours[hour] for hour in range(length)))


def _rows(file: Path, read: Iterable[tuple[int, list[str]]]) -> Iterator[tuple[int, int, float]]:
    """Yield line, hour and requests."""
    for line, row in read:
        if not row or (line == 1 and [name.strip() for name in row] == _COLUMNS):
            continue
        where = f"{file}, line {line}"
        if len(row) != len(_COLUMNS):
            raise ConfigurationError(f"{where}: it has {len(row)} columns; write {','.join(_COLUMNS)}")
        hour, requests = (_number(cell) for cell in row)
        if hour is None or hour not in range(_HOURS[-1]):
            raise ConfigurationError(f"{where}: {row[0]!r} is no hour; write 0 to 23 of a day, or 0 to 167 of a week")
        if requests is None or requests < 0:
            raise ConfigurationError(f"{where}: {row[1]!r} is no number of requests; write 0 or more")
        yield line, int(hour), requests


def _number(cell: str) -> float | None:
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if isfinite(number) else None
