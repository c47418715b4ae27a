"""The parameters of the built-in sinks that send HTTP requests: ``webhook``, ``phoenix`` and ``langfuse``."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AfterValidator, WithJsonSchema

from spanscore.config.collect import CaseCondition, Conditions, condition_of
from spanscore.config.kinds import Count, SettingsPart, WebAddress, is_web_address

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
