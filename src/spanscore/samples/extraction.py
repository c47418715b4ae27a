"""Makes the samples of a unit: question, answer, contexts, conversation, and on demand duration, tokens and tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, takewhile
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from spanscore import semconv
from spanscore.config.capture import Extract
from spanscore.core.codecs.media import with_images_of
from spanscore.core.codecs.messages import (
    ASSISTANT,
    TOOL,
    USER,
    call_names_and_ids,
    is_message,
    message_text,
    role_of,
    sample_messages,
    text_message,
)
from spanscore.core.codecs.text import as_text, jsonable
from spanscore.core.codecs.tool_definitions import tool_definitions, union
from spanscore.core.log import log_once, type_name
from spanscore.core.sample import (
    ON_DEMAND,
    AIMessage,
    HumanMessage,
    Message,
    MultiTurnSample,
    Samples,
    SingleTurnSample,
    TokenUsage,
    ToolDefinition,
)
from spanscore.core.score import Outcome
from spanscore.core.span import CUT, SpanData, Unit
from spanscore.samples.contexts import AnswerContexts, contexts_in
from spanscore.samples.question_answer import (
    ModelTexts,
    TextMatch,
    TextSource,
    answer_in,
    answer_text,
    final_text,
    question_in,
    question_text,
)
from spanscore.samples.texts import CONTEXT_KEYS, are_messages, as_messages, documents_in, is_pair_of_texts
from spanscore.samples.tool_calls import TurnCalls, calls_in, messages_of
from spanscore.samples.view import (
    GenAIMessage,
    ModelRun,
    RootValue,
    UnitView,
    calls_tools,
    count_human_messages,
    is_human,
    is_resume,
    last_human_text,
    messages_of_turn,
    spans_outside,
)

# --- history --------------------------------------------------------------------------------------------------------


def history_of(view: UnitView, question: str | None, answer_run: ModelRun | None) -> list[Message]:
    """Return turns before the root's own messages: from its input, a message store, its final state or the answer's prompt."""
    if count_human_messages(view.output.messages):
        return []  # the output is the whole thread
    pairs = [_messages_in_pairs(value, questions="history" in key) for key, value in _items(view.input.value)]
    candidates = (pairs, _conversations_in(view.input.value), [view.history], _conversations_in(view.output.value))
    earlier = next((messages for group in candidates for messages in group if count_human_messages(messages)), None)
    if earlier is None:
        return sample_messages(_thread_in_prompt(question, answer_run))
    at = [n for n, message in enumerate(earlier) if is_human(message) and message_text(message) == question]
    return sample_messages(earlier[: at[-1]] if at else earlier)


def _thread_in_prompt(question: str | None, answer_run: ModelRun | None) -> list[GenAIMessage]:
    """Return a thread's earlier messages from a prompt. Messages of a thread have ids, messages of a template do not."""
    prompt = () if answer_run is None else answer_run.input
    if not question or question not in (last_human_text(prompt) or ""):
        return []
    earlier: list[GenAIMessage] = []
    is_in_thread = False
    for message in prompt[: max(at for at, message in enumerate(prompt) if is_human(message))]:
        is_in_thread = "id" in message if is_human(message) else is_in_thread
        if is_in_thread:
            earlier.append(message)
    return earlier


def _items(value: Any) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, dict) else ()


def _conversations_in(value: Any, depth: int = 3) -> list[Sequence[GenAIMessage]]:
    if depth <= 0 or is_message(value):
        return []
    if are_messages(value):
        return [value]
    return [messages for _, inner in _items(value) for messages in _conversations_in(inner, depth - 1)]


def _messages_in_pairs(value: Any, *, questions: bool) -> Sequence[GenAIMessage]:
    """Return a list of (role, text), or with ``questions`` of (question, answer), as messages; ``[]`` for other values."""
    if not isinstance(value, list) or not all(map(is_pair_of_texts, value)):
        return []
    by_role = as_messages(value)
    if by_role or not questions:
        return by_role
    return [text_message(role, text) for pair in value for role, text in zip((USER, ASSISTANT), pair, strict=True)]


# --- conversation ---------------------------------------------------------------------------------------------------

