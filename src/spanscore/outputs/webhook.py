"""The sink ``webhook`` sends one message for each unit that meets a condition. Units above an hourly limit share a summary.

A message is made after the last score of its unit, and has the scores of all metrics of the unit.
"""

from __future__ import annotations

import hmac
import html
import re
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from math import inf
from time import monotonic, time
from typing import Any, Final, TypeAlias
from uuid import uuid4

from spanscore.config.collect import CaseCondition
from spanscore.config.outputs import WebhookSettings, signing_key, trace_link
from spanscore.core import loop
from spanscore.core.job import Job
from spanscore.core.printable import format_count, shorten
from spanscore.core.sample import MultiTurnSample
from spanscore.core.score import Score
from spanscore.core.span import Unit
from spanscore.core.threads import call_in_child
from spanscore.outputs.collected_cases import case_sample
from spanscore.outputs.http_sink import (
    JSON_HEADERS,
    Destination,
    HttpRequest,
    Message,
    OpenOutbox,
    json_bytes,
    message_id,
    without_none,
)
from spanscore.outputs.score_spans import explanation_of

_HOUR_S: Final = 3_600.0


@dataclass(slots=True)
class _Hour:
    """The counts of an hour."""

    began_s: float = -inf  # time of the first message, by the monotonic clock
    messages: int = 0  # units with a message of their own
    summarized: int = 0  # units above the limit, for the summary
    metrics: Counter[str] = field(default_factory=Counter)  # metric → summarized units that met a condition on it


