"""Prometheus' HTTP API: an expression over a stretch of time → its series."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, NamedTuple

from spanscore.errors import ConfigurationError

__all__ = ["PrometheusApi", "RangeSeries"]

_HOW = "give the address of its page, such as http://localhost:9090"


class RangeSeries(NamedTuple):
    """Labels, and (seconds since the epoch, value) in order."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class PrometheusApi:
    """A Prometheus, or what answers as one does; asking it blocks.

    Args:
        url: of its page, ``http://localhost:9090``; no name and password in it.
        timeout_s: for one answer.

    Raises:
        ConfigurationError: the address is none.
    """

    url: str
    timeout_s: float = 120.0

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.username or parts.password:
            raise ConfigurationError(
                "the address of Prometheus holds a name or a password, which is not asked with; leave it out"
            )
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigurationError(f"{self.url!r} is no address of a Prometheus; {_HOW}")

    def query_range(self, expression: str, *, start_s: float, end_s: float, step_s: float) -> list[RangeSeries]:
        """Return the series of an expression, from ``start_s`` to ``end_s``, both of them included.

        Raises:
            ConfigurationError: nobody is there, or refuses; the message says who and why.
        """
        given = {"query": expression, "start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:g}"}
        asked = urllib.request.Request(
            f"{self.url.rstrip('/')}/api/v1/query_range", data=urllib.parse.urlencode(given).encode()
        )
        return self._answer(asked)

    def _answer(self, asked: urllib.request.Request) -> list[RangeSeries]:
        try:
            with urllib.request.urlopen(asked, timeout=self.timeout_s) as response:
                return self._read(response.read())
        except urllib.error.HTTPError as error:
            raise ConfigurationError(f"{self.url} refused ({error.code}): {_reason(error)}") from None
        except urllib.error.URLError as error:
            raise ConfigurationError(f"no Prometheus answers at {self.url}: {error.reason}; {_HOW}") from None
        except (OSError, HTTPException) as error:  # a timeout while reading, or the connection went
            raise ConfigurationError(f"{self.url} gave no whole answer: {error}") from None

    def _read(self, body: bytes) -> list[RangeSeries]:
        try:
            return _series_in(json.loads(body))
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            raise ConfigurationError(f"what answers at {self.url} is no Prometheus; {_HOW}") from None


def _series_in(answer: Any) -> list[RangeSeries]:
    if answer["status"] != "success":
        raise ValueError
    return [
        RangeSeries(dict(one["metric"]), [(float(time), float(value)) for time, value in one["values"]])
        for one in answer["data"]["result"]
    ]


def _reason(error: urllib.error.HTTPError) -> str:
    """Return Prometheus' own words, else the status's."""
    try:
        told = json.loads(error.read()).get("error")
    except (ValueError, AttributeError, OSError):
        told = None
    return str(told or error.reason)
