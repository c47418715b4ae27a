"""The sink ``langfuse`` sends scores and human labels to Langfuse, on the trace and the observation of the unit.

Langfuse has one score per id. A repeated request, or a newer score, replaces the score.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from urllib3.util import make_headers

from spanscore.config.outputs import LangfuseSettings
from spanscore.core.sample import Annotation
from spanscore.core.score import Score, id_of
from spanscore.core.span import Unit, UnitKey
from spanscore.errors import NotReadyError
from spanscore.outputs.http_sink import (
    JSON_HEADERS,
    Destination,
    HttpRequest,
    Message,
    OpenOutbox,
    exported_scores,
    json_bytes,
    message_id,
    score_name,
    without_none,
)
from spanscore.outputs.score_spans import explanation_of

_URL: Final = "https://cloud.langfuse.com"
_PATH: Final = "/api/public/scores"


def _key(name: str, parameter: str | None) -> str:
    variable = f"LANGFUSE_{name.upper()}"
    key = parameter or os.environ.get(variable)
    if not key:
        raise NotReadyError(f"outputs.sinks: langfuse has no {name}; set the variable {variable} of the environment")
    return key


class LangfuseSink:
    """Sends a score for each of the ``exported_scores``, and for each human label of a known unit.

    The ids of trace and observation are those of the unit's span, as Langfuse receives them over OTLP. The name of a score
    outside sampled traffic has the score's source: ``faithfulness.shadow``.

    Args:
        content: whether explanations and comments, which quote prompts and answers, may be exported.
        parameters: fields of ``LangfuseSettings``.

    Raises:
        ConfigurationError: a parameter is wrong.
        NotReadyError: a key is missing.
    """

    def __init__(self, open_outbox: OpenOutbox, content: bool = False, **parameters: Any) -> None:
        settings = LangfuseSettings(**parameters)
        url = settings.url or os.environ.get("LANGFUSE_BASE_URL") or os.environ.get("LANGFUSE_HOST") or _URL
        login = f"{_key('public_key', settings.public_key)}:{_key('secret_key', settings.secret_key)}"
        self._headers = {**JSON_HEADERS, **make_headers(basic_auth=login)}
        self._content = content
        destination = Destination(name="langfuse", url=f"{url.rstrip('/')}{_PATH}", request=self._request)
        self._outbox = open_outbox(destination)

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Put one message per score into the outbox."""
        for score, identity in exported_scores(unit, scores):
            is_verdict = score.kind == "binary" and score.number in (0, 1)
            version = score.evaluator_version or None
            message = {
                "id": id_of(replace(score, revision=0), unit),
                "name": score_name(score),
                "value": bool(score.number) if is_verdict else score.category or score.number,
                "comment": explanation_of(score),
                "metadata": {"label": score.label, "evaluator_version": version, "probability": score.probability},
            }
            self._put(identity, unit.key, message)

    def label(self, label: Annotation) -> None:
        """Put the message of a label into the outbox; a label without a known unit gets none."""
        if label.unit is not None:
            message = {
                "id": message_id(*label.unit, label.name, label.annotator),
                "name": label.name,
                "value": label.value,
                "comment": label.comment,
                "metadata": {"annotator": label.annotator, "quality": label.quality},
            }
            self._put(message_id(label.id, label.revision), label.unit, message)

    def shutdown(self) -> None:
        """Do nothing, because the scorer closes the outbox."""

    def _put(self, identity: str, unit: UnitKey, message: Mapping[str, Any]) -> None:
        """Put a score of Langfuse into the outbox. All revisions have one ``id``, so that a newer one replaces an older one."""
        value = message["value"]
        score = {
            **message,
            "traceId": f"{unit.trace_id:032x}",
            "observationId": f"{unit.span_id:016x}",
            "value": int(value) if isinstance(value, bool) else value,
            "dataType": {bool: "BOOLEAN", str: "CATEGORICAL"}.get(type(value), "NUMERIC"),
            "comment": message["comment"] if self._content else None,
            "metadata": without_none(message["metadata"]),
        }
        self._outbox.put(Message(identity, json_bytes(score)))

    def _request(self, messages: Sequence[Message]) -> HttpRequest:
        return HttpRequest(messages[0].body, self._headers)