class WebhookSink:
    """Sends messages about units. Thread-safe; its methods do not block.

    Args:
        content: whether texts that quote prompts and answers may be sent.
        later: schedules a function after a number of seconds.
        clock: monotonic clock, in s.
        wall_s: wall clock, Unix seconds.
        parameters: fields of ``WebhookSettings``.

    Attributes:
        conditions: the parsed conditions, in the order of ``when``, so that a scorer can check their metrics.

    Raises:
        ConfigurationError: a parameter is wrong.
    """

    def __init__(
        self,
        open_outbox: OpenOutbox,
        content: bool = False,
        *,
        later: Callable[[float, Callable[[], Any]], None] = loop.later,
        clock: Callable[[], float] = monotonic,
        wall_s: Callable[[], float] = time,
        **parameters: Any,
    ) -> None:
        settings = WebhookSettings(**parameters)
        self.conditions: Sequence[CaseCondition] = settings.conditions
        self._settings = settings
        self._content = content
        self._later = later
        self._clock = clock
        self._wall_s = wall_s
        self._key = None if settings.secret is None else signing_key(settings.secret)
        self._reset()
        call_in_child(self, WebhookSink._reset)
        destination = Destination(name="webhook", url=settings.url, request=self._request, remark=self._remark)
        self._outbox = open_outbox(destination)

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Do nothing, because a message needs all scores of a unit: ``emit_job`` gets them."""

    def emit_job(self, job: Job, scores: Sequence[Score]) -> None:
        """Send the message of a unit that meets a condition, or count the unit for the summary."""
        by_name = {score.metric: score for score in scores if not score.sent}
        conditions = zip(self._settings.when, self.conditions, strict=True)
        matches = {text: condition.metric for text, condition in conditions if condition.holds(by_name)}
        if not matches or job.unit.is_provisional or not self._count_unit({*matches.values()}):
            return
        trace_id, span_id = f"{job.unit.key.trace_id:032x}", f"{job.unit.key.span_id:016x}"
        url_template, session = self._settings.url_template, job.unit.session
        data = {
            "trace_id": trace_id,
            "span_id": span_id,
            "url": None if url_template is None else trace_link(url_template, trace_id, span_id),
            "turns": None if session is None else session.turns,
            "matched": [*matches],
            "scores": [_score(score, content=self._content) for score in by_name.values()],
            **(_excerpts(job) if self._content else {}),
        }
        self._send(message_id(*job.unit.ledger_key, job.unit.revision), _UNIT, data)

    def shutdown(self) -> None:
        """Send the summary of the present hour, if units were counted for it. The scorer closes the outbox."""
        self._end_hour(self._hour.began_s)

    def _reset(self) -> None:
        """Set all counts to 0: at the start, and in a forked child, because the parent sends the summary of its hour."""
        self._lock = threading.Lock()
        self._hour = _Hour()
        self._summarized = 0

    def _count_unit(self, metrics: Collection[str]) -> bool:
        """Count a unit that met conditions on ``metrics``. Returns whether it gets a message; if not, it is in the summary."""
        now_s = self._clock()
        if now_s >= self._hour.began_s + _HOUR_S:
            self._end_hour(self._hour.began_s)
            self._later(_HOUR_S, partial(self._end_hour, now_s))
            self._hour = _Hour(now_s)
        with self._lock:
            hour = self._hour
            if hour.messages < self._settings.per_hour:
                hour.messages += 1
                return True
            hour.summarized += 1
            hour.metrics.update(metrics)
            self._summarized += 1
            return False

    def _end_hour(self, began_s: float) -> None:
        """Send the summary of the hour that began at ``began_s``, unless it was sent or has no units."""
        with self._lock:
            hour = self._hour
            if hour.began_s != began_s or not hour.summarized:
                return
            self._hour = _Hour(began_s, hour.messages)  # later units of this hour stay above the limit
        self._send(uuid4().hex, _SUMMARY, {"units": hour.summarized, "metrics": dict(hour.metrics)})

    def _send(self, identity: str, kind: str, data: Mapping[str, Any]) -> None:
        at = datetime.fromtimestamp(self._wall_s(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        event = {"version": _VERSION, "type": kind, "timestamp": at, "data": without_none(data)}
        self._outbox.put(Message(identity, json_bytes(_BODIES[self._settings.format](event))))

    def _request(self, messages: Sequence[Message]) -> HttpRequest:
        (message,) = messages
        sent_at = str(int(self._wall_s()))
        headers = {**JSON_HEADERS, "webhook-id": message.id, "webhook-timestamp": sent_at}
        if self._key is not None:
            text = f"{message.id}.{sent_at}.".encode() + message.body
            headers["webhook-signature"] = f"v1,{b64encode(hmac.digest(self._key, text, sha256)).decode()}"
        return HttpRequest(message.body, headers)

    def _remark(self) -> str:
        return f"{format_count(self._summarized, 'unit')} in summaries (per_hour)" if self._summarized else ""


# The events below are documented in ``docs/how-to/send-messages.md``. A key that is removed or changes its meaning
# needs a new ``_VERSION``; an added key does not.

_VERSION: Final = 1
_UNIT: Final = "unit.matched"
_SUMMARY: Final = "units.summarized"
_EXCERPT_CHARS: Final = 500
"""Most characters of a text in a message."""
_PRECISION: Final = 6

_Event: TypeAlias = Mapping[str, Any]


def _score(score: Score, *, content: bool) -> Mapping[str, Any]:
    value = score.category or (None if score.number is None else round(score.number, _PRECISION))
    probability = None if score.probability is None else round(float(score.probability), _PRECISION)
    return without_none(
        {
            "metric": score.metric,
            "outcome": str(score.outcome),
            "value": value,
            "label": score.label,
            "evaluator_version": score.evaluator_version or None,
            "probability": probability,
            "explanation": _cut(explanation_of(score)) if content else None,
        }
    )


def _excerpts(job: Job) -> Mapping[str, str | None]:
    """Return excerpts of the redacted sample: question and answer, or the end of the conversation."""
    sample = case_sample(job.samples, (), {})
    if sample is None:
        return {}
    if isinstance(sample, MultiTurnSample):
        return {"conversation": sample.pretty()[-_EXCERPT_CHARS:]}
    return {"question": _cut(sample.user_input), "answer": _cut(sample.response)}


def _cut(text: str | None) -> str | None:
    return text and shorten(text, _EXCERPT_CHARS)


def _title(event: _Event) -> str:
    data = event["data"]
    if event["type"] == _UNIT:
        return f"spanscore: {', '.join(data['matched'])}"
    return f"spanscore: {format_count(data['units'], 'further unit')} met a condition in the last hour"


def _lines(event: _Event) -> Iterator[str]:
    """Yield the lines below the title, as plain text."""
    data = event["data"]
    for score in data.get("scores", ()):
        label = f" ({score['label']})" if "label" in score else ""
        explanation = f": {score['explanation']}" if "explanation" in score else ""
        yield f"{score['metric']} {score.get('value', score['outcome'])}{label}{explanation}"
    for metric, units in data.get("metrics", {}).items():
        yield f"{metric}: {format_count(units, 'unit')}"
    for name in ("question", "answer", "conversation"):
        if name in data:
            yield f"{name}: {data[name]}"
    if "trace_id" in data:
        yield f"trace {data['trace_id']}"


_SLACK_CHARS: Final = 3_000
"""Most characters of a section's text in Slack."""
_escape = partial(html.escape, quote=False)
"""Escapes the characters that Slack reads as markup of links and mentions."""


def _slack(event: _Event) -> _Event:
    url = event["data"].get("url")
    lines = [f"*{_escape(_title(event))}*", *map(_escape, _lines(event))]
    text = re.sub(r"&\w*\Z", "", "\n".join(lines)[:_SLACK_CHARS])  # without a part of an escape
    sections = [text] if url is None else [text, f"<{_escape(url)}|Open the trace>"]
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": section}} for section in sections]
    return {"text": _escape(_title(event)), "blocks": blocks}


def _teams(event: _Event) -> _Event:
    url = event["data"].get("url")
    title = {"type": "TextBlock", "text": _title(event), "weight": "Bolder", "wrap": True}
    body = [title, *({"type": "TextBlock", "text": line, "wrap": True} for line in _lines(event))]
    actions = [] if url is None else [{"type": "Action.OpenUrl", "title": "Open the trace", "url": url}]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
        "actions": actions,
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


_BODIES: Final[Mapping[str, Callable[[_Event], _Event]]] = {
    "json": lambda event: event,
    "slack": _slack,  # an incoming webhook
    "teams": _teams,  # a workflow of Microsoft Teams: an Adaptive Card
}
"""``format`` → the function that returns the body of an event."""
