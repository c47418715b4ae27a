"""Samples, which metrics score, and annotations, which are human labels of units.

Field names are those of ragas, so data sets of ragas load unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Annotated, Any, Final, Literal, NamedTuple, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from spanscore import semconv
from spanscore.core.log import is_a
from spanscore.core.score import Label, Outcome
from spanscore.core.span import UnitKey

# --- sample ---------------------------------------------------------------------------------------------------------


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(_Frozen):
    """A call of a tool by the model.

    Attributes:
        args: argument name → value.
        id: id that the tool's answer repeats as ``tool_call_id``; None if the provider gives none.
    """

    name: str
    args: dict[str, Any] = Field(default_factory=dict)
    id: str | None = None


class ToolDefinition(_Frozen):
    """A tool that the application offered to its models.

    Attributes:
        name: name by which a model calls the tool.
        description: description of the tool for the model; None if unknown.
        parameters: JSON Schema of the arguments; None if unknown.
    """

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Image(_Frozen):
    """An image that a text of a sample refers to by its marker, such as ``[image 1]``.

    Attributes:
        url: address from which the judge's provider loads the image; None if ``base64`` holds it.
        base64: the image's bytes as base64; None if ``url`` is its address.
        media_type: media type, such as ``image/png``; None if unknown, which only an address permits.

    Raises:
        pydantic.ValidationError: neither or both of ``url`` and ``base64`` are given, or base64 has no media type.
    """

    url: str | None = None
    base64: str | None = Field(default=None, repr=False)
    media_type: str | None = None

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.url is None) == (self.base64 is None):
            raise ValueError("an image has either a url or base64")
        if self.base64 is not None and not self.media_type:
            raise ValueError("an image as base64 needs its media_type, such as image/png")
        return self

    @property
    def size_bytes(self) -> int:
        """Size of the decoded image in bytes, within two; of an image by address the length of the address."""
        return len(self.url or "") if self.base64 is None else len(self.base64) * 3 // 4


class HumanMessage(_Frozen):
    """A message of the user."""

    type: Literal["human"] = "human"
    content: str
    metadata: dict[str, Any] | None = None


class AIMessage(_Frozen):
    """A message of the model: an answer, tool calls, or an answer with tool calls. Without an answer the content is empty."""

    type: Literal["ai"] = "ai"
    content: str = ""
    tool_calls: list[ToolCall] | None = None
    metadata: dict[str, Any] | None = None


class ToolMessage(_Frozen):
    """The result of a tool call."""

    type: Literal["tool"] = "tool"
    content: str
    tool_call_id: str | None = None
    metadata: dict[str, Any] | None = None


Message: TypeAlias = Annotated[HumanMessage | AIMessage | ToolMessage, Field(discriminator="type")]


MEASURES: Final = frozenset({"duration_s", "usage"})
"""Fields of a single turn that measure the application, and that are not content."""
ON_DEMAND: Final = MEASURES | {"tools"}
"""Fields that the samples of a unit have only if a metric reads them."""


class TokenUsage(_Frozen):
    """The tokens that an application's models used for one answer.

    Attributes:
        input_tokens: tokens of all prompts; None = not known.
        output_tokens: tokens of all completions; None = not known.
    """

    input_tokens: Annotated[int, Field(ge=0)] | None = None
    output_tokens: Annotated[int, Field(ge=0)] | None = None


class SingleTurnSample(_Frozen):
    """One question and its answer, with the retrieved texts.

    Attributes:
        user_input: the question.
        response: the answer.
        retrieved_contexts: texts in rank order. None if no retrieval happened, or the texts are unknown; ``[]`` if the
            retrieval found no text.
        retrieved_context_ids: ids of the retrieved documents in rank order, even if the texts are unknown or are joined into
            one text. None if a document has no id.
        reference: the right answer.
        reference_contexts: the texts that the retrieval should have found.
        rubrics: grade or criterion → description.
        duration_s: time from the request to the whole answer, in seconds; None = not known.
        usage: tokens of the application's models; None = not known.
        images: the images; the marker ``[image 1]`` in a text refers to the first. None without images.
    """

    user_input: str | None = None
    response: str | None = None
    retrieved_contexts: list[str] | None = None
    retrieved_context_ids: list[str | int] | None = None
    reference: str | None = None
    reference_contexts: list[str] | None = None
    reference_context_ids: list[str | int] | None = None
    rubrics: dict[str, str] | None = None
    duration_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    usage: TokenUsage | None = None
    images: list[Image] | None = None


class MultiTurnSample(_Frozen):
    """A conversation.

    Attributes:
        user_input: the messages in order; a tool message follows a call of its tool.
        reference: the intended result of the conversation.
        reference_tool_calls: the expected tool calls, in order.
        reference_topics: the allowed topics.
        rubrics: grade or criterion → description.
        tools: the tools that were offered to the models, each name once; None: unknown; ``[]``: no tool was offered.
        images: the images; the marker ``[image 1]`` in a message refers to the first. None without images.

    Raises:
        pydantic.ValidationError: the conversation is impossible; the error names the message and the cause.
    """

    user_input: list[Message]
    reference: str | None = None
    reference_tool_calls: list[ToolCall] | None = None
    reference_topics: list[str] | None = None
    rubrics: dict[str, str] | None = None
    tools: list[ToolDefinition] | None = None
    images: list[Image] | None = None

    @field_validator("user_input")
    @classmethod
    def _check_conversation(cls, messages: list[Message]) -> list[Message]:
        caller: AIMessage | None = None
        for position, message in enumerate(messages):
            if isinstance(message, ToolMessage):
                _check_answers_a_call(position, message, messages[:position], caller)
            else:
                caller = message if isinstance(message, AIMessage) and message.tool_calls else None
        return messages

    def messages(self) -> list[dict[str, Any]]:
        """Return the conversation as JSON for a judge: in JSON, no text can pose as another turn."""
        return [shown for message in self.user_input if (shown := _message_json(message))]

    def pretty(self) -> str:
        """Return the conversation as text for people; lines begin with ``Human:``, ``AI:``, ``Tools:`` or ``ToolOutput:``."""
        return "\n".join(line for message in self.user_input for line in _message_lines(message))


def _check_answers_a_call(
    position: int, message: ToolMessage, before: Sequence[Message], caller: AIMessage | None
) -> None:
    if not any(isinstance(m, AIMessage) for m in before):
        raise ValueError(f"message {position} is a tool result, but no assistant message precedes it")
    if caller is None:
        raise ValueError(
            f"message {position} is a tool result, but message {position - 1} ({before[-1].type}) calls no tool: "
            "a tool result follows the assistant message that called it, or another tool result"
        )
    call_ids = {call.id for call in caller.tool_calls or () if call.id}
    if message.tool_call_id and call_ids and message.tool_call_id not in call_ids:
        raise ValueError(
            f"message {position} answers tool call {message.tool_call_id!r}, which no earlier message made; "
            f"the earlier calls are {sorted(call_ids)}"
        )


Sample: TypeAlias = SingleTurnSample | MultiTurnSample


@dataclass(frozen=True, slots=True)
class Samples:
    """Result of an extractor for one unit: a single turn, a conversation, or both; otherwise an outcome with a reason.

    Attributes:
        single_turn: the last question with its answer; None without one.
        multi_turn: the conversation; None unless the unit has tool calls or several human turns.
        outcome: None if there is a sample; otherwise ``no_sample`` or another outcome.
        reason: reason of the outcome, or notes on parts that a sample lacks ("expected … left out"); None = no note.
        searched: (field, the searched places), for the error of a missing field.
        source: how question and answer were found (``semconv.SAMPLE_SOURCE``): the less certain way of the two. None if neither
            was found by a search, as in a submitted sample.
        unused_documents: number of retrieved documents that are no contexts; None if no run retrieved any, or if their texts
            are unknown.
        interrupted: whether the turn waits for a person, and has no sample yet; the run that resumes it will have one.
        images_left_out: number of images that the samples lack.
    """

    single_turn: SingleTurnSample | None = None
    multi_turn: MultiTurnSample | None = None
    outcome: Outcome | None = None
    reason: str | None = None
    searched: tuple[tuple[str, str], ...] = ()
    source: str | None = None
    unused_documents: int | None = None
    interrupted: bool = False
    images_left_out: int = 0

    @classmethod
    def of(cls, sample: Sample) -> Samples:
        """Return a user's own sample as samples."""
        return cls(multi_turn=sample) if isinstance(sample, MultiTurnSample) else cls(single_turn=sample)

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the unit's span about the source of its sample; empty without a sample."""
        if self.outcome is not None:
            return {}
        attributes = {
            semconv.SAMPLE_SOURCE: self.source,
            semconv.UNUSED_DOCUMENTS: self.unused_documents,
            semconv.IMAGES_LEFT_OUT: self.images_left_out or None,
        }
        return {name: value for name, value in attributes.items() if value is not None}


