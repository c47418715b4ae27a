"""The bodies of the sink ``webhook``: an event in the documented form, and the same event for Slack and for Microsoft Teams.

``docs/how-to/send-messages.md`` documents the events. A change of their form is a new ``VERSION``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from spanscore.config.sinks import trace_link
from spanscore.core.job import Job
from spanscore.core.printable import format_count
from spanscore.core.sample import MultiTurnSample
from spanscore.core.score import Score
from spanscore.outputs.collected_cases import case_sample
from spanscore.outputs.score_spans import explanation_of

VERSION: Final = 1
UNIT_EVENT: Final = "unit.matched"
SUMMARY_EVENT: Final = "units.summarized"
EXCERPT_CHARS: Final = 500
"""Most characters of a text in a message."""
_PRECISION: Final = 6

Event = Mapping[str, Any]


def unit_event(
    job: Job, scores: Sequence[Score], matched: Sequence[str], *, at_s: float, url_template: str | None, content: bool
) -> Event:
    """Return the event of a unit that met a condition.

    Args:
        job: the unit with its redacted samples.
        scores: scores of the unit, one per metric.
        matched: the conditions that the unit met, as texts.
        at_s: time of the event, Unix seconds.
        url_template: address of a trace; None = no link.
        content: whether texts that quote the unit may be sent.
    """
    trace_id, span_id = f"{job.unit.key.trace_id:032x}", f"{job.unit.key.span_id:016x}"
    session = job.unit.session
    data = {
        "trace_id": trace_id,
        "span_id": span_id,
        "url": None if url_template is None else trace_link(url_template, trace_id, span_id),
        "turns": None if session is None else session.turns,
        "matched": [*matched],
        "scores": [_score(score, content=content) for score in scores],
        **(_excerpts(job) if content else {}),
    }
    return _event(UNIT_EVENT, at_s, data)


def summary_event(units: int, metrics: Mapping[str, int], *, at_s: float) -> Event:
    """Return the event about the further units of an hour, with metric → number of units that met a condition on it."""
    return _event(SUMMARY_EVENT, at_s, {"units": units, "metrics": dict(metrics)})


def _event(kind: str, at_s: float, data: Mapping[str, Any]) -> Event:
    at = datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"version": VERSION, "type": kind, "timestamp": at, "data": _present(data)}


def _score(score: Score, *, content: bool) -> Mapping[str, Any]:
    value = score.category or (None if score.number is None else round(score.number, _PRECISION))
    probability = None if score.probability is None else round(float(score.probability), _PRECISION)
    return _present(
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
        return {"conversation": sample.pretty()[-EXCERPT_CHARS:]}
    return {"question": _cut(sample.user_input), "answer": _cut(sample.response)}


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= EXCERPT_CHARS else f"{text[: EXCERPT_CHARS - 1]}…"


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


# --- forms ----------------------------------------------------------------------------------------------------------


def _title(event: Event) -> str:
    data = event["data"]
    if event["type"] == UNIT_EVENT:
        return f"spanscore: {', '.join(data['matched'])}"
    return f"spanscore: {format_count(data['units'], 'further unit')} met a condition in the last hour"


def _lines(event: Event) -> Iterator[str]:
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


def _slack(event: Event) -> Event:
    """Return the message of an incoming webhook of Slack."""
    url = event["data"].get("url")
    lines = [f"*{_escape(_title(event))}*", *map(_escape, _lines(event))]
    text = "\n".join(lines)[:_SLACK_CHARS]
    sections = [text] if url is None else [text, f"<{_escape(url)}|Open the trace>"]
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": section}} for section in sections]
    return {"text": _escape(_title(event)), "blocks": blocks}


def _escape(text: str) -> str:
    """Return a text whose characters Slack does not read as markup of links and mentions."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _teams(event: Event) -> Event:
    """Return the message of a workflow of Microsoft Teams: an Adaptive Card."""
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


BODIES: Final[Mapping[str, Callable[[Event], Event]]] = {"json": lambda event: event, "slack": _slack, "teams": _teams}
"""``format`` → the function that returns the body of an event."""
