"""Sections of where scores land and of the limits: ``outputs`` and ``limits``."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator

from spanscore.config.kinds import (
    AnyPath,
    Count,
    Items,
    PositiveSeconds,
    QueuePart,
    Seconds,
    SettingsPart,
    SinkPart,
    Size,
    TaskCount,
)
from spanscore.core.plugins import entries

__all__ = ["Limits", "Outputs"]

PLACES: Final = ("span", "evaluation_span", "event", "instruments")
"""Where scores can land; each is a switch of ``outputs``."""


def _check_sinks(sinks: tuple[SinkPart, ...]) -> tuple[SinkPart, ...]:
    for name, _ in entries(sink for sink in sinks if isinstance(sink, str | dict)):
        if name in PLACES:
            raise ValueError(f"names {name!r}, which is a switch: outputs.{name} says whether scores land there")
    return sinks


class Outputs(SettingsPart):
    """Where scores land, and how long the spans of a unit wait for them.

    Attributes:
        span: on the unit's own span, as attributes.
        evaluation_span: on a span per score, below the unit's and linked to it; late scores too.
        event: as a log event ``gen_ai.evaluation.result``.
        instruments: in counters, gauges and histograms; without them there are no alerts.
        hold: how long a unit's spans wait for their scores after its end; None = 10 s for a trace's root, else 4 s.
        sinks: sinks of your own, beside these; called on spanscore's span thread. Each is a ``Sink``, its name
            (``"my_pkg:MySink"``), or the name with parameters (``{"my_pkg:MySink": {"path": "scores.jsonl"}}``). A sink with a
            parameter ``content`` is given whether explanations, which quote prompts and answers, may leave.
        spans_to: a file that gets the spans of scored applications with their scores, as OTLP-JSON lines, as well as the
            tracer provider: ``spanscore report``, ``compare``, ``preview`` and ``collect`` read it. It holds prompts and
            answers only with ``capture.content``; its owner alone may read it. At 50 MB it becomes ``<name>.1``, in the place
            of the one before. A span that cannot be written is counted in ``status()``. None = no file.
    """

    section: ClassVar[str] = "outputs"
    span: bool = True
    evaluation_span: bool = True
    event: bool = True
    instruments: bool = True
    hold: Seconds | None = None
    sinks: Annotated[Items[SinkPart], AfterValidator(_check_sinks)] = ()
    spans_to: AnyPath | None = None

    @property
    def places(self) -> tuple[str, ...]:
        """The places where scores land."""
        return tuple(place for place in PLACES if getattr(self, place))


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
    job_queue: QueuePart = "memory"
