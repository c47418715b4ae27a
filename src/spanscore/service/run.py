"""Runs ``serve``: starts the scorer and the listeners of a configuration, and drains them after a signal."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from spanscore.config.messages import refuse_problems
from spanscore.config.reading import read_settings
from spanscore.config.serving import ListenAddress, ServeSettings
from spanscore.config.units import Units
from spanscore.core.threads import DaemonPool
from spanscore.errors import ConfigurationError
from spanscore.outputs.exporters import send_by_default_to
from spanscore.scorer import OnlineScorer, pipeline_of, receivers_of
from spanscore.service.lifetime import (
    PrintLine,
    Signals,
    describe_endpoints,
    describe_outcomes,
    open_pages,
    spare_collections,
    start_scorer,
)
from spanscore.service.otlp_endpoint import ExportHandler, OtlpHttp
from spanscore.service.plan import addresses, describe_mode, problems, refuse_own_endpoint, token_of
from spanscore.service.requests import READ_S

if TYPE_CHECKING:
    from spanscore.service.proxy import Proxy

_SCORES_SHARE: Final = 0.8
"""Share of a proxy's drain time for scores. The rest is for sending the held spans."""
_DISK_S: Final = 35.0
"""Longest wait of a request for the disk, in s: a little longer than a spool waits for another program's lock."""
_NAMES: Final = {"grpc": "OTLP/gRPC", "http": "OTLP/HTTP"}


def serve(config: Path, overrides: Mapping[str, Any], print_line: PrintLine) -> None:
    """Listen until SIGTERM or SIGINT, then drain; a second signal ends the process immediately. Call on the main thread.

    ``overrides`` replace keys of the file's section ``serve``.

    Raises:
        ConfigurationError: something is wrong, before any request is accepted; the message has the remedy.
    """
    settings = read_settings(config).settings
    try:
        serve_settings = ServeSettings.model_validate({**settings.serve.model_dump(), **overrides})
    except ValidationError as error:
        faults = (f"--{fault['loc'][0]}: {fault['msg'].removeprefix('Value error, ')}" for fault in error.errors())
        raise ConfigurationError("; ".join(faults)) from None
    refuse_problems(config, problems(serve_settings))
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # otherwise gRPC prints a line for each failed handshake
    if serve_settings.mode == "proxy" and serve_settings.forward is not None:
        send_by_default_to(serve_settings.forward.endpoint)
    refuse_own_endpoint(addresses(serve_settings), serve_settings)
    scorer = start_scorer(config)
    try:
        _serve(scorer, serve_settings, settings.units, print_line)
    finally:
        scorer.shutdown(0.0)  # has no effect after a drain


def handler_of(scorer: OnlineScorer, serve_settings: ServeSettings, units: Units) -> tuple[ExportHandler, Proxy | None]:
    """Return the handler of a scorer's requests, and the proxy that forwards them; None = requests are not forwarded."""
    spans = receivers_of(scorer).otlp_spans(units)
    spans.copies.trusted = token_of(serve_settings) is not None  # the listeners refuse clients without the token
    if serve_settings.mode != "proxy" or serve_settings.forward is None:
        pipeline, inflated = pipeline_of(scorer), serve_settings.limits.inflated
        if pipeline.export_confirmation is None or units.idle_timeout:  # a request closes no unit that is kept on disk
            return ExportHandler(spans, max_inflated_bytes=inflated), None
        wait = partial(spans.wait_until_safe, pipeline.when_safe, _DISK_S)
        return ExportHandler(spans, max_inflated_bytes=inflated, wait_until_durable=wait), None
    from spanscore.service.proxy import Proxy

    proxy = Proxy(serve_settings.forward, spans, max_bytes=units.bytes)
    spans.forward = proxy.state
    return ExportHandler(spans, max_inflated_bytes=serve_settings.limits.inflated, proxy=proxy), proxy


def _serve(scorer: OnlineScorer, serve_settings: ServeSettings, units: Units, print_line: PrintLine) -> None:
    handler, proxy = handler_of(scorer, serve_settings, units)
    if pipeline_of(scorer).export_confirmation is not None:
        scorer.start_workers()  # jobs of other processes must not wait for the first request
    listeners = Listeners(handler, serve_settings)

    with asyncio.Runner(loop_factory=listeners.loop_factory) as runner:
        until = runner.run(_listen_until_signal(scorer, listeners, handler, serve_settings, print_line))
    scorer.shutdown(max(0.0, until - monotonic()) * (1.0 if proxy is None else _SCORES_SHARE))
    if proxy is not None:
        proxy.close(max(0.0, until - monotonic()))
    for line in describe_outcomes(scorer.status()):
        print_line(line)


