"""The sink ``phoenix`` sends scores and human labels to Phoenix as annotations, which Phoenix shows, filters and averages.

Phoenix has one annotation per span, name and identifier. A repeated request, or a newer score, replaces the annotation.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from spanscore import semconv
from spanscore.config.outputs import PhoenixSettings
from spanscore.core.sample import Annotation
from spanscore.core.score import Score
from spanscore.core.span import Unit, UnitKey
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
)
from spanscore.outputs.score_spans import annotator_kind, explanation_of

_URL: Final = "http://localhost:6006"
_MOST: Final = 100
"""Highest number of annotations in one request."""
# Phoenix rejects a synchronous request as a whole if one of its spans has not arrived yet.
_PATH: Final = "/v1/span_annotations?sync=false"


class PhoenixSink:
    """Sends an annotation for each of the ``exported_scores``, and for each human label of a known unit.

    The name of a score outside sampled traffic has the score's source: ``faithfulness.shadow``.

    Args:
        content: whether explanations and comments, which quote prompts and answers, may be exported.
        parameters: fields of ``PhoenixSettings``.

    Raises:
        ConfigurationError: a parameter is wrong.
    """

    def __init__(self, open_outbox: OpenOutbox, content: bool = False, **parameters: Any) -> None:
        settings = PhoenixSettings(**parameters)
        url = settings.url or os.environ.get("PHOENIX_BASE_URL") or _URL
        self._api_key = settings.api_key or os.environ.get("PHOENIX_API_KEY")
        self._content = content
        destination = Destination(name="phoenix", url=f"{url.rstrip('/')}{_PATH}", request=self._request, most=_MOST)
        self._outbox = open_outbox(destination)

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Put one message per score into the outbox."""
        for score, identity in exported_scores(unit, scores):
            result = {"score": score.number, "label": score.exported_label, "explanation": explanation_of(score)}
            version = score.evaluator_version or score.version
            self._put(identity, unit.key, score_name(score), annotator_kind(score), result, version)

    def label(self, label: Annotation) -> None:
        """Put the message of a label into the outbox; a label without a known unit gets none."""
        if label.unit is not None:
            identity, kind = message_id(label.id, label.revision), semconv.ANNOTATOR_HUMAN
            result = {"score": label.quality, "label": label.text, "explanation": label.comment}
            self._put(identity, label.unit, label.name, kind, result, label.annotator)

    def shutdown(self) -> None:
        """Do nothing, because the scorer closes the outbox."""

    def _put(
        self, identity: str, unit: UnitKey, name: str, kind: str, result: Mapping[str, Any], identifier: str | None
    ) -> None:
        annotation = {
            "span_id": f"{unit.span_id:016x}",
            "name": name,
            "annotator_kind": kind,
            "result": result if self._content else {**result, "explanation": None},
            "identifier": identifier,
        }
        self._outbox.put(Message(identity, json_bytes(annotation)))

    def _request(self, messages: Sequence[Message]) -> HttpRequest:
        body = b'{"data":[' + b",".join(message.body for message in messages) + b"]}"
        key = {} if self._api_key is None else {"authorization": f"Bearer {self._api_key}"}
        return HttpRequest(body, {**JSON_HEADERS, **key})
