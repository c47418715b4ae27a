"""Langfuse's ``POST /api/public/scores`` on loopback: checks each request against the published form, and keeps the scores.

The form is written by hand after ``CreateScoreRequest`` and ``ScoreDataType`` of Langfuse's API definition
(``fern/apis/server`` of its repository, November 2026). A faulty request gets 400, a wrong key 401, as from Langfuse.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from typing import Any

from tests.service.backend import Arrived, RawBackend, Reply

PUBLIC_KEY, SECRET_KEY = "pk-lf-1", "sk-lf-2"
_TEXTS = ("id", "name", "traceId", "observationId", "sessionId", "comment", "environment", "configId", "dataType")
_FIELDS = {*_TEXTS, "value", "metadata", "datasetRunId", "queueId", "source"}


def find_faults(score: dict[str, Any]) -> list[str]:
    """Return the violations of the published form."""
    faults = [f"unknown field {name}" for name in score.keys() - _FIELDS]
    faults += [f"{name} is no text" for name in _TEXTS if name in score and not isinstance(score[name], str)]
    faults += [f"{name} is missing" for name in ("name", "value") if name not in score]
    faults += [] if isinstance(score.get("metadata", {}), dict) else ["metadata is no mapping"]
    # OpenTelemetry's ids, as Langfuse's OTLP endpoint stores them.
    faults += [] if re.fullmatch(r"[0-9a-f]{32}", score.get("traceId", "")) else ["traceId is no trace id"]
    faults += [] if re.fullmatch(r"[0-9a-f]{16}", score.get("observationId", "")) else ["observationId is no span id"]
    value, kind = score.get("value"), score.get("dataType", "NUMERIC")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {"NUMERIC": is_number, "BOOLEAN": is_number and value in (0, 1), "CATEGORICAL": isinstance(value, str)}
    return faults + ([] if fits.get(kind) else [f"value {value!r} is no {kind}"])


class Langfuse(RawBackend):
    """The endpoint.

    Attributes:
        scores: id → score; a later score with the same id replaces the earlier one.
        faults: violations of all requests.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scores: dict[str, dict[str, Any]] = {}
        self.faults: list[str] = []
        self.reply(self._take)

    def _take(self, request: Arrived) -> Reply:
        scheme, _, login = request.headers.get("authorization", "").partition(" ")
        if (scheme, b64decode(login)) != ("Basic", f"{PUBLIC_KEY}:{SECRET_KEY}".encode()):
            return Reply(401, b'{"message":"Invalid credentials"}', {"Content-Type": "application/json"})
        score = json.loads(request.body)
        faults = find_faults(score)
        if request.path != "/api/public/scores":
            faults.append(f"path {request.path}")
        if request.headers.get("content-type") != "application/json":
            faults.append("content type")
        self.faults += faults
        if faults:
            return Reply(400, json.dumps({"error": faults}).encode(), {"Content-Type": "application/json"})
        self.scores[score["id"]] = score
        return Reply(200, json.dumps({"id": score["id"]}).encode(), {"Content-Type": "application/json"})