# If the root has messages, the conversation consists of them and of the calls that they do not show (a sub-agent's), each
# inserted at the point of its call. Otherwise it consists of the earlier turns from the root's input or a message store, the
# question, the calls and the answer. In both cases each call gets its result from a tool's span or a later prompt, and the
# conversation ends with the answer of the unit.
#
# Two kinds of messages are left out: messages that only a prompt template added, such as examples, and human messages that a
# LangGraph node wrote.


def conversation_of(
    view: UnitView, question: str | None, answer: str | None, answer_run: ModelRun | None
) -> tuple[MultiTurnSample | None, list[str]]:
    """Return the conversation if the unit has tool calls or several human turns, and notes on messages that were left out."""
    # ``history`` has the turns that the root's own messages lack. The root's messages are ``before_output`` (earlier turns, the
    # question and, in a model call's prompt, earlier calls of this turn), then ``turn``, the output of this turn.
    turn_messages = view.output_of_turn()
    before_output = _messages_before_output(view, question, turn_messages)
    turn = _split_last_text(_without_humans(turn_messages, answer), view.every_model)
    history = history_of(view, question, answer_run)
    # If the root is a model call, its prompt contains the earlier calls of the turn.
    calls = TurnCalls(view, [*messages_of_turn(before_output), *turn])
    if not any((before_output, turn, history, calls.made, view.tools)):
        return None, []  # a question and an answer
    after = _after_question(view, before_output, turn, calls, has_history=bool(history))
    if after is None:
        return None, []
    opening: list[Message] = [] if question is None else [HumanMessage(content=question)]
    opening = sample_messages(before_output) if before_output else opening
    messages, left_out = calls.add_results([*history, *opening, *after])
    notes = [f"left out of the conversation: {left_out} tool results that no message before them asked for"]
    return MultiTurnSample(user_input=_end_with_answer(messages, turn, answer)), notes if left_out else []


def _after_question(
    view: UnitView,
    before_output: Sequence[GenAIMessage],
    turn: Sequence[GenAIMessage],
    calls: TurnCalls,
    *,
    has_history: bool,
) -> Sequence[Message] | None:
    """Return the messages after the question; None if the conversation is only the question and the answer."""
    if not before_output and (calls.made or has_history):  # without messages of the root: the calls of its models
        return [called.message for called in calls.made]
    if calls.hidden:  # the root's messages lack calls, such as a sub-agent's
        return [*calls.with_hidden(turn)]
    has_earlier_turns = bool(before_output) and (has_history or count_human_messages(before_output) > 1)
    if has_earlier_turns or calls_tools([*messages_of_turn(before_output), *turn]):  # the root's messages are complete
        return sample_messages(turn)
    if view.tools and not calls.made:  # tools that no model called
        return messages_of(view.tools)
    return None


def _end_with_answer(messages: list[Message], turn: Sequence[GenAIMessage], answer: str | None) -> list[Message]:
    """Return a conversation with the answer at its end."""
    # The answer is not appended if the conversation ends with the assistant's text, if an assistant's message of this turn is
    # the answer, or if the root's own messages end with a tool's message, as those of an agent with a response format do.
    last = messages[-1] if messages else None
    ends_with_tool = bool(turn) and role_of(turn[-1].get("role")) == TOOL
    if answer is None or (isinstance(last, AIMessage) and not last.tool_calls) or ends_with_tool:
        return messages
    of_turn = takewhile(lambda message: not isinstance(message, HumanMessage), reversed(messages))
    has_answer = any(isinstance(message, AIMessage) and message.content == answer for message in of_turn)
    return messages if has_answer else [*messages, AIMessage(content=answer)]


def _split_last_text(turn: Sequence[GenAIMessage], runs: Sequence[ModelRun]) -> Sequence[GenAIMessage]:
    """Return a turn with its last text separated from the calls before it: the root of Vercel's SDK joins its steps."""
    text = message_text(turn[-1]) if turn and call_names_and_ids(turn[-1]) else None
    if not text or not any(final_text(run.output) == text and not calls_tools(run.output) for run in runs):
        return turn
    parts = turn[-1].get("parts", turn[-1].get("content"))
    calls = [part for part in parts if isinstance(part, dict) and part.get("type") == "tool_call"]
    words = [part for part in parts if part not in calls]
    return [*turn[:-1], {**turn[-1], "parts": calls}, {**turn[-1], "parts": words}]


