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
    "capture.steps": "capture.all_runs",
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
    "sampling.feedback.within": "sampling.feedback.max_age",
    "sampling.upstream_probability": "sampling.head_sampling_rate",
    "sessions.idle": "sessions.idle_timeout",
    "units.foreign_scores": "units.external_scores",
    "units.quiet": "units.idle_timeout",
}
"""Key of a configuration file → its present name; ``*`` stands for the name of a metric."""

NEW_OPTIONS: Final[Mapping[str, str]] = {
    "attach": "outputs",
    "canary": "judge_check",
    "elsewhere": "remote_scoring",
    "hooks_timeout": "hook_timeout",
    "inbox_bytes": "event_queue_bytes",
    "inbox_size": "event_queue_size",
    "keep": "sample_filter",
    "labels": "feedback_scales",
    "segments": "dimensions",
    "share": "replica_share",
    "steps": "all_runs",
    "upstream_probability": "head_sampling_rate",
}
"""Option of ``OnlineScorer`` → its present name."""


def renamed_key(place: Sequence[int | str]) -> str | None:
    """Return the present name of a key that was called otherwise; None if it was not."""
    parts = [str(part) for part in place if not isinstance(part, int)]
    for path in (parts, [*parts[:1], "*", *parts[2:]]):
        if new := NEW_KEYS.get(".".join(path)):
            return ".".join(part if part != "*" else parts[1] for part in new.split("."))
    return None
