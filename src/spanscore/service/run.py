"""``serve``: a configuration → a running service, until a signal ends it and what it has taken is scored."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from spanscore.errors import ConfigurationError
from spanscore.line.configuration import Configuration
from spanscore.line.received_rows import received_rows
from spanscore.otel.exporters import own_endpoints, send_by_default_to
from spanscore.scorer import OnlineScorer
from spanscore.service.door import Door
from spanscore.service.plan import addresses, mode_told, problems, refuse_own_endpoint
from spanscore.settings.durations import duration
from spanscore.settings.faults import wrong_settings
from spanscore.settings.reading import read_settings
from spanscore.settings.serving import ServeSettings, WireUnits

if TYPE_CHECKING:
    from spanscore.line.status import Status
    from spanscore.service.listeners import Listeners
    from spanscore.service.proxy import Proxy

__all__ = ["door_of", "serve"]

Say = Callable[[str], None]

_FOR_SCORES: Final = 0.8
"""Share of the drain, in a proxy: what is left is for the held spans."""
_COLLECTIONS: Final = (50_000, 20, 50)
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_NAMES: Final = {"grpc": "OTLP/gRPC", "http": "OTLP/HTTP"}


def serve(config: Path, overrides: Mapping[str, Any], say: Say) -> None:
    """Listen until SIGTERM or SIGINT, then drain; a second one ends the process at once. The main thread.

    Args:
        config: the configuration's file.
        overrides: key of ``serve`` → what is in force instead.
        say: tells the operator a line.

    Raises:
        ConfigurationError: something is wrong, before anything is accepted; the message says what to do.
    """
    settings = read_settings(config, Configuration).settings
    chosen = _overridden(settings.serve, overrides)
    if wrong := [str(problem) for problem in problems(chosen)]:
        raise wrong_settings(config, wrong)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # of a client that fails its handshake it would print a line each
    if chosen.mode == "proxy" and chosen.forward is not None:
        send_by_default_to(chosen.forward.endpoint)
    refuse_own_endpoint(addresses(chosen), chosen)
    scorer = OnlineScorer.from_config(config)
    try:
        _serve(scorer, chosen, settings.units, say)
    finally:
        scorer.shutdown(0.0)  # of one that was drained it does nothing


def door_of(scorer: OnlineScorer, chosen: ServeSettings, units: WireUnits) -> tuple[Door, Proxy | None]:
    """Return what answers requests for a scorer, and what sends them on; None = nothing does."""
    spans = scorer.otlp_spans(units)
    if chosen.mode != "proxy" or chosen.forward is None:
        return Door(spans, inflated=chosen.limits.inflated), None
    from spanscore.service.proxy import Proxy

    proxy = Proxy(chosen.forward, spans, max_bytes=units.bytes)
    spans.forward = proxy.state
    return Door(spans, inflated=chosen.limits.inflated, onward=proxy), proxy


def _serve(scorer: OnlineScorer, chosen: ServeSettings, units: WireUnits, say: Say) -> None:
    if scorer.scrape_endpoint is not None:
        scorer.scrape_endpoint.unready = lambda: "starting"
    from spanscore.service.listeners import Listeners  # what it takes is known to be there

    door, proxy = door_of(scorer, chosen, units)
    listeners = Listeners(door, chosen)

    def started() -> None:
        if scorer.scrape_endpoint is not None:
            scorer.scrape_endpoint.unready = lambda: _unready(door)
            scorer.scrape_endpoint.pages = _pages(scorer)
        _tell(listeners, scorer, chosen, say)

    with asyncio.Runner(loop_factory=listeners.loop_factory) as runner:
        until = runner.run(_until_signal(listeners, chosen, started, say))
    scorer.shutdown(max(0.0, until - monotonic()) * (1.0 if proxy is None else _FOR_SCORES))
    if proxy is not None:
        proxy.close(max(0.0, until - monotonic()))
    for line in _counted(scorer.status()):
        say(line)


async def _until_signal(listeners: Listeners, chosen: ServeSettings, started: Callable[[], None], say: Say) -> float:
    """Listen until a signal says otherwise; return when the drain is to be over, on the steady clock."""
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, asked.set)
    await listeners.start()
    _spare_collections()
    started()
    await asked.wait()
    until = monotonic() + chosen.drain
    for number in _SIGNALS:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)  # of the system: it ends a process that is stuck, too
    say(
        f"draining: nothing more is accepted, and what is being scored has {duration(chosen.drain)}; again to end at once"
    )
    await listeners.stop()
    return until


def _spare_collections() -> None:
    """Leave what is loaded by now, for good, out of garbage collections, and have fewer of them.

    Spans that wait are objects that stay, each of which brings the next full collection nearer: that of some 300,000 objects of
    modules was half of what a span cost (8.4 µs of CPU at the door, 3.4 without; 50 spans a request).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTIONS)


def _unready(door: Door) -> str:
    """Return why nothing is to be sent here; empty where it may."""
    if door.closed:
        return "draining"
    return "units.bytes are full" if door.overloaded() == "bytes" else ""


def _pages(scorer: OnlineScorer) -> Mapping[str, Callable[[str], str]]:
    """What an application asks its scorer, for those who have no scorer to ask; no content, as both say."""
    return {
        "status": lambda _: str(scorer.status()),
        "explain": lambda trace_id: json.dumps(scorer.explain(trace_id), indent=2),
    }


def _tell(listeners: Listeners, scorer: OnlineScorer, chosen: ServeSettings, say: Say) -> None:
    scheme = "plain text" if chosen.tls is None else "TLS"
    for name, address in listeners.where.items():
        say(f"{_NAMES[name]} on {address} ({scheme})")
    say(mode_told(chosen))
    say("scores: " + "; ".join(f"{signal} to {where}" for signal, where in own_endpoints().items()))
    page = scorer.scrape_endpoint
    if page is not None:
        say(f"metrics on {page.url}, beside them /status, /explain/TRACE_ID, /healthz and /readyz")


def _counted(status: Status) -> Iterator[str]:
    """Yield what came and what became of it: a line per metric, the rows of the status, and whether scores have left."""
    for metric, eligible in status.eligible.items():
        ended = [f"{outcome} {units:,}" for outcome, units in sorted(status.outcomes[metric].items()) if units]
        yield f"{metric}: eligible {eligible:,}{': ' if ended else ''}{', '.join(ended)}"
    yield from () if status.received is None else received_rows(status.received)
    yield from (f"{what} to {where}: {result}" for what, _, where, result in status.providers if where)


def _overridden(given: ServeSettings, overrides: Mapping[str, Any]) -> ServeSettings:
    try:
        return ServeSettings.model_validate({**given.model_dump(), **overrides})
    except ValidationError as error:
        told = (f"--{fault['loc'][0]}: {fault['msg'].removeprefix('Value error, ')}" for fault in error.errors())
        raise ConfigurationError("; ".join(told)) from None
