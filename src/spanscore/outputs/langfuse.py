"""The sink ``langfuse``: scores and human labels become scores in Langfuse, on the trace and the observation of the unit.

Langfuse has one score per id. A repeated request, and a score that supersedes another, replace it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from urllib3.util import make_headers

from spanscore.config.sinks import LangfuseSettings
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
)
from spanscore.outputs.score_spans import explanation_of

_URL: Final = "https://cloud.langfuse.com"
_PATH: Final = "/api/public/scores"


def langfuse_keys(settings: LangfuseSettings) -> tuple[str, str]:
    """Return the public and the secret key of a project, from the parameters or the environment.

    Raises:
        NotReadyError: a key is missing; the message names the parameter and the variable.
    """
    public_key = settings.public_key or os.environ.get("LANGFUSE_PUBLIC_KEY")
    secret_key = settings.secret_key or os.environ.get("LANGFUSE_SECRET_KEY")
    for name, key in (("public_key", public_key), ("secret_key", secret_key)):
        if not key:
            raise NotReadyError(
                f"outputs.sinks: langfuse has no {name}; set the variable LANGFUSE_{name.upper()} of the environment"
            )
    return public_key or "", secret_key or ""


class LangfuseSink:
    """Sends a score for each score with a value, and for each human label of a known unit.

    The ids of trace and observation are those of the unit's span, as Langfuse receives them over OTLP. Scores of units of
    unsampled traces are left out, because Langfuse has no span of them. So are provisional scores of conversations, because
    Langfuse's averages would count a conversation twice. Scores outside sampled traffic have a name with their source, such
    as ``faithfulness.shadow``.

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
        self._headers = {**JSON_HEADERS, **make_headers(basic_auth=":".join(langfuse_keys(settings)))}
        self._content = content
        destination = Destination(name="langfuse", url=f"{url.rstrip('/')}{_PATH}", request=self._request)
        self._outbox = open_outbox(destination)

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Put one message per score into the outbox."""
        for score, identity in exported_scores(unit, scores):
            facts = {
                "label": score.label,
                "evaluator_version": score.evaluator_version or None,
                "probability": score.probability,
            }
            is_verdict = score.kind == "binary" and score.number in (0, 1)
            value = bool(score.number) if is_verdict else score.category or score.number
            latest = id_of(replace(score, revision=0), unit)
            self._put(identity, latest, unit.key, score_name(score), value, explanation_of(score), facts)

    def label(self, label: Annotation) -> None:
        """Put the message of a label into the outbox; a label without a known unit gets none."""
        if label.unit is not None:
            identity = message_id(label.id, label.revision)
            latest = message_id(*label.unit, label.name, label.annotator)
            facts = {"annotator": label.annotator, "quality": label.quality}
            self._put(identity, latest, label.unit, label.name, label.value, label.comment, facts)

    def shutdown(self) -> None:
        """Do nothing, because the scorer closes the outbox."""

    def _put(
        self,
        identity: str,
        latest: str,
        unit: UnitKey,
        name: str,
        value: bool | float | str | None,
        comment: str | None,
        facts: Mapping[str, Any],
    ) -> None:
        """Put a message into the outbox. ``latest`` is the id in Langfuse, without the revision, so that the last one holds."""
        kind = {bool: "BOOLEAN", str: "CATEGORICAL"}.get(type(value), "NUMERIC")
        score = {
            "id": latest,
            "traceId": f"{unit.trace_id:032x}",
            "observationId": f"{unit.span_id:016x}",
            "name": name,
            "value": int(value) if isinstance(value, bool) else value,
            "dataType": kind,
            "comment": comment if self._content else None,
            "metadata": {key: fact for key, fact in facts.items() if fact is not None},
        }
        self._outbox.put(Message(identity, json_bytes(score)))

    def _request(self, messages: Sequence[Message]) -> HttpRequest:
        return HttpRequest(messages[0].body, self._headers)