def _messages_before_output(
    view: UnitView, question: str | None, turn: Sequence[GenAIMessage]
) -> Sequence[GenAIMessage]:
    """Return the root's messages before the output of this turn; ``[]`` if they do not contain the user's question."""
    messages = view.all_messages()
    before = messages[: len(messages) - len(turn)]
    human_text = last_human_text(before)
    # If the question is outside the messages, a human message among them is a prompt of the application, unless the run
    # resumes an interrupted one.
    is_elsewhere = last_human_text(view.input.messages) is None and not is_resume(view.input.value)
    return [] if human_text is None or (human_text != question and is_elsewhere) else before


def _without_humans(turn: Sequence[GenAIMessage], answer: str | None) -> list[GenAIMessage]:
    """Return the output of a turn without human messages, which the application wrote. An answer becomes the assistant's."""
    if turn and is_human(turn[-1]) and message_text(turn[-1]) == answer:
        turn = [*turn[:-1], {**turn[-1], "role": ASSISTANT}]
    return [message for message in turn if not is_human(message)]


# --- extract --------------------------------------------------------------------------------------------------------


def find_question(extract: Extract, view: UnitView, model_texts: ModelTexts, answer_run: ModelRun | None) -> TextMatch:
    """Find the text of the question. ``answer_run`` is the run that gave the answer; None = unknown."""
    place = extract.user_input
    return question_in(view, model_texts, answer_run) if place is None else _extract(place, view, question_text)


def find_contexts(extract: Extract, view: UnitView, model_texts: ModelTexts, answer_run: ModelRun | None) -> TextMatch:
    """Find the contexts of the answer, with document ids. ``answer_run`` is the run that gave the answer; None = unknown."""
    if extract.retrieved_contexts is not None:
        return _extract(extract.retrieved_contexts, view, lambda value: AnswerContexts(documents_in(value)))
    tools = ", ".join(extract.retrieval_tools) or "none named: set capture.extract.retrieval_tools"
    keys = ", ".join(CONTEXT_KEYS)
    searched = (
        f"root output: documents under keys {keys}; prompt of the answer; retriever runs; tool artifacts; "
        f"search results in the last prompt; root: keys {keys}; retrieval_tools ({tools})"
    )
    if view.documents_cut:
        searched = f"{searched}; the documents of a retriever run were {CUT.reason}"
    contexts = contexts_in(view, model_texts, answer_run, extract.retrieval_tools)
    return TextMatch(contexts, searched=contexts.why_unknown or searched)


def _extract(place: str | Callable[[Unit], Any], view: UnitView, read: Callable[[Any], Any]) -> TextMatch:
    """Read the value at a configured place: a path (``output.answer``) or a function of the unit."""
    if isinstance(place, str):
        value, searched = _value_at(place, view), f"the configured place, {place}"
    else:
        value, searched = None, f"the configured function {getattr(place, '__name__', type_name(place))}"
        try:
            value = jsonable(place(view.unit))
        except Exception as error:  # noqa: BLE001 - a user's function; its message may quote
            searched += f", which raised {type_name(error)}"
    extracted = read(value)
    return TextMatch(extracted, TextSource.EXTRACT if isinstance(extracted, str) else None, searched=searched)


def _value_at(path: str, view: UnitView) -> Any:
    side, *keys = path.split(".")
    root_value: RootValue = view.input if side == "input" else view.output
    value = root_value.whole()
    if keys and keys[0] == "messages" and isinstance(value, list) and root_value.messages:
        keys = keys[1:]
    for key in keys:
        value = _value_under(value, key)
    return value


def _value_under(value: Any, key: str) -> Any:
    """Return the value under one key of a path: a dict's key, a list's position, or the key of each item of a list."""
    if isinstance(value, dict):
        return value.get(key)
    if not isinstance(value, list):
        return None
    if key.removeprefix("-").isdecimal():
        at = int(key)
        return value[at] if -len(value) <= at < len(value) else None
    values = (_value_under(item, key) for item in value)
    return [inner for inner in values if inner is not None]


# --- samples --------------------------------------------------------------------------------------------------------

_AnySample = TypeVar("_AnySample", SingleTurnSample, MultiTurnSample)
SEVERAL_TEXTS: Final = "several of the root's texts may be the"
"""The beginning of a reason; the ambiguous parts follow: ``question``, ``answer`` or both."""
_MOST_KEYS, _MOST_CHARS = 10, 40
"""Number of keys, and of characters of a key, in the reason of a unit without a sample."""
_OBSERVED = frozenset({"user_input", "response", "retrieved_contexts", "retrieved_context_ids", "images"}) | ON_DEMAND
"""Fields that come from the unit itself; the other fields of a sample are references."""