def by_value(sample: Sample) -> Sample:
    """Return a deep copy, so that later edits of the sample's lists and dicts do not change it."""
    copy: Sample = _copy(sample, {})
    return copy


def _copy(value: Any, copies: dict[int, Any]) -> Any:
    """Copy models, lists and dicts, cycles included. Values of all other types are shared."""
    if id(value) in copies:
        return copies[id(value)]
    if is_a(value, _Frozen):
        fields = {name: getattr(value, name) for name in type(value).model_fields}
        return value.model_copy(
            update={name: _copy(field, copies) for name, field in fields.items() if field is not None}
        )
    if type(value) is list:
        items = copies[id(value)] = []
        items += [_copy(item, copies) for item in value]
        return items
    if type(value) is dict:
        entries = copies[id(value)] = {}
        entries |= {key: _copy(item, copies) for key, item in value.items()}
        return entries
    return value


def missing_fields(sample: Sample, required: Iterable[str]) -> list[str]:
    """Return the required fields with the value None; an empty text or list is present."""
    return [name for name in required if getattr(sample, name, None) is None]


def _message_json(message: Message) -> dict[str, Any] | None:
    """Return role, content and tool calls; None for an assistant message without content and tool calls."""
    if not isinstance(message, AIMessage):
        return {"role": "user" if isinstance(message, HumanMessage) else "tool", "content": message.content}
    calls = [{"name": call.name, "args": call.args} for call in message.tool_calls or ()]
    fields = {"content": message.content, "tool_calls": calls}
    present = {name: value for name, value in fields.items() if value}
    return {"role": "assistant", **present} if present else None


