"""Makes the samples of a unit: question, answer, contexts and conversation, from known places or those of ``Extract``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from spanscore import semconv
from spanscore.config.capture import Extract
from spanscore.core.codecs.media import with_images_of
from spanscore.core.codecs.messages import (
    ASSISTANT,
    TOOL,
    USER,
    calls_by_id,
    is_message,
    message_text,
    role_of,
    sample_messages,
    text_message,
)
from spanscore.core.codecs.text import as_text, jsonable
from spanscore.core.log import log_once, type_name
from spanscore.core.sample import (
    ON_DEMAND,
    AIMessage,
    HumanMessage,
    Message,
    MultiTurnSample,
    Samples,
    SingleTurnSample,
)
from spanscore.core.score import Outcome
from spanscore.core.span import CUT, Unit
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
from spanscore.samples.texts import CONTEXT_KEYS, are_messages, documents_in, is_pair_of_texts, talk_of
from spanscore.samples.tool_calls import TurnCalls, messages_of
from spanscore.samples.view import (
    GenAIMessage,
    ModelRun,
    RootValue,
    UnitView,
    calls_tools,
    human_turns,
    is_human,
    is_resume,
    last_human_text,
    turn_of,
)

# --- history --------------------------------------------------------------------------------------------------------


def history_of(view: UnitView, question: str | None, answering: ModelRun | None) -> list[Message]:
    """Return the turns before the root's own messages: from its input, a store, its final state, or the answer's prompt."""
    if human_turns(view.output.messages):
        return []  # the output is the whole thread
    exchanged = [_exchanges(value, pairs="history" in key) for key, value in _entries(view.input.value)]
    places = (exchanged, _talks_in(view.input.value), [view.history], _talks_in(view.output.value))
    talks = [talk for place in places for talk in place if human_turns(talk)]
    if not talks:
        return sample_messages(_thread_in_prompt(question, answering))
    at = [n for n, message in enumerate(talks[0]) if is_human(message) and message_text(message) == question]
    return sample_messages(talks[0][: at[-1]] if at else talks[0])


def _thread_in_prompt(question: str | None, answering: ModelRun | None) -> list[GenAIMessage]:
    """Return a thread's earlier messages from a prompt: a thread's messages have ids, a template's do not."""
    asked = () if answering is None else answering.asked
    if not question or question not in (last_human_text(asked) or ""):
        return []
    kept: list[GenAIMessage] = []
    keeps = False
    for message in asked[: max(at for at, message in enumerate(asked) if is_human(message))]:
        keeps = "id" in message if is_human(message) else keeps
        if keeps:
            kept.append(message)
    return kept


def _entries(value: Any) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, dict) else ()


def _talks_in(value: Any, depth: int = 3) -> list[Sequence[GenAIMessage]]:
    if depth <= 0 or is_message(value):
        return []
    if are_messages(value):
        return [value]
    return [talk for _, inner in _entries(value) for talk in _talks_in(inner, depth - 1)]


def _exchanges(value: Any, *, pairs: bool) -> Sequence[GenAIMessage]:
    """Return pairs of (role, text) as messages; ``[]`` for other values. ``pairs`` allows pairs of (question, answer), too."""
    if not isinstance(value, list) or not all(map(is_pair_of_texts, value)):
        return []
    by_role = talk_of(value)
    if by_role or not pairs:
        return by_role
    both = [(text_message(USER, asked), text_message(ASSISTANT, said)) for asked, said in value]
    return [message for exchange in both for message in exchange]


# --- conversation ---------------------------------------------------------------------------------------------------

# If the root has messages, they are the conversation; calls that they do not show (a sub-agent's) are inserted at the point of
# their call. Otherwise it consists of the earlier turns from the root's input or a store, the question, the calls and the
# answer. Messages that only a prompt template added, such as examples, or that a node wrote with the role of a human, are no
# turns. Both kinds are completed: each call gets its answer from a tool's span or a later prompt, and the conversation ends
# with the answer of the unit.


def conversation_of(
    view: UnitView, question: str | None, answer: str | None, answering: ModelRun | None
) -> tuple[MultiTurnSample | None, list[str]]:
    """Return the conversation if the unit has tool calls or several human turns, and notes on messages that were left out."""
    turn_messages = view.turn()
    opened = _find_opening(view, question, turn_messages)
    turn = _split_last_text(_without_humans(turn_messages, answer), view.callers)
    history = history_of(view, question, answering)
    # A single model call has the earlier calls of its turn in its prompt.
    calls = TurnCalls(view, [*turn_of(opened), *turn])
    if not any((opened, turn, history, calls.made, view.tools)):
        return None, []  # a question and an answer
    after = _after_question(view, opened, turn, calls, has_history=bool(history))
    if after is None:
        return None, []
    opening: list[Message] = [] if question is None else [HumanMessage(content=question)]
    messages, left_out = calls.answered([*history, *(sample_messages(opened) if opened else opening), *after])
    notes = [f"left out of the conversation: {left_out} tool results that no message before them asked for"]
    return MultiTurnSample(user_input=_end_with_answer(messages, turn, answer)), notes if left_out else []


