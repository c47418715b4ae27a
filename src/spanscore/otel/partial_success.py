"""Partial success: a backend that takes an export, and says in its answer that it rejected a part of it.

The SDK's exporters call that a success and hand the answer to nobody; over HTTP it is read on its way through their session.
``opentelemetry-proto``: ``Export<Signal>PartialSuccess``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from spanscore.otel.session_environment import prepare_once, read_environment_once

if TYPE_CHECKING:
    from requests import Response, Session

__all__ = ["PartialSuccess", "rejected_in"]

_CREDENTIAL_PROVIDER = "CREDENTIAL_PROVIDER"
"""How the SDK's variables end that name a session of the user's own; it is left alone, and its answers are not seen."""


class PartialSuccess:
    """What a backend rejected since it was last asked for. The thread that exports.

    Attributes:
        is_known: whether answers are seen; False over gRPC, and of a session that is not ours.
    """

    def __init__(self) -> None:
        self.is_known = False
        self._rejected = 0
        self._why = ""

    def session(self) -> Session | None:
        """Return a session for the ``session=`` of an OTLP/HTTP exporter; None where the environment names the user's own."""
        from requests import Session  # brought along by the OTLP exporters, as they send through it

        if any(name.startswith("OTEL_") and name.endswith(_CREDENTIAL_PROVIDER) for name in os.environ):
            return None
        self.is_known = True
        session = Session()
        session.hooks["response"].append(self._read)
        read_environment_once(session)
        prepare_once(session)
        return session

    def take(self) -> tuple[int, str]:
        """Return how many spans, points or events were rejected, and the backend's word for it; from now on 0."""
        taken = self._rejected, self._why
        self._rejected, self._why = 0, ""
        return taken

    def _read(self, response: Response, *_: Any, **__: Any) -> None:
        """Read one answer. One request of an export may come after another: they add up."""
        if response.ok and "protobuf" in response.headers.get("Content-Type", ""):
            rejected, why = rejected_in(response.content)
            self._rejected += rejected
            self._why = why or self._why


def rejected_in(answer: bytes) -> tuple[int, str]:
    """Return the number and the message; the three signals have them under the same field numbers."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        found = ExportTraceServiceResponse.FromString(answer).partial_success
    except DecodeError:  # no answer of OTLP: it rejects nothing
        return 0, ""
    return max(0, found.rejected_spans), found.error_message
