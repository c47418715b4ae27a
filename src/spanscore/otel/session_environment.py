"""What all requests to an address share, done once: reading what the environment names, and preparing all but the body.

``requests`` goes through all variables, three times over, before it sends anything: two fifths of what a small export costs. A
quarter of the rest is the preparation: the address is taken apart, a login is looked for in a file, headers are merged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from requests import PreparedRequest, Request, Session

__all__ = ["prepare_once", "read_environment_once"]


def read_environment_once(session: Session) -> None:
    """Have a session of ours remember what it found; variables that change later are those of another process."""
    read: Any = session.merge_environment_settings
    found: dict[Any, dict[str, Any]] = {}

    def remembered(url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> dict[str, Any]:
        if proxies:
            return dict(read(url, proxies, stream, verify, cert))
        asked = url, stream, verify, cert
        if asked not in found:
            found[asked] = read(url, proxies, stream, verify, cert)
        return {**found[asked], "proxies": found[asked]["proxies"].copy()}

    session.merge_environment_settings = remembered  # type: ignore[method-assign]


def prepare_once(session: Session) -> None:
    """Have a session of ours remember the prepared request of an address, and give it the body of each that follows.

    Not where a backend has set a cookie: it may change with each answer. The session's own headers are those of the first.
    """
    prepare = session.prepare_request
    made: dict[Any, PreparedRequest] = {}

    def prepared(request: Request) -> PreparedRequest:
        others = request.params, request.files, request.json, request.auth, request.cookies, session.cookies
        if any(others) or not isinstance(request.data, bytes) or not request.data:
            return prepare(request)
        asked = request.method, request.url, *(request.headers or {}).items()
        if asked not in made:
            made[asked] = prepare(request)
            made[asked].body = None  # as large as an export
        again = made[asked].copy()
        again.prepare_body(request.data, None)
        return again

    session.prepare_request = prepared  # type: ignore[method-assign]