def no_sample(reason: str, searched: Sequence[tuple[str, str]] = ()) -> Samples:
    """Return ``Samples`` with the outcome ``no_sample`` and its reason; ``searched``: (field, searched places) pairs."""
    return Samples(outcome=Outcome.NO_SAMPLE, reason=reason, searched=tuple(searched))


def samples_of(view: UnitView, extract: Extract) -> Samples:
    """Make the samples of a unit, with notes as ``reason``, or return the reason of their absence; safe for any payload."""
    model_texts = ModelTexts(view)
    place = extract.response
    answer = answer_in(view, model_texts) if place is None else _extract(place, view, answer_text)
    answer_run = model_texts.run_with_answer(answer.value)
    question = find_question(extract, view, model_texts, answer_run)
    contexts_match = find_contexts(extract, view, model_texts, answer_run)
    searched = (
        ("user_input", question.searched),
        ("response", answer.searched),
        ("retrieved_contexts", contexts_match.searched),
    )
    why_not = _why_not(view, question, answer)
    if why_not is not None:
        return no_sample(why_not, searched)
    contexts: AnswerContexts = contexts_match.value
    prompt = None if answer_run is None else last_human_text(answer_run.input)
    user_input = with_images_of(question.value, prompt, contexts.texts or ())
    single, single_notes = _add_references(
        SingleTurnSample(
            user_input=user_input,
            response=answer.value,
            retrieved_contexts=contexts.texts,
            retrieved_context_ids=contexts.ids,
        ),
        view.expected,
    )
    conversation, result_notes = conversation_of(view, question.value, answer.value, answer_run)
    multi, multi_notes = (None, []) if conversation is None else _add_references(conversation, view.expected)
    notes = dict.fromkeys([*single_notes, *result_notes, *multi_notes])
    return Samples(
        single_turn=single,
        multi_turn=multi,
        reason="; ".join(notes) or None,
        searched=searched,
        source=_source(question, answer),
        unused_documents=contexts.unused,
    )


def _why_not(view: UnitView, question: TextMatch, answer: TextMatch) -> str | None:
    if answer.value is None and view.failed:
        return "the run failed before it answered"
    if question.ambiguous or answer.ambiguous:
        what = " and the ".join(name for name, match in (("question", question), ("answer", answer)) if match.ambiguous)
        return f"{SEVERAL_TEXTS} {what}; {_describe_root_keys(view)}"
    if (question.value is None or answer.value is None) and _has_cut_content(view):
        log_once(CUT.reason, f"{CUT.reason}: {CUT.hint}")
        return CUT.reason
    if question.value is None and answer.value is None:
        return f"neither a question nor an answer was found; {_describe_root_keys(view)}"
    return None


def _has_cut_content(view: UnitView) -> bool:
    """Return whether an attribute limit cut content of the unit or of one of its models."""
    if view.input.cut or view.output.cut:
        return True
    models = (span for span in view.unit.spans if span.operation in semconv.MODEL_OPERATIONS)
    return any(span.attributes.get(semconv.CONTENT_CUT) is True for span in models)


def _describe_root_keys(view: UnitView) -> str:
    """Return the root's keys, without their values, and the advice to set ``Extract``."""
    sides = (("input", view.input.value), ("output", view.output.value))
    keys = [f"its {name} has {', '.join(_keys(value))}" for name, value in sides if isinstance(value, dict) and value]
    where = "; ".join([*keys, "give the place"]) if keys else "its root has no text: give the place"
    return f"{where}: extract=Extract(user_input='input.<key>', response='output.<key>')"


def _keys(value: Mapping[str, Any]) -> Sequence[str]:
    keys = [as_text(key)[:_MOST_CHARS] for key in value]
    return keys if len(keys) <= _MOST_KEYS else [*keys[:_MOST_KEYS], "…"]


def _source(question: TextMatch, answer: TextMatch) -> str | None:
    """Return the source of the question or the answer, whichever is less certain."""
    sources = [match.source for match in (question, answer) if match.source is not None]
    return None if not sources else str(max(sources, key=list(TextSource).index))


