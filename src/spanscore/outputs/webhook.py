"""The sink ``webhook``: one message for each unit that meets a condition, at most so many an hour, then a summary.

A message is made when the last score of a unit is known, and has the scores of all its metrics.
"""

from __future__ import annotations

import hmac
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from math import inf
from time import monotonic, time
from typing import Any, Final
from uuid import uuid4

from spanscore.config.collect import CaseCondition
from spanscore.config.sinks import WebhookSettings, signing_key
from spanscore.core import loop
from spanscore.core.job import Job
from spanscore.core.printable import format_count
from spanscore.core.score import Score
from spanscore.core.span import Unit
from spanscore.core.threads import call_in_child
from spanscore.outputs.http_sink import (
    JSON_HEADERS,
    Destination,
    HttpRequest,
    Message,
    OpenOutbox,
    json_bytes,
    message_id,
)
from spanscore.outputs.webhook_body import BODIES, summary_event, unit_event

_HOUR_S: Final = 3_600.0


@dataclass(slots=True)
class _Hour:
    """The units of an hour.

    Attributes:
        began_s: time of its first message, by the clock.
        messages: number of messages about one unit.
        others: number of units above the limit, which the summary has.
        metrics: metric → number of these units that met a condition on it.
    """

    began_s: float = -inf
    messages: int = 0
    others: int = 0
    metrics: Counter[str] = field(default_factory=Counter)


class WebhookSink:
    """Sends messages about units. Thread-safe; its methods do not block.

    Args:
        open_outbox: returns the outbox of a destination.
        content: whether texts that quote prompts and answers may be sent.
        later: schedules a function after a number of seconds.
        clock: monotonic clock, in s.
        wall_s: wall clock, Unix seconds.
        parameters: fields of ``WebhookSettings``.

    Raises:
        ConfigurationError: a parameter is wrong.

    Attributes:
        conditions: the parsed conditions.
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
        self._begin()
        call_in_child(self, WebhookSink._begin)
        destination = Destination(name="webhook", url=settings.url, request=self._request, remark=self._remark)
        self._outbox = open_outbox(destination)

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Do nothing, because a message needs all scores of a unit: ``emit_job`` gets them."""

    def emit_job(self, job: Job, scores: Sequence[Score]) -> None:
        """Send the message of a unit that meets a condition, or count the unit for the summary."""
        by_name = {score.metric: score for score in scores if not score.sent}
        conditions = zip(self._settings.when, self.conditions, strict=True)
        matches = {text: condition.metric for text, condition in conditions if condition.holds(by_name)}
        if not matches or job.unit.is_provisional or not self._is_within_limit({*matches.values()}):
            return
        event = unit_event(
            job,
            [*by_name.values()],
            [*matches],
            at_s=self._wall_s(),
            url_template=self._settings.url_template,
            content=self._content,
        )
        self._send(message_id(*job.unit.ledger_key, job.unit.revision), event)

    def shutdown(self) -> None:
        """Send the summary of the present hour, if units were counted for it. The scorer closes the outbox."""
        self._end_hour(self._hour.began_s)

    def _begin(self) -> None:
        """Begin without an hour, also in a forked child: the parent sends the summary of its own hour."""
        self._lock = threading.Lock()
        self._hour = _Hour()
        self._summarized = 0

    def _is_within_limit(self, metrics: Collection[str]) -> bool:
        """Count a unit in the present hour. Returns False if the unit is only in the summary."""
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
            hour.others += 1
            hour.metrics.update(metrics)
            self._summarized += 1
            return False

    def _end_hour(self, began_s: float) -> None:
        """Send the summary of the hour that began then, unless it was sent or has no unit."""
        with self._lock:
            hour = self._hour
            if hour.began_s != began_s or not hour.others:
                return
            self._hour = _Hour(began_s, hour.messages)
        self._send(uuid4().hex, summary_event(hour.others, hour.metrics, at_s=self._wall_s()))

    def _send(self, identity: str, event: Mapping[str, Any]) -> None:
        self._outbox.put(Message(identity, json_bytes(BODIES[self._settings.format](event))))

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