def _after_question(
    view: UnitView, opened: Sequence[GenAIMessage], turn: Sequence[GenAIMessage], calls: TurnCalls, *, has_history: bool
) -> Sequence[Message] | None:
    """Return the messages after the question; None if the conversation is only the question and the answer."""
    if not opened and (calls.made or has_history):
        return [called.message for called in calls.made]
    if calls.hidden:
        return [*calls.with_hidden(turn)]
    if calls_tools([*turn_of(opened), *turn]) or (opened and (has_history or human_turns(opened) > 1)):
        return sample_messages(turn)
    if view.tools and not calls.made:
        return messages_of(view.tools)
    return None


def _end_with_answer(messages: list[Message], turn: Sequence[GenAIMessage], answer: str | None) -> list[Message]:
    """Return a conversation with the answer at its end, if it ends with a question, a call, or an answer to a call.

    The answer is not added if the assistant's messages of this turn have its text. In the root's own messages, a tool's message
    may be the last: an agent with a response format answers so.
    """
    last = messages[-1] if messages else None
    ends_with_tool = bool(turn) and role_of(turn[-1].get("role")) == TOOL
    if answer is None or (isinstance(last, AIMessage) and not last.tool_calls) or ends_with_tool:
        return messages
    now = takewhile(lambda message: not isinstance(message, HumanMessage), reversed(messages))
    is_said = any(isinstance(message, AIMessage) and message.content == answer for message in now)
    return messages if is_said else [*messages, AIMessage(content=answer)]


def _split_last_text(turn: Sequence[GenAIMessage], runs: Sequence[ModelRun]) -> Sequence[GenAIMessage]:
    """Return a turn with its last text separated from the calls before it: the root of Vercel's SDK joins its steps."""
    text = message_text(turn[-1]) if turn and calls_by_id(turn[-1]) else None
    if not text or not any(final_text(run.said) == text and not calls_tools(run.said) for run in runs):
        return turn
    parts = turn[-1].get("parts", turn[-1].get("content"))
    calls = [part for part in parts if isinstance(part, dict) and part.get("type") == "tool_call"]
    words = [part for part in parts if part not in calls]
    return [*turn[:-1], {**turn[-1], "parts": calls}, {**turn[-1], "parts": words}]


def _find_opening(view: UnitView, question: str | None, messages: Sequence[GenAIMessage]) -> Sequence[GenAIMessage]:
    """Return the root's messages before those of this turn; ``[]`` if they do not contain the user's question."""
    thread = view.thread()
    opened = thread[: len(thread) - len(messages)]
    asked = last_human_text(opened)
    # If the question is outside the messages, a human message among them is a prompt of the application.
    is_elsewhere = last_human_text(view.input.messages) is None and not is_resume(view.input.value)
    return [] if asked is None or (asked != question and is_elsewhere) else opened


def _without_humans(turn: Sequence[GenAIMessage], answer: str | None) -> list[GenAIMessage]:
    """Return a turn without human messages of the unit itself; the answer becomes the assistant's in any case."""
    if turn and is_human(turn[-1]) and message_text(turn[-1]) == answer:
        turn = [*turn[:-1], {**turn[-1], "role": ASSISTANT}]
    return [message for message in turn if not is_human(message)]


# --- extract --------------------------------------------------------------------------------------------------------


def find_question(extract: Extract, view: UnitView, model_texts: ModelTexts, answering: ModelRun | None) -> TextMatch:
    """Find the text of the question. ``answering`` is the run that gave the answer; None = unknown."""
    place = extract.user_input
    return question_in(view, model_texts, answering) if place is None else _at(place, view, question_text)


def find_contexts(extract: Extract, view: UnitView, model_texts: ModelTexts, answering: ModelRun | None) -> TextMatch:
    """Find the ``AnswerContexts``. ``answering`` is the run that gave the answer; None = unknown."""
    if extract.retrieved_contexts is not None:
        return _at(extract.retrieved_contexts, view, lambda value: AnswerContexts(documents_in(value)))
    tools = ", ".join(extract.retrieval_tools) or "none named"
    keys = ", ".join(CONTEXT_KEYS)
    searched = (
        f"root output: documents under keys {keys}; prompt of the answer; retriever runs; tool artifacts; "
        f"search results in the last prompt; root: keys {keys}; retrieval_tools ({tools})"
    )
    if view.documents_cut:
        searched = f"{searched}; the documents of a retriever run were {CUT.reason}"
    contexts = contexts_in(view, model_texts, answering, extract.retrieval_tools)
    return TextMatch(contexts, contexts.lack or searched)


