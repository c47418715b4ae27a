"""The sections ``outputs``, the destinations of scores with the parameters of built-in sinks, and ``limits`` of the work."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AfterValidator, WithJsonSchema

from spanscore.config.collect import CaseCondition, Conditions, condition_of
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
    WebAddress,
    is_web_address,
)
from spanscore.core.plugins import entries

# --- parameters of the built-in sinks that send HTTP requests ----------------------------------------------------------

_SECRET_PREFIX: Final = "whsec_"
_SECRET_BYTES: Final = (24, 64)
"""Least and most bytes of a secret, by the Standard Webhooks specification 1.0."""


def signing_key(secret: str) -> bytes:
    """Return the key of a Standard Webhooks secret: ``whsec_`` and 24 to 64 bytes in base64.

    Raises:
        ValueError: the text is no such secret. The message does not quote it.
    """
    least, most = _SECRET_BYTES
    try:
        key = b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith(_SECRET_PREFIX) or not least <= len(key) <= most:
        raise ValueError(
            f"is no secret of the Standard Webhooks; write {_SECRET_PREFIX} and {least} to {most} random bytes in base64"
        )
    return key


def _check_secret(secret: str) -> str:
    signing_key(secret)
    return secret


def trace_link(template: str, trace_id: str, span_id: str) -> str:
    """Return the address of a trace, made from ``url_template``."""
    return template.replace("{trace_id}", trace_id).replace("{span_id}", span_id)


def _check_template(template: str) -> str:
    link = trace_link(template, "0", "0")
    if not is_web_address(link) or "{trace_id}" not in template or "{" in link:
        raise ValueError(
            f"{template!r} is no address of a trace; write for example https://jaeger.example/trace/{{trace_id}}. "
            "The placeholders are {trace_id} and {span_id}"
        )
    return template


def _check_header_text(text: str) -> str:
    if not (text and text.isascii() and text.isprintable()):
        raise ValueError("has characters that a header cannot carry; a key is printable ASCII on one line")
    return text


Key = Annotated[str, AfterValidator(_check_header_text)]
"""A key that is sent in a header."""


class HttpSinkSettings(SettingsPart):
    """The parameters that all these sinks share.

    Attributes:
        content: whether texts that quote prompts and answers may be sent; None = as ``capture.content``.
    """

    content: bool | None = None


class WebhookSettings(HttpSinkSettings):
    """Sends a message for each unit that meets a condition, by an HTTP POST.

    Attributes:
        url: address of the receiver. It is often a secret: write ``${NAME}``. No message of spanscore shows its path.
        when: conditions, as in ``collect.when``: ``faithfulness<0.5``, ``harmless=fail`` or ``intent=refund``. One match is
            enough. A unit gives one message, when its last score is known.
        per_hour: highest number of such messages in an hour, for each process. Further units of the hour are counted, and one
            summary at its end has their number.
        format: form of the body. ``json`` is the documented form; ``slack`` is for an incoming webhook of Slack, and ``teams``
            for a workflow of Microsoft Teams.
        secret: secret for the signature of each message, by the Standard Webhooks specification: ``whsec_`` and 24 to 64
            random bytes in base64. Write ``${NAME}``. None = messages have no signature.
        url_template: address of a trace, for the link in a message, with the placeholders ``{trace_id}`` and ``{span_id}``.
            None = no link.
        content: whether a message has an excerpt of question and answer, and the explanations of scores, as the redactor
            returned them; None = as ``capture.content``.
    """

    section: ClassVar[str] = "webhook"
    url: WebAddress
    when: Conditions
    per_hour: Count = 20
    format: Literal["json", "slack", "teams"] = "json"
    secret: Annotated[str, AfterValidator(_check_secret)] | None = None
    url_template: Annotated[str, AfterValidator(_check_template), WithJsonSchema({"type": "string"})] | None = None

    @property
    def conditions(self) -> tuple[CaseCondition, ...]:
        """The parsed conditions."""
        return tuple(condition_of(text) for text in self.when)


class PhoenixSettings(HttpSinkSettings):
    """Sends scores and human labels to Phoenix, as annotations of the scored spans.

    Attributes:
        url: base address of Phoenix; None = the environment variable ``PHOENIX_BASE_URL``, otherwise
            ``http://localhost:6006``.
        api_key: API key of Phoenix; write ``${NAME}``. None = the environment variable ``PHOENIX_API_KEY``, otherwise no key.
        content: whether the explanations of scores and the comments of labels are sent; None = as ``capture.content``.
    """

    section: ClassVar[str] = "phoenix"
    url: WebAddress | None = None
    api_key: Key | None = None


class LangfuseSettings(HttpSinkSettings):
    """Sends scores and human labels to Langfuse, as scores of the traces with the same ids.

    Attributes:
        url: base address of Langfuse; None = the environment variable ``LANGFUSE_BASE_URL``, or ``LANGFUSE_HOST``, otherwise
            ``https://cloud.langfuse.com``.
        public_key: public key of the project; None = the environment variable ``LANGFUSE_PUBLIC_KEY``.
        secret_key: secret key of the project; write ``${NAME}``. None = the environment variable ``LANGFUSE_SECRET_KEY``.
        content: whether the explanations of scores and the comments of labels are sent; None = as ``capture.content``.
    """

    section: ClassVar[str] = "langfuse"
    url: WebAddress | None = None
    public_key: Key | None = None
    secret_key: Key | None = None


SINK_SETTINGS: Final[Mapping[str, type[HttpSinkSettings]]] = {
    "webhook": WebhookSettings,
    "phoenix": PhoenixSettings,
    "langfuse": LangfuseSettings,
}
"""Name of a built-in sink → its parameters."""


# --- sections --------------------------------------------------------------------------------------------------------

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
