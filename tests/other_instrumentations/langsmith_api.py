"""A loopback server that accepts the requests of LangSmith's client, and returns their content."""

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_INGEST = {
    "use_multipart_endpoint": False,  # plain JSON, not compressed parts
    "size_limit": 100,
    "size_limit_bytes": 20_000_000,
    "scale_up_nthreads_limit": 1,
    "scale_up_qsize_trigger": 1_000,
    "scale_down_nempty_trigger": 4,
}


class LangSmithServer:
    """Serves ``/info`` and ``/runs/batch`` on 127.0.0.1, and switches LangSmith's tracing of this process to itself."""

    def __init__(self) -> None:
        self._runs: list[dict[str, Any]] = []
        self.unread: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer({"batch_ingest_config": _INGEST})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.take(self.path, body)
                self._answer({})

            def _answer(self, value: Any) -> None:
                payload = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    def take(self, path: str, body: bytes) -> None:
        if not path.endswith("/runs/batch"):
            self.unread.append(path)
            return
        sent = json.loads(body)
        self._runs += [*sent.get("post", ()), *sent.get("patch", ())]

    def __enter__(self) -> LangSmithServer:
        os.environ["LANGSMITH_TRACING"] = "true"
        os.environ["LANGSMITH_ENDPOINT"] = f"http://127.0.0.1:{self._server.server_port}"
        os.environ["LANGSMITH_API_KEY"] = "none"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def drain(self) -> list[str]:
        """Wait for the client to send its data; return each received run as JSON text, and forget it."""
        from langchain_core.tracers.langchain import wait_for_all_tracers

        wait_for_all_tracers()
        assert not self.unread, self.unread
        runs, self._runs = self._runs, []
        return [json.dumps(run) for run in runs]