def _at(place: str | Callable[[Unit], Any], view: UnitView, read: Callable[[Any], Any]) -> TextMatch:
    if isinstance(place, str):
        value, searched = _walk(place, view), f"the configured place, {place}"
    else:
        value, searched = None, f"the configured function {getattr(place, '__name__', type_name(place))}"
        try:
            value = jsonable(place(view.unit))
        except Exception as error:  # noqa: BLE001 - a user's function; its message may quote
            searched += f", which raised {type_name(error)}"
    extracted = read(value)
    return TextMatch(extracted, searched, TextSource.EXTRACT if isinstance(extracted, str) else None)


def _walk(path: str, view: UnitView) -> Any:
    side, *keys = path.split(".")
    whole: RootValue = view.input if side == "input" else view.output
    value = whole.whole()
    if keys and keys[0] == "messages" and isinstance(value, list) and whole.messages:
        keys = keys[1:]
    for key in keys:
        value = _step(value, key)
    return value


def _step(value: Any, key: str) -> Any:
    """Take one step of a path: a dict's key, a list's position, or the key in each item of a list."""
    if isinstance(value, dict):
        return value.get(key)
    if not isinstance(value, list):
        return None
    if key.removeprefix("-").isdecimal():
        at = int(key)
        return value[at] if -len(value) <= at < len(value) else None
    steps = (_step(item, key) for item in value)
    return [step for step in steps if step is not None]


# --- samples --------------------------------------------------------------------------------------------------------

_AnySample = TypeVar("_AnySample", SingleTurnSample, MultiTurnSample)
SEVERAL_TEXTS: Final = "several of the root's texts may be the"
"""The beginning of a reason; the ambiguous parts follow: ``question``, ``answer`` or both."""
_MOST_KEYS, _MOST_CHARS = 10, 40
"""Number of keys, and of characters of a key, in the reason of a unit without a sample."""
_OBSERVED = frozenset({"user_input", "response", "retrieved_contexts", "retrieved_context_ids", "images"}) | ON_DEMAND
"""Fields that come from the unit itself; the other fields of a sample are references."""


def no_sample(reason: str, searched: Sequence[tuple[str, str]] = ()) -> Samples:
    """Return the outcome of a unit without samples."""
    return Samples(outcome=Outcome.NO_SAMPLE, reason=reason, searched=tuple(searched))


def samples_of(view: UnitView, extract: Extract) -> Samples:
    """Make the samples of a unit, with notes as ``reason``, or return the reason of their absence; safe for any payload."""
    model_texts = ModelTexts(view)
    place = extract.response
    answer = answer_in(view, model_texts) if place is None else _at(place, view, answer_text)
    answering = model_texts.answering(answer.value)
    question = find_question(extract, view, model_texts, answering)
    match = find_contexts(extract, view, model_texts, answering)
    searched = (
        ("user_input", question.searched),
        ("response", answer.searched),
        ("retrieved_contexts", match.searched),
    )
    why_not = _why_not(view, question, answer)
    if why_not is not None:
        return no_sample(why_not, searched)
    contexts: AnswerContexts = match.value
    prompt = None if answering is None else last_human_text(answering.asked)
    user_input = with_images_of(question.value, prompt, contexts.texts or ())
    single, left_out = _add_references(
        SingleTurnSample(
            user_input=user_input,
            response=answer.value,
            retrieved_contexts=contexts.texts,
            retrieved_context_ids=contexts.ids,
        ),
        view.expected,
    )
    conversation, refused = conversation_of(view, question.value, answer.value, answering)
    multi, more = (None, []) if conversation is None else _add_references(conversation, view.expected)
    notes = dict.fromkeys([*left_out, *refused, *more])
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
    if question.torn or answer.torn:
        what = " and the ".join(name for name, match in (("question", question), ("answer", answer)) if match.torn)
        return f"{SEVERAL_TEXTS} {what}; {_describe_root(view)}"
    if (question.value is None or answer.value is None) and _is_cut(view):
        log_once(CUT.reason, f"{CUT.reason}: {CUT.hint}")
        return CUT.reason
    if question.value is None and answer.value is None:
        return f"neither a question nor an answer was found; {_describe_root(view)}"
    return None


def _is_cut(view: UnitView) -> bool:
    """Return whether an attribute limit cut content of the unit or of one of its models."""
    if view.input.cut or view.output.cut:
        return True
    models = (span for span in view.unit.spans if span.operation in semconv.MODEL_OPERATIONS)
    return any(span.attributes.get(semconv.CONTENT_CUT) is True for span in models)


def _describe_root(view: UnitView) -> str:
    """Return the root's keys, without their values, and the advice to set ``Extract``."""
    sides = (("input", view.input.value), ("output", view.output.value))
    held = [f"its {name} has {', '.join(_keys(value))}" for name, value in sides if isinstance(value, dict) and value]
    where = "; ".join([*held, "give the place"]) if held else "its root has no text: give the place"
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