def _message_lines(message: Message) -> list[str]:
    if isinstance(message, HumanMessage):
        return [f"Human: {message.content}"]
    if isinstance(message, ToolMessage):
        return [f"ToolOutput: {message.content}"]
    answer = [f"AI: {message.content}"] if message.content else []
    calls = [f"  {call.name}: {call.args}" for call in message.tool_calls or ()]
    return [*answer, "Tools:", *calls] if calls else answer


# --- annotation -----------------------------------------------------------------------------------------------------

HumanValue: TypeAlias = bool | float | str
"""Pass or fail; a number on a metric's scale; or a word of a declared scale."""


class UnitId(NamedTuple):
    """Ids of a unit for the application, as hex digits: 32 for the trace and 16 for the span."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """A person's rating of a unit: a human label.

    Attributes:
        annotator: low-cardinality name of a person, a team or a way of asking.
        comment: the person's text (content); None without a text.
        when_ns: time of the rating, nanoseconds since 1970; None if unknown.
        unit: the labelled unit; None if only its ``key`` is known.
        key: the unit's own key in the application (``spanscore.feedback_key``); None if the ids are known.
        revision: number of earlier changes of this label by the same annotator that this process has seen; 0 the first time.
        quality: [0, 1], 1 is good; None without a scale.
    """

    name: str
    value: HumanValue
    annotator: str = semconv.ANNOTATOR_HUMAN
    comment: str | None = None
    when_ns: int | None = None
    unit: UnitKey | None = None
    key: str | None = None
    revision: int = 0
    quality: float | None = None

    def without_comment(self) -> Annotation:
        """Return the label without its comment, for export without content."""
        return replace(self, comment=None)

    @property
    def text(self) -> str | None:
        """The value as a word: ``pass`` or ``fail``, or a word of its scale; None for a number."""
        if isinstance(self.value, bool):
            return "pass" if self.value else "fail"
        return self.value if isinstance(self.value, str) else None

    @property
    def id(self) -> str:
        """32 hex digits, equal for the same label in any process; the first 16 are the span's id.

        The time distinguishes two equal ratings; without a time, the revision does, as far as it is known.
        """
        whose = self.key if self.unit is None else f"{self.unit.trace_id:032x}/{self.unit.span_id:016x}"
        text = f"{self.name}/{self.annotator}/{self.value!r}"
        when = f"r{self.revision}" if self.when_ns is None else str(self.when_ns)
        return blake2b(f"label/{whose}/{text}/{when}".encode(), digest_size=16).hexdigest()


class JudgeResult(NamedTuple):
    """A judge's result on a labelled sample.

    Attributes:
        value: value on the metric's scale; None if only the label is known.
        label: ``pass`` or ``fail``; None if only the value is known.
        evaluator_version: evaluator version of the score; empty if unknown.
        probability: sampling probability of the unit for this metric, (0, 1]; None if unknown.
    """

    value: float | None
    label: Label | None
    evaluator_version: str
    probability: float | None = None


class AnnotatedSample(NamedTuple):
    """One line of a file of human labels.

    Attributes:
        line: line number in the file, from 1; for ragas's annotations the position.
        sample: the labelled sample; None if the line has only the ids of the labelled unit.
        human: the human's value.
        judged: metric → result of its judge; empty if the line has no ``scores``.
        group: session id, otherwise trace id: a split of the labels keeps a group together. None if both are unknown.
        probability: probability with which the sample was drawn for labelling, (0, 1]; None if unknown.
        id: the line's own id; None without an id.
        label: the whole label of the line; None for ragas's annotations.
        withdrawn: whether the line withdraws the annotator's earlier labels of this name on its unit.
        representative: whether the sample was drawn by a known probability, and not for its verdict.
    """

    line: int
    sample: Sample | None
    human: HumanValue
    judged: Mapping[str, JudgeResult]
    group: str | None = None
    probability: float | None = None
    id: str | int | None = None
    label: Annotation | None = None
    withdrawn: bool = False
    representative: bool = True
