"""How much waits, works and takes at most."""

from __future__ import annotations

from typing import ClassVar

from spanscore.settings.kinds import Count, PositiveSeconds, QueuePart, Seconds, SettingsPart, Size, TaskCount

__all__ = ["Limits"]


class Limits(SettingsPart):
    """How much waits, works and takes at most.

    Attributes:
        timeout: time of work for one metric on one sample. It stands still while all its questions wait to be sent.
        hook_timeout: time for one call of ``redactor``, ``sample_filter``, a function of ``Extract`` or a sample extractor.
            A unit for which one does not return is ``redaction_error``, ``metric_error`` or ``no_sample``, and holds up no
            other; while four calls of one hang, those after them fail at once. With ``capture.content``, where spans wait for
            the redactor, one that hangs costs them its deadline, at most once a minute: until it returns they leave without
            any.
        workers: units at once of which something computes; and scores at once of a metric that awaits a service of its own.
        queue_size: units waiting or being scored; more are ``queue_full``. One judge among others holds three quarters at most.
        queue_bytes: approximate size of their content; more are ``queue_full`` too.
        event_queue_size: events waiting; past it new units are ``event_queue_full``; past four times it events are lost, units
            ``incomplete``.
        event_queue_bytes: approximate size of their content; past it as ``event_queue_size``.
        job_queue: where units wait for their scores: a ``Queue``, its name, or the name with parameters; of this scorer alone.
            ``memory`` is the built-in one.
    """

    section: ClassVar[str] = "limits"
    timeout: Seconds = 180.0
    hook_timeout: PositiveSeconds = 1.0
    workers: TaskCount = 32
    queue_size: Count = 1_000
    queue_bytes: Size = 256_000_000
    event_queue_size: Count = 10_000
    event_queue_bytes: Size = 64_000_000
    job_queue: QueuePart = "memory"
