"""Serves the page of ``spanscore annotations label`` on loopback, for one person with the page's token.

Other pages in the same browser can send requests to loopback. So each request needs the random token and the server's own
``Host`` (against DNS rebinding), and a POST also needs the page's ``Origin``.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable, Mapping
from hmac import compare_digest
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, urlsplit

from spanscore.core.http_server import QuietHandler, QuietServer
from spanscore.core.log import log_internal_error
from spanscore.errors import ConfigurationError
from spanscore.stored.labelling import LabelSession, StaleCaseError

_T = TypeVar("_T")
_HOST: Final = "127.0.0.1"
_MOST_BYTES: Final = 100_000
"""Largest body of a request: a note is the only text of a person."""
_JSON: Final = "application/json; charset=utf-8"
_BEARER: Final = "Bearer "
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class LabelPage:
    """The page of one labelling session.

    Args:
        session: the labelling session; its methods are called on the threads of connections.
        render: makes the page; the argument is the nonce of its script and style.
        port: 0 = any free port.

    Raises:
        ConfigurationError: the port cannot be listened on.

    Attributes:
        url: address of the page with its token.
        token: random text that each request must have.
        origin: origin of the page.
    """

    def __init__(self, session: LabelSession, render: Callable[[str], str], port: int) -> None:
        self.session = session
        self.render = render
        self.token = secrets.token_urlsafe(32)
        try:
            self._server = _LabelServer(port, self)
        except OSError as error:
            raise ConfigurationError(
                f"--port {port} cannot be listened on ({error.strerror or error}): give another port, or 0 for any free one"
            ) from error
        self.origin = f"http://{_HOST}:{self._server.server_address[1]}"
        self.url = f"{self.origin}/?token={self.token}"

    def serve(self) -> None:
        """Serve until ``stop`` is called on another thread. Blocks."""
        try:
            self._server.serve_forever(poll_interval=0.1)
        finally:
            self._server.server_close()

    def stop(self) -> None:
        """End ``serve``. Blocks until it accepts no more connections; must not be called on the thread of ``serve``."""
        self._server.shutdown()


class _LabelServer(QuietServer):
    def __init__(self, port: int, page: LabelPage) -> None:
        self.page = page
        super().__init__((_HOST, port), socket.AF_INET, _Handler)


class _BadRequest(Exception):
    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def _field(body: Mapping[str, Any], name: str, kind: type[_T], default: _T | None = None) -> _T:
    value = body.get(name, default)
    if not isinstance(value, kind):
        raise _BadRequest(HTTPStatus.BAD_REQUEST, f"{name} is missing or has the wrong type")
    return value


class _Handler(QuietHandler):
    server: _LabelServer

    def do_GET(self) -> None:  # noqa: N802  (called by the server)
        self._answer(self._get)

    def do_POST(self) -> None:  # noqa: N802  (called by the server)
        self._answer(self._post)

    def _answer(self, act: Callable[[], None]) -> None:
        try:
            if f"http://{self.headers.get('Host')}" != self.server.page.origin:
                raise _BadRequest(HTTPStatus.FORBIDDEN, "the request is for another host")  # noqa: TRY301
            act()
        except _BadRequest as error:
            self._send_json(error.status, {"error": str(error)})
        except StaleCaseError as error:
            self._send_json(HTTPStatus.CONFLICT, {"error": str(error)})
        except ConfigurationError as error:  # the annotation file is unusable, or there is no such choice
            self._send_json(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": str(error)})
        except ConnectionError:
            pass  # the client hung up
        except Exception as error:  # noqa: BLE001  (the page goes on)
            log_internal_error("serve the labelling page", error)
            self._send_json(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "the command has an internal error"})

    def _get(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/":
            self._check_token(parse_qs(url.query).get("token", [""])[0])
            nonce = secrets.token_urlsafe(16)
            policy = {"Content-Security-Policy": _POLICY.format(nonce=nonce)}
            headers = {**_HEADERS, "Content-Type": "text/html; charset=utf-8", **policy}
            self.send(HTTPStatus.OK, self.server.page.render(nonce).encode(), headers)
        elif url.path == "/state":
            self._check_token(self._bearer())
            self._send_json(HTTPStatus.OK, self.server.page.session.state())
        else:
            raise _BadRequest(HTTPStatus.NOT_FOUND, "no such page")

    def _post(self) -> None:
        self._check_token(self._bearer())
        if self.headers.get("Origin") != self.server.page.origin:
            raise _BadRequest(HTTPStatus.FORBIDDEN, "the request is from another page")
        session = self.server.page.session
        actions: Mapping[str, Callable[[dict[str, Any]], Any]] = {
            "/choose": lambda body: session.choose(
                _field(body, "case", str), _field(body, "choice", int), _field(body, "comment", str, "") or None
            ),
            "/note": lambda body: session.note(_field(body, "case", str), _field(body, "comment", str)),
            "/skip": lambda body: session.skip(_field(body, "case", str)),
            "/undo": lambda body: session.undo(),
            "/finish": lambda body: {"summary": session.finish()},
        }
        act = actions.get(self.path)
        if act is None:
            raise _BadRequest(HTTPStatus.NOT_FOUND, "no such action")
        self._send_json(HTTPStatus.OK, act(self._body()))
        if self.path == "/finish":
            self.server.page.stop()  # no deadlock: ``serve`` runs on another thread, and does not wait for this daemon thread

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _MOST_BYTES:
            raise _BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {_MOST_BYTES:,} bytes")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise _BadRequest(HTTPStatus.BAD_REQUEST, "the body must be a JSON object")
        return body

    def _check_token(self, token: str) -> None:
        if not compare_digest(token.encode(), self.server.page.token.encode()):
            raise _BadRequest(
                HTTPStatus.FORBIDDEN, "the token is missing or wrong: use the address that the command prints"
            )

    def _bearer(self) -> str:
        header = self.headers.get("Authorization", "")
        return header.removeprefix(_BEARER) if header.startswith(_BEARER) else ""

    def _send_json(self, status: HTTPStatus, answer: Mapping[str, Any]) -> None:
        self.send(status, json.dumps(answer).encode(), {**_HEADERS, "Content-Type": _JSON})