async def _listen_until_signal(
    scorer: OnlineScorer,
    listeners: Listeners,
    handler: ExportHandler,
    serve_settings: ServeSettings,
    print_line: PrintLine,
) -> float:
    """Listen until a signal requests a drain; return the end of the drain, on the steady clock."""
    signals = Signals()
    signals.reload_on_hangup(scorer, print_line)
    await listeners.start()
    spare_collections()
    open_pages(scorer, signals, lambda: "units.bytes are full" if handler.overloaded() == "bytes" else "")
    scheme = "plain text" if serve_settings.tls is None else "TLS"
    for name, address in listeners.where.items():
        print_line(f"{_NAMES[name]} on {address} ({scheme})")
    for line in (describe_mode(serve_settings), *describe_endpoints(scorer)):
        print_line(line)
    until = await signals.wait_for_drain(serve_settings.drain, print_line, stopped="nothing more is accepted")
    await listeners.stop()
    return until


# --- listeners ------------------------------------------------------------------------------------------------------

_THREADS: Final = 32
"""Threads for slow bodies, and for a proxy's requests, each of which waits for the backend."""
_BACKLOG: Final = 1_024


class Listeners:
    """The listeners of one export handler. The constructor binds the HTTP port, ``start`` the gRPC port.

    A whole request must arrive within ``read_s`` seconds.

    Raises:
        ConfigurationError: the port is taken, this machine lacks the address, or token or certificate cannot be read.

    Attributes:
        loop_factory: makes the event loop on which the listeners must be started.
        where: ``grpc`` and ``http`` → address; port 0 is replaced by the actual port.
    """

    def __init__(self, handler: ExportHandler, serve: ServeSettings, *, read_s: float = READ_S) -> None:
        from spanscore.service.grpc import GrpcListener  # their libraries are installed: ``problems`` checks it
        from spanscore.service.uvicorn_server import HttpListener, loop_factory

        self._handler = handler
        self.where = addresses(serve)
        pool, token = DaemonPool(_THREADS, "spanscore-requests"), token_of(serve)
        self.loop_factory: Callable[[], asyncio.AbstractEventLoop] = loop_factory()
        self._grpc = self._http = None
        if "http" in self.where:
            application = OtlpHttp(handler, token=token, max_body_bytes=serve.limits.request, pool=pool)
            self._socket = _bind(self.where["http"])
            self._http = HttpListener(application, self._socket, serve, token=token, read_s=read_s)
            self.where["http"] = self.where["http"]._replace(port=self._socket.getsockname()[1])
        if "grpc" in self.where:
            address = str(self.where["grpc"])
            self._grpc = GrpcListener(handler, address, serve, token=token, pool=pool, read_s=read_s)

    async def start(self) -> None:
        """Start to accept requests.

        Raises:
            ConfigurationError: the gRPC address cannot be listened on.
        """
        if self._grpc is not None:
            try:
                await self._grpc.start()
            except ConfigurationError:
                self.close()
                raise
            self.where["grpc"] = self.where["grpc"]._replace(port=self._grpc.port)
        if self._http is not None:
            await self._http.start()

    async def stop(self) -> None:
        """Refuse new requests, answer received ones, and close every connection; takes some seconds at most."""
        self._handler.closed = True
        await asyncio.gather(*(listener.stop() for listener in (self._grpc, self._http) if listener is not None))

    def close(self) -> None:
        """Close the bound HTTP port, if ``start`` was not called or has failed."""
        if self._http is not None:
            self._socket.close()


def _bind(address: ListenAddress) -> socket.socket:
    try:
        family, *_, resolved = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(resolved[:2], family=family, backlog=_BACKLOG)
    except OSError as error:  # the system's message, because Python's repeats the address
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or "no such address"
        raise ConfigurationError(
            f"serve.http: nothing can listen on {address} ({reason}): is another process listening there? Give another port"
        ) from None
