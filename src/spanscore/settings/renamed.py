"""Names of release 0.2 → those of 0.3, by which a configuration that has an old one is told what to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["NEW_KEYS", "NEW_OPTIONS", "renamed_key"]

NEW_KEYS: Final[Mapping[str, str]] = {
    "alerts.*.series": "alerts.*.evaluator_version",
    "alerts.*.slack": "alerts.*.baseline_sd",
    "attach": "outputs",
    "canary": "judge_check",
    "canary.file": "judge_check.golden_set",
    "capture.response": "capture.extract.response",
    "capture.retrieved_contexts": "capture.extract.retrieved_contexts",
    "capture.steps": "capture.all_runs",
    "capture.user_input": "capture.extract.user_input",
    "dialects": "units.dialects",
    "elsewhere": "remote_scoring",
    "judge.attempts": "judge.max_attempts",
    "judge.max_wait": "judge.queue_timeout",
    "judge.share": "judge.replica_share",
    "kafka.max_pinned": "kafka.max_open_age",
    "kafka.revoke_grace": "kafka.revoke_timeout",
    "labels": "feedback_scales",
    "limits.hooks": "limits.hook_timeout",
    "limits.inbox": "limits.event_queue_size",
    "limits.inbox_bytes": "limits.event_queue_bytes",
    "limits.queue": "limits.queue_size",
    "monitoring.segments": "monitoring.dimensions",
    "queue": "limits.job_queue",
    "sampling.feedback.within": "sampling.feedback.max_age",
    "sampling.upstream_probability": "sampling.head_sampling_rate",
    "sessions.idle": "sessions.idle_timeout",
    "sinks": "outputs.sinks",
    "spans_to": "outputs.spans_to",
    "units.foreign_scores": "units.external_scores",
    "units.quiet": "units.idle_timeout",
}
"""Key of a configuration file → its present name; ``*`` stands for the name of a metric."""

_FIELDS: Final[Mapping[str, str]] = {
    "capture_content": "capture.content",
    "capture_context": "capture.context",
    "capture_metadata": "capture.metadata",
    "capture_metrics": "capture.metrics",
    "feedback_sampling": "sampling.feedback",
    "queue": "limits.job_queue",
    "sampling_key": "sampling.key",
    "session_metrics": "sessions.metrics",
    "trace_judges": "judge.trace",
}
_SINCE_0_2: Final[Mapping[str, str]] = {
    "attach": "outputs",
    "canary": "judge_check",
    "elsewhere": "remote_scoring",
    "hooks_timeout": "limits.hook_timeout",
    "inbox_bytes": "limits.event_queue_bytes",
    "inbox_size": "limits.event_queue_size",
    "keep": "sample_filter",
    "labels": "feedback_scales",
    "segments": "monitoring.dimensions",
    "share": "judge.replica_share",
    "steps": "capture.all_runs",
    "upstream_probability": "sampling.head_sampling_rate",
}
NEW_OPTIONS: Final[Mapping[str, str]] = {**_FIELDS, **_SINCE_0_2}
"""Argument of ``OnlineScorer`` in release 0.2 → its present name, or the field of a section that it is now.

Arguments that became a field of the same name are found in the sections."""


def renamed_key(place: Sequence[int | str]) -> str | None:
    """Return the present name of a key that was called otherwise; None if it was not."""
    parts = [str(part) for part in place if not isinstance(part, int)]
    for path in (parts, [*parts[:1], "*", *parts[2:]]):
        if new := NEW_KEYS.get(".".join(path)):
            return ".".join(part if part != "*" else parts[1] for part in new.split("."))
    return None
