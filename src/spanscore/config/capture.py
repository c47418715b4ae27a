"""The ``capture`` section: whether and how runs are recorded, and the places of question, answer and contexts in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import AfterValidator, WithJsonSchema

from spanscore.config.kinds import Items, SettingsPart
from spanscore.core.span import Unit

_SIDES: Final = ("input", "output")


def _check_place(value: Any) -> Any:
    if value is None or callable(value):
        return value
    if not isinstance(value, str) or value.partition(".")[0] not in _SIDES:
        raise ValueError(f"{value!r}: a key path begins with one of {', '.join(_SIDES)}")
    return value


if TYPE_CHECKING:
    Place: TypeAlias = str | Callable[[Unit], Any] | None
else:
    Place = Annotated[
        Any, AfterValidator(_check_place), WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "null"}]})
    ]
"""A key path (``"input.question"``, ``"output.docs"``, ``"output.messages.-1"``), or in Python a function of the unit."""


class Extract(SettingsPart):
    """The places of question, answer and contexts in a run, if they are not at the usual places.

    A given place replaces the search for its field.

    Attributes:
        user_input: place of the question, such as ``input.request``, or in Python a function of the unit; None = the usual
            places.
        response: place of the answer, such as ``output.reply``; None = the usual places.
        retrieved_contexts: place of the contexts, such as ``output.docs``: texts, documents (``page_content``, ``content`` or
            ``text``), or one text; None = the usual places.
        retrieval_tools: names of tools whose results are contexts. Each text that such a tool returns is one context.

    Example:
        >>> Extract(user_input="input.request.text", retrieved_contexts="output.passages").retrieval_tools
        ()
    """

    section: ClassVar[str] = "capture.extract"
    user_input: Place = None
    response: Place = None
    retrieved_contexts: Place = None
    retrieval_tools: Items[str] = ()


class Capture(SettingsPart):
    """Whether and how runs are recorded, and the places of question, answer and contexts in them.

    Attributes:
        enabled: whether runs are recorded. Set it to False if another instrumentation already traces the application:
            ``handler`` and ``install()`` then do nothing, and ``submit()`` still scores.
        content: whether prompts, answers and documents are exported. None = as the environment variable
            ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` sets it, by default no. Scoring needs no export.
        metadata: keys of a root run's metadata that are exported on its span, as ``spanscore.metadata.<key>``. Values are
            texts, numbers and booleans; texts are redacted. Readers of exported spans (``spanscore serve``, ``replay``) need
            them for rules on metadata and for dimensions. Spans of other instrumentations already have their metadata.
        metrics: whether tokens and durations of the application's model runs are emitted as histograms
            (``gen_ai.client.token.usage``, ``gen_ai.client.operation.duration``). Both measure runs, not scores, so ``outputs``
            does not switch them off; ``enabled: false`` does. The histograms are also off if another instrumentation emits
            them, or if a head sampler drops runs, which would be missing. The first run's start decides; ``status()`` shows
            the result.
        context: whether the span of a tool is OpenTelemetry's current span while the tool runs. Spans that the tool creates (a
            database, HTTP) then become its children. Attributes that the tool sets on the current span are lost.
        all_runs: whether prompts, parsers and lambdas also get spans.
        score_abandoned: whether the partial answer of a stream is scored if its reader stopped early. If not, the unit is
            ``no_sample``.
        score_failed: whether a failed run is scored if its model had answered. If not, the unit is ``no_sample``.
        images: whether samples have the images of prompts and tools (``keep``), or only markers (``drop``). None = ``keep``, or
            ``drop`` if a ``redactor`` is set, which reads texts only. Exported spans have the addresses of images, never their
            bytes.
        extract: the places of question, answer and contexts, if they are not at the usual places; None = the usual places.
    """

    section: ClassVar[str] = "capture"
    enabled: bool = True
    content: bool | None = None
    metadata: Items[str] = ()
    metrics: bool = True
    context: bool = False
    all_runs: bool = False
    score_abandoned: bool = False
    score_failed: bool = False
    images: Literal["keep", "drop"] | None = None
    extract: Extract | None = None
