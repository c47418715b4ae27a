"""Outcome: how each eligible (unit × metric) ended."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Outcome"]


class Outcome(StrEnum):
    """How an eligible (unit × metric) ended: exactly one of these.

    A mean is about the units that can have a score, and some cannot, by what they are: there is nothing to score
    (``no_sample``, ``missing_field``) or to say (``not_applicable``, ``no_value``), or the user left them out (``filtered``).
    Others stand for those that dice have left, ours (``not_sampled``) or the head sampler's (``trace_not_sampled``); and some
    are counted by another process (``delegated``). Every other outcome but ``scored`` is a loss: the mean should hold the unit,
    and does not.

    Attributes:
        SCORED: a value came out.
        NOT_APPLICABLE: the metric's condition (``applies_when``) does not hold.
        NO_VALUE: the metric has no value on this sample; the reason names why.
        NOT_SAMPLED: the dice left it; those that they took stand for it.
        FILTERED: ``sample_filter=`` returned False, ``units.kinds`` leaves the unit out, or ``SPANSCORE_DISABLED`` is set.
        TRACE_NOT_SAMPLED: the head sampler dropped the trace: there is no span that a score could be on.
        DELEGATED: another process has it, or a file from which one takes it, and counts there how it ends.
        NO_SAMPLE: no question and answer were found, or several and none was told; the reason names the keys that were there.
        MISSING_FIELD: a field that the metric needs is not there; the reason names it.
        INCOMPLETE: events of the unit were lost, it never ended, it is too large, or its root came over the wire after others
            of its spans had been given up (reason ``late_root``).
        EXPIRED: it waited in the spool for longer than ``spool.max_age``.
        EVENT_QUEUE_FULL: the event queue was full when it began.
        QUEUE_FULL: the job queue was full, in units or in bytes, or the part of it that metrics which ask one judge may fill.
        JUDGE_UNAVAILABLE: the judge could not be asked within ``judge.queue_timeout``; ``error.type`` is ``rate_limit`` (its
            provider's limits), ``breaker_open`` (it is down) or ``quota`` (its account has no money).
        BUDGET_EXHAUSTED: the judge was not asked: what it may be paid in the window is spent.
        TIMEOUT: the metric or its judge took too long.
        JUDGE_ERROR: the judge gave no usable answer; ``error.type`` says of which kind.
        METRIC_ERROR: the metric, or a function of the user's, raised or hung, or the metric gave nothing usable;
            ``error.type`` is the class of what it raised, ``no_number`` (its value is no number), ``out_of_range`` (its value
            is outside its range), ``no_score`` (it answered something else than a ``Score``), ``unknown_metric`` (this
            process has no such metric) or ``metric_error`` (a function of the user's failed).
        REDACTION_ERROR: the redactor raised, gave no text or hung: nothing is judged, and no content is exported.
        SHUTDOWN: the scorer or the process ended first.
    """

    SCORED = "scored"
    NOT_APPLICABLE = "not_applicable"
    NO_VALUE = "no_value"
    NOT_SAMPLED = "not_sampled"
    FILTERED = "filtered"
    TRACE_NOT_SAMPLED = "trace_not_sampled"
    DELEGATED = "delegated"
    NO_SAMPLE = "no_sample"
    MISSING_FIELD = "missing_field"
    INCOMPLETE = "incomplete"
    EXPIRED = "expired"
    EVENT_QUEUE_FULL = "event_queue_full"
    QUEUE_FULL = "queue_full"
    JUDGE_UNAVAILABLE = "judge_unavailable"
    BUDGET_EXHAUSTED = "budget_exhausted"
    TIMEOUT = "timeout"
    JUDGE_ERROR = "judge_error"
    METRIC_ERROR = "metric_error"
    REDACTION_ERROR = "redaction_error"
    SHUTDOWN = "shutdown"

    @property
    def failed(self) -> bool:
        """Whether this is the failure of an evaluation that was begun: ``error.type`` is set, never a value."""
        return self in _FAILED

    @property
    def missing(self) -> bool:
        """Whether the mean lacks this unit: its evaluation failed, or never began although the unit was to be scored."""
        return self in _LOST

    @property
    def not_attempted(self) -> bool:
        """Whether no score was asked for here: by the dice, a filter, as the trace is not exported, or as it is another's."""
        return self in _TURNED_AWAY


_FAILED = frozenset(
    {
        Outcome.TIMEOUT,
        Outcome.JUDGE_ERROR,
        Outcome.METRIC_ERROR,
        Outcome.REDACTION_ERROR,
        Outcome.JUDGE_UNAVAILABLE,
        Outcome.BUDGET_EXHAUSTED,
    }
)
_LOST = _FAILED | {
    Outcome.INCOMPLETE,
    Outcome.EXPIRED,
    Outcome.EVENT_QUEUE_FULL,
    Outcome.QUEUE_FULL,
    Outcome.SHUTDOWN,
}


_TURNED_AWAY = frozenset({Outcome.NOT_SAMPLED, Outcome.FILTERED, Outcome.TRACE_NOT_SAMPLED, Outcome.DELEGATED})
