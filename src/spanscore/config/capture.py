"""Whether and how runs are recorded, and where in them question, answer and contexts are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeAlias

from pydantic import AfterValidator, WithJsonSchema

from spanscore.config.kinds import Items, SettingsPart
from spanscore.core.span import Unit

__all__ = ["Capture", "Extract", "Place"]

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
    """Where question, answer and contexts are found, if the usual places do not have them.

    A place replaces the search for its field.

    Attributes:
        user_input: place of the question, such as ``input.request``, or in Python a function of the unit; None = the usual
            places.
        response: place of the answer, such as ``output.reply``; None = the usual places.
        retrieved_contexts: place of the contexts, such as ``output.docs``: texts, documents (``page_content``, ``content`` or
            ``text``), or one text; None = the usual places.
        retrieval_tools: names of tools whose results are contexts; each text that a tool returns is one.

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
    """Whether and how runs are recorded, and where in them question, answer and contexts are found.

    Attributes:
        enabled: whether runs are recorded. False, for an application that another instrumentation traces already:
            ``handler`` and ``install()`` then do nothing, ``submit()`` still scores.
        content: whether prompts, answers and documents are exported; None = by
            ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``, and so not by default. Scoring works either way.
        metadata: keys of a root run's metadata that are exported on its span, as ``spanscore.metadata.<key>``; texts,
            numbers and booleans, texts redacted. Readers of the exported spans (``spanscore serve``, ``replay``) need them
            for rules on metadata and for dimensions. What others trace has its metadata on it.
        metrics: whether tokens and durations of the application's model runs are emitted as histograms
            (``gen_ai.client.token.usage``, ``gen_ai.client.operation.duration``). They are of runs and not of scores, so
            ``outputs`` does not switch them; without ``enabled`` there are none. Off where another instrumentation emits them,
            and under a head sampler that drops runs, which would be missing: decided when the first run starts;
            ``status()`` shows it.
        context: whether the span of a tool is OpenTelemetry's current one while the tool runs: spans that the tool
            makes (a database, HTTP) become its children. Attributes that it sets on the current span are lost.
        all_runs: whether prompts, parsers and lambdas get spans too.
        score_abandoned: whether the partial answer of a stream that its reader left is scored; else it is ``no_sample``.
        score_failed: whether a run that failed is scored where its model had answered; else it is ``no_sample``.
        extract: where question, answer and contexts are found, if the usual places do not have them; None = there.
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
    extract: Extract | None = None
