"""The start, signals, status pages and last lines of a long-running process, shared by ``serve`` and ``worker``."""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from spanscore.core.printable import format_duration
from spanscore.core.threads import start_daemon
from spanscore.outputs.exporters import own_endpoints
from spanscore.scorer import OnlineScorer, reloader_of
from spanscore.wiring.durable import spool_rows
from spanscore.wiring.status import received_rows

if TYPE_CHECKING:
    from spanscore.wiring.status import Status

PrintLine: TypeAlias = Callable[[str], None]
"""Function that prints a line for the operator."""

_DRAINING: Final = "draining"
_COLLECTIONS: Final = (50_000, 20, 50)
"""Thresholds of the garbage collector for its three generations; Python's defaults collect more often."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
HANGUP: Final = frozenset({signal.SIGHUP})
"""The signal that reloads the configuration."""


class Signals:
    """Handles SIGTERM and SIGINT: the first signal requests a drain, the second ends the process.

    Create it on the running loop. In a process of ``multiprocessing``, the end of its parent counts as such a signal.
    """

    def __init__(self) -> None:
        self._loop, self._requested = asyncio.get_running_loop(), asyncio.Event()
        for number in _SIGNALS:
            self._loop.add_signal_handler(number, self._requested.set)
        if (parent := multiprocessing.parent_process()) is not None:  # without its parent, the process would never end
            self._loop.add_reader(parent.sentinel, self._handle_parent_end, parent.sentinel)

    def _handle_parent_end(self, sentinel: int) -> None:
        self._loop.remove_reader(sentinel)
        self._requested.set()

    def reload_on_hangup(self, scorer: OnlineScorer, print_line: PrintLine) -> None:
        """Reload the scorer's configuration at each SIGHUP, on a daemon thread, and print a line about every reload."""
        reloader = reloader_of(scorer)
        assert reloader is not None  # a service's scorer is made from a file
        reloader.report = lambda text, is_error: print_line(text)
        if reloader.settings.reload:
            reloader.watch()  # before the first unit
        self._loop.add_signal_handler(signal.SIGHUP, start_daemon, reloader.try_reload, "spanscore-hangup")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANGUP)

    @property
    def has_arrived(self) -> bool:
        """Whether the first signal has arrived. Thread-safe."""
        return self._requested.is_set()

    async def wait_for_drain(self, drain_s: float, print_line: PrintLine, *, stopped: str) -> float:
        """Wait for the first signal, print a line about it, and return the end of the drain, on the steady clock.

        ``stopped`` names the work that ends now, in the line: ``"nothing more is accepted"``.
        """
        await self._requested.wait()
        until = monotonic() + drain_s
        for number in _SIGNALS:
            self._loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)  # the system then ends even a stuck process
        self._loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a reload has no effect any more, and must not end the drain
        print_line(
            f"{_DRAINING}: {stopped}, and scoring has {format_duration(drain_s)} to finish; signal again to end at once"
        )
        return until


def start_scorer(config: Path, **overrides: Any) -> OnlineScorer:
    """Return the scorer of a configuration file. ``/readyz`` answers 503 from its first request until ``open_pages``.

    The file's ``remote_scoring`` is ignored, because this process scores the units. A SIGHUP waits until
    ``Signals.reload_on_hangup``. Call on the main thread.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, HANGUP)  # otherwise it would end the process
    return OnlineScorer._from_config(config, {**overrides, "remote_scoring": None}, unready="starting")


def open_pages(
    scorer: OnlineScorer, signals: Signals, unready: Callable[[], str], status_lines: Sequence[str] = ()
) -> None:
    """Serve ``/status``, which ends with ``status_lines``, and ``/explain`` in addition to the metrics, without content.

    ``unready`` returns the reason for which the service is not ready; empty if it is ready. After the first signal it is not.
    """
    page = scorer.metrics_endpoint
    if page is not None:
        page.unready = lambda: _DRAINING if signals.has_arrived else unready()
        page.pages = {
            "status": lambda _: "\n".join([str(scorer.status()).rstrip("\n"), *status_lines]),
            "explain": lambda trace_id: json.dumps(scorer.explain(trace_id), indent=2),
        }


def describe_endpoints(scorer: OnlineScorer) -> Iterator[str]:
    """Yield lines with the endpoints of the scores, and the address of the pages."""
    yield "scores: " + "; ".join(f"{what} to {where}" for what, where in own_endpoints().items())
    page = scorer.metrics_endpoint
    if page is not None:
        yield f"metrics on {page.url}, with /status, /explain/TRACE_ID, /healthz and /readyz"


def describe_outcomes(status: Status) -> Iterator[str]:
    """Yield the last lines: one per metric with its outcomes, rows of the status, and the results of exports."""
    for metric, eligible in status.eligible.items():
        ended = [f"{outcome} {units:,}" for outcome, units in sorted(status.outcomes[metric].items()) if units]
        yield f"{metric}: eligible {eligible:,}{': ' if ended else ''}{', '.join(ended)}"
    yield from () if status.received is None else received_rows(status.received)
    yield from () if status.spool is None else spool_rows(status.spool, status.since_s)
    yield from (f"{what} to {where}: {result}" for what, _, where, result in status.providers if where)


def spare_collections() -> None:
    """Exclude the objects loaded so far from garbage collection, and make collections rarer.

    Waiting spans are long-lived objects, so full collections are frequent. Collecting some 300,000 objects of modules took
    half of the cost of a span (8.4 µs of CPU on receipt, 3.4 without; 50 spans a request).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTIONS)
