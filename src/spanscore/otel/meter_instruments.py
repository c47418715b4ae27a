"""The instruments of one meter, made once, and whose numbers they add up."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from operator import methodcaller
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation

from spanscore import semconv
from spanscore.core.job import Weights
from spanscore.core.threads import reset_in_child
from spanscore.otel.instrument_table import INSTRUMENTS, POINTS, READ, SUMS
from spanscore.otel.points import Point, together
from spanscore.otel.sums import Labels, add_up

if TYPE_CHECKING:
    from spanscore.otel.instruments import Telemetry

__all__ = ["DURATION_BUCKETS", "MeterInstruments", "instruments_of"]

DURATION_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Seconds; those of the GenAI conventions for a model's call."""
WAIT_BUCKETS = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Seconds; the last is the usual ``queue_timeout``."""


_Reader: TypeAlias = "Callable[[Telemetry], Mapping[Labels, float]]"


class MeterInstruments:
    """The instruments of one meter, and whose numbers they add up.

    Attributes:
        abandoned: nothing is recorded any more.
    """

    def __init__(self, meter: Meter) -> None:
        self.abandoned = False
        self._lock = Lock()
        self._members: list[Telemetry] = []
        self._gone: dict[str, dict[Labels, float]] = {}
        self._left: dict[Hashable, Point] = {}
        reset_in_child(self, MeterInstruments.reset)
        self._make_observable(meter)
        self.quality = _histogram(meter, semconv.QUALITY_HISTOGRAM, semconv.QUALITY_BUCKETS)
        self.judge_duration = _histogram(meter, semconv.JUDGE_DURATION, DURATION_BUCKETS)
        self._wait = _histogram(meter, semconv.JUDGE_QUEUE_DURATION, WAIT_BUCKETS)

    def join(self, one: Telemetry) -> None:
        """Add up the numbers of one more."""
        with self._lock:
            self._members.append(one)

    def leave(self, one: Telemetry) -> None:
        """Keep the last counts of one that leaves, what waits with them, as they add up; its other gauges end."""
        with self._lock:
            if one in self._members:
                self._members.remove(one)
                for name, read in self._kept.items():
                    add_up(self._gone.setdefault(name, {}), read(one))
                self._left |= one.points()

    def waited(self, provider: str, model: str, seconds: float) -> None:
        """Record that a question has waited to be sent."""
        if not self.abandoned:
            self._wait.record(seconds, {semconv.PROVIDER_NAME: provider, semconv.REQUEST_MODEL: model})

    def reset(self) -> None:
        """Be as new: in a forked child."""
        self._lock, self._gone, self._left = Lock(), {}, {}

    def _make_observable(self, meter: Meter) -> None:
        read: dict[str, _Reader] = {
            semconv.ELIGIBLE: lambda of: of.eligible(),
            semconv.EVALUATIONS: lambda of: of.evaluations(),
            semconv.PENDING: lambda of: of.pending(),
            semconv.MISSING_WEIGHT: lambda of: _weights(of.excluded(), "w"),
            semconv.MISSING_WEIGHT2: lambda of: _weights(of.excluded(), "w2"),
            semconv.COMPARED_MISSING_WEIGHT: lambda of: _weights(of.compared_missing(), "w"),
            semconv.COMPARED_MISSING_WEIGHT2: lambda of: _weights(of.compared_missing(), "w2"),
            **{name: methodcaller("sums", name) for name in SUMS},
            **{name: methodcaller("reading", name) for name in READ},
        }
        self._kept = {name: reader for name, reader in read.items() if _is_counter(name) or name == semconv.PENDING}
        observed = {name: partial(self._observe, name, reader) for name, reader in read.items()}
        observed |= {name: partial(self._observe_points, name) for name in POINTS}
        for name, observe in observed.items():
            make = meter.create_observable_counter if _is_counter(name) else meter.create_observable_gauge
            make(name, [observe], **_about(name))

    def _observe(self, name: str, read: _Reader, _: CallbackOptions) -> list[Observation]:
        with self._lock:
            total = dict(self._gone.get(name, {}))
            for member in self._members:
                add_up(total, read(member))
        return [Observation(value, dict(labels)) for labels, value in total.items()]

    def _observe_points(self, name: str, _: CallbackOptions) -> list[Observation]:
        """Observe what is there; a counter also where nobody reads it any more, as it must not go back."""
        with self._lock:
            points = dict(self._left) if _is_counter(name) else {}
            for member in self._members:
                points |= member.points()
        return [Observation(value, dict(labels)) for labels, value in together(name, points.values()).items()]


def _weights(of: Mapping[Labels, Weights], name: str) -> dict[Labels, float]:
    return {labels: getattr(weights, name) for labels, weights in of.items()}


def _is_counter(name: str) -> bool:
    return INSTRUMENTS[name].kind == "counter"


def _histogram(meter: Meter, name: str, buckets: Sequence[float]) -> Histogram:
    return meter.create_histogram(name, **_about(name), explicit_bucket_boundaries_advisory=buckets)


def _about(name: str) -> dict[str, str]:
    return {"unit": INSTRUMENTS[name].unit, "description": INSTRUMENTS[name].description}


class _Meters:
    """The instruments of every meter, made once for each."""

    def __init__(self) -> None:
        self._made: weakref.WeakKeyDictionary[Meter, MeterInstruments] = weakref.WeakKeyDictionary()
        self.reset()
        reset_in_child(self, _Meters.reset)

    def reset(self) -> None:
        self._lock = Lock()

    def instruments_of(self, meter: Meter) -> MeterInstruments:
        with self._lock:
            instruments = self._made.get(meter)
            if instruments is None:
                instruments = self._made[meter] = MeterInstruments(meter)
            return instruments


_meters = _Meters()


def instruments_of(meter: Meter) -> MeterInstruments:
    """Return the instruments of a meter, made by the first call."""
    return _meters.instruments_of(meter)