def _add_references(sample: _AnySample, expected: Mapping[str, Any]) -> tuple[_AnySample, list[str]]:
    """Add the references from the request; a reference that does not fit is left out with a note."""
    notes: list[str] = []
    for name in type(sample).model_fields if expected else ():
        if expected.get(name) is None or name in _OBSERVED:
            continue
        try:
            sample = type(sample).model_validate({**dict(sample), name: jsonable(expected[name])})
        except ValidationError as error:
            notes.append(f"expected {name} left out: {error.errors()[0]['msg']}")
    return sample, notes


# --- fields on demand --------------------------------------------------------------------------------------------------

# Duration, token usage and offered tools are added to samples only if a metric reads them.

_NO_TOKENS: Final = (None, None)
_MOST_BYTES: Final = 64_000
"""Largest size of the definitions of a unit's tools as JSON."""
_OFFERING: Final = semconv.MODEL_OPERATIONS | {semconv.INVOKE_AGENT}


def add_measures(samples: Samples, unit: Unit) -> Samples:
    """Return samples with the duration and the usage of their unit in the single turn; existing values stay."""
    root, single = unit.root, samples.single_turn
    if root is None or single is None:
        return samples
    measures = {"duration_s": max(0, root.end_ns - root.start_ns) / 1e9, "usage": usage_of(unit)}
    absent = {name: value for name, value in measures.items() if getattr(single, name) is None}
    return replace(samples, single_turn=single.model_copy(update=absent))


def usage_of(unit: Unit) -> TokenUsage | None:
    """Return the sums of the tokens that the models of a unit used; None if they are unknown.

    A sum is unknown (None) if a successful call lacks the count. If no call has counts, the root's counts are returned. A model
    span inside another model span is the same call, traced by two instrumentations: only the outer span counts.
    """
    models = [*{span.span_id: span for span in unit.spans if span.operation in semconv.MODEL_OPERATIONS}.values()]
    outer = spans_outside(models, models, unit)
    counts = [tokens for span in outer if (tokens := _tokens(span)) != _NO_TOKENS or span.status != "error"]
    if all(tokens == _NO_TOKENS for tokens in counts):
        counts = [] if unit.root is None else [_tokens(unit.root)]
    input_tokens, output_tokens = map(_sum, zip(*counts, strict=True)) if counts else _NO_TOKENS
    if input_tokens is None and output_tokens is None:
        return None
    return TokenUsage(input_tokens=input_tokens, output_tokens=output_tokens)


def _tokens(span: SpanData) -> tuple[int | None, int | None]:
    counts = (span.attributes.get(name) for name in (semconv.USAGE_INPUT_TOKENS, semconv.USAGE_OUTPUT_TOKENS))
    input_tokens, output_tokens = (count if isinstance(count, int) and count >= 0 else None for count in counts)
    return input_tokens, output_tokens


def _sum(counts: Iterable[int | None]) -> int | None:
    values = list(counts)
    return None if None in values else sum(count for count in values if count is not None)


def add_tools(samples: Samples, unit: Unit) -> Samples:
    """Return samples with the definitions of the unit's tools in the conversation. Above 64 kB, called tools are kept first.

    The samples are returned unchanged if they have tools already, or if no span has a definition.
    """
    conversation = samples.multi_turn
    if conversation is None or conversation.tools is not None:
        return samples
    offered = [*_read_definitions(unit)]
    if not offered:
        return samples
    called = [call.name for message in conversation.user_input for call in calls_in(message)]
    tools, left_out = union(offered, _MOST_BYTES, called)
    note = f"left out of the tools: {left_out} definitions beyond {_MOST_BYTES // 1000} kB" if left_out else None
    return replace(
        samples,
        multi_turn=conversation.model_copy(update={"tools": tools}),
        reason="; ".join(filter(None, (samples.reason, note))) or None,
    )


def _read_definitions(unit: Unit) -> Iterator[ToolDefinition]:
    """Yield the definitions on agent spans, then on model spans, by start; the caller keeps the last definition of a name."""
    spans = [span for span in unit.spans if span.operation in _OFFERING]
    spans.sort(key=lambda span: (span.operation != semconv.INVOKE_AGENT, span.start_ns))
    # Most calls of an agent have the same tools, which are parsed once.
    for definitions, _ in groupby(span.attributes.get(semconv.TOOL_DEFINITIONS) for span in spans):
        yield from tool_definitions(definitions)
