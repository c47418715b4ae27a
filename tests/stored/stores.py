"""StoreDouble: the APIs of Jaeger and Tempo on loopback, over given spans, with the faults that a test asks for."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

_IDS = ("traceId", "spanId", "parentSpanId")
_KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_CODES = ("UNSET", "OK", "ERROR")


class StoreDouble:
    """The content of a store, its API, and its faults.

    Attributes:
        asked: path and parameters of each request, in order.
        faults: path → result of its next requests: a status, ``(429, seconds)``, or ``"half"`` of the body.
        otlp: whether Jaeger's API v3 and Tempo's v2 are there.
    """

    def __init__(self, lines: Iterable[str], *, otlp: bool = True) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.faults: dict[str, list[Any]] = {}
        self.otlp = otlp
        self.traces: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for line in lines:
            for resource in json.loads(line)["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    for span in scope["spans"]:
                        alone = {**resource, "scopeSpans": [{**scope, "spans": [span]}]}
                        self.traces[span["traceId"]].append(alone)

    def answer(self, path: str, given: dict[str, str]) -> Any:
        """Return the JSON of an answer; None: there is no such thing."""
        place, _, last = path.rpartition("/")
        if path in ("/api/search", "/api/traces"):
            return self._search(given, seconds=path == "/api/search")
        if path == "/api/v3/services":
            return {"services": ["bot"]} if self.otlp else None
        resources = self.traces.get(last)
        if resources is None or (not self.otlp and place != "/api/traces"):
            return None
        return {
            "/api/v3/traces": lambda: {"result": {"resourceSpans": resources}},
            "/api/v2/traces": lambda: {
                "trace": {"resourceSpans": [*map(_as_tempo, resources)]},
                "status": "COMPLETE",
            },
            "/api/traces": lambda: {"batches": [*map(_as_tempo, resources)]},
        }[place]()

    def _search(self, given: dict[str, str], *, seconds: bool) -> Any:
        """Answer like Tempo, with times in seconds, or like Jaeger, with microseconds."""
        unit_ns = 1e9 if seconds else 1e3
        found = self._within(int(given["start"]) * unit_ns, int(given["end"]) * unit_ns, int(given["limit"]))
        if seconds:
            return {"traces": [{"traceID": one.lstrip("0"), "rootServiceName": "bot"} for one in found], "metrics": {}}
        return {"data": [{"traceID": one, "spans": [], "processes": {}} for one in found], "errors": None}

    def _within(self, start_ns: float, end_ns: float, limit: int) -> list[str]:
        begins = {
            trace_id: min(int(span["startTimeUnixNano"]) for span in _spans_of(found))
            for trace_id, found in self.traces.items()
        }
        latest = sorted((one for one in begins if start_ns <= begins[one] < end_ns), key=lambda one: -begins[one])
        return latest[:limit]


@contextmanager
def served(store: StoreDouble) -> Iterator[str]:
    """Yield the address at which a store answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            given = dict(parse_qsl(parts.query))
            store.asked.append((parts.path, given))
            faults = store.faults.get(parts.path, [])
            fault = faults.pop(0) if faults else None
            answer = None if isinstance(fault, (int, tuple)) else store.answer(parts.path, given)
            body = json.dumps(answer).encode()
            status, *wait = fault if isinstance(fault, tuple) else (fault,) if isinstance(fault, int) else (200,)
            self.send_response(404 if answer is None and status == 200 else status)
            for seconds in wait:
                self.send_header("Retry-After", str(seconds))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if fault == "half" else body)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _spans_of(resources: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return (span for resource in resources for scope in resource["scopeSpans"] for span in scope["spans"])


def _as_tempo(resource: dict[str, Any]) -> dict[str, Any]:
    """Return it as protobuf's own JSON has it, which Tempo writes: ids in base64, enums by name."""
    copy = json.loads(json.dumps(resource))
    for span in _spans_of([copy]):
        span["kind"] = f"SPAN_KIND_{_KINDS[span.get('kind', 0)]}"
        if "code" in span.get("status", {}):
            span["status"]["code"] = f"STATUS_CODE_{_CODES[span['status']['code']]}"
        for holder in (span, *span.get("links", ())):
            holder.update({name: b64encode(bytes.fromhex(holder[name])).decode() for name in _IDS if name in holder})
    return copy
