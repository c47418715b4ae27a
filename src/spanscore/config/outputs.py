"""The sections ``outputs``, the destinations of scores, and ``limits``, the sizes and times of the work."""

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
from spanscore.config.sinks import SINK_SETTINGS
from spanscore.core.plugins import entries

PLACES: Final = ("span", "evaluation_span", "event", "instruments")
"""Destinations of scores; each is a switch of ``outputs``."""


def _check_sinks(sinks: tuple[SinkPart, ...]) -> tuple[SinkPart, ...]:
    for name, parameters in entries(sink for sink in sinks if isinstance(sink, str | dict)):
        if name in PLACES:
            raise ValueError(f"names {name!r}, which is a switch: write outputs.{name}: true or false")
        if name in SINK_SETTINGS:
            SINK_SETTINGS[name](**parameters)  # its error names the parameter
    return sinks


class Outputs(SettingsPart):
    """The destinations of scores, and the time for which a unit's spans wait for its scores.

    Attributes:
        span: whether scores are attributes of the unit's own span.
        evaluation_span: whether each score, even a late score, is a span below the unit's span and linked to it.
        event: whether each score is a log event ``gen_ai.evaluation.result``.
        instruments: whether scores are in counters, gauges and histograms; without them there are no alerts.
        hold: time for which a unit's spans wait for its scores after its end; None = 10 s for a trace's root, otherwise 4 s.
        sinks: further destinations: ``webhook``, ``phoenix``, ``langfuse``, or sinks of your own, called on spanscore's span
            thread. Each is a name (``"my_pkg:MySink"`` is your own), the name with parameters
            (``{"my_pkg:MySink": {"path": "scores.jsonl"}}``), or a ``Sink``. If a sink has a parameter ``content``, it
            receives true or false: whether explanations, which quote prompts and answers, may be exported.
        spans_to: path of a file that gets the spans of scored applications with their scores, as OTLP-JSON lines, in addition
            to the tracer provider. ``spanscore report``, ``compare``, ``preview`` and ``collect`` read the file, which has
            prompts and answers only with ``capture.content``; only its owner may read it. At 50 MB the file is renamed to
            ``<name>.1``, which replaces the previous one. Spans that cannot be written are counted in ``status()``. None =
            no file.
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
        """The destinations that are switched on."""
        return tuple(place for place in PLACES if getattr(self, place))


class Limits(SettingsPart):
    """Limits of time, memory and concurrency.

    Attributes:
        timeout: working time of one metric on one sample. The time in which all its open questions wait does not count.
            With 0, a metric that awaits an answer has the outcome ``timeout``.
        hook_timeout: time for one call of ``redactor``, ``sample_filter``, a function of ``Extract`` or a sample extractor. If
            a call does not return, its unit is ``redaction_error``, ``metric_error`` or ``no_sample``; other units do not wait.
            While four calls of one function hang, its further calls fail immediately. With ``capture.content``, spans wait for
            the redactor. A hanging redactor delays them by this time, at most once a minute; until it returns, they are
            exported without content.
        workers: number of units whose metrics compute at the same time; also the number of concurrent scores of a metric that
            calls its own service.
        queue_size: number of units that wait or are being scored; further units are ``queue_full``. If the metrics use
            several judges, the units of one judge occupy at most three quarters of these places.
        queue_bytes: approximate size of the content of these units; further units are ``queue_full``.
        image_bytes: size of the decoded images of a unit, together. Further images are left out: the judge gets
            ``[image left out: above limits.image_bytes]``, and ``status()`` counts them.
        event_queue_size: number of waiting events. Above it, new units are ``event_queue_full``. Above four times this number,
            events are lost and units are ``incomplete``.
        job_queue: the queue in which units wait for their scores: a ``Queue``, its name, or the name with parameters. Each
            scorer has its own. ``memory`` is the built-in queue.
    """

    section: ClassVar[str] = "limits"
    timeout: Seconds = 180.0
    hook_timeout: PositiveSeconds = 1.0
    workers: TaskCount = 32
    queue_size: Count = 1_000
    queue_bytes: Size = 256_000_000
    image_bytes: Size = 5_000_000
    event_queue_size: Count = 10_000
    job_queue: QueuePart = "memory"
