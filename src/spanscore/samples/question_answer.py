"""Finds the question and the answer of a unit, in its root or in the inputs and outputs of its models."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from spanscore.core.codecs.messages import (
    ASSISTANT,
    TOOL,
    call_names_and_ids,
    is_message,
    message_text,
    role_of,
    text_of_events,
    tool_calls,
    tool_responses,
)
from spanscore.core.codecs.text import as_text, jsonable
from spanscore.samples.texts import (
    are_messages,
    contains_words,
    has_text_records,
    scalar_text,
    text_of,
    texts_by_path,
    texts_in_lists,
    texts_under_keys,
    with_message_texts,
)
from spanscore.samples.view import (
    GenAIMessage,
    ModelRun,
    RootValue,
    UnitView,
    calls_tools,
    is_human,
    is_resume,
    last_human_in_steps,
    last_human_text,
    messages_of_turn,
)

# --- texts of models ------------------------------------------------------------------------------------------------

_SENTENCE_CHARS = 16
"""Length in characters from which on a text counts as a sentence. Shorter texts, such as ``yes``, are in many prompts."""
_SENTENCE_WORDS = 3
"""Number of words from which on a shorter text counts as a sentence."""
_MOST_RUNS = 64
"""Number of the last runs that are searched for answers in the prompt of another run."""
_FENCED = re.compile(r"```(?:json)?\s*(.*?)\s*```", re.DOTALL)


class ModelTexts:
    """The texts in the prompts and answers of a unit's models. Texts are compared without surrounding white space.

    Args:
        view: the unit; models inside a tool are not read.
    """

    def __init__(self, view: UnitView) -> None:
        self._runs = view.models
        self._answers = [(final_text(run.output) or "").strip() for run in self._runs]

    @cached_property
    def _prompts(self) -> list[str]:
        # Read on first need, because each of an agent's prompts repeats all earlier messages.
        return [_prompt_of(run) for run in self._runs]

    @cached_property
    def _structures(self) -> list[list[Mapping[str, Any]]]:
        return [_structures(run.output, answer) for run, answer in zip(self._runs, self._answers, strict=True)]

    @cached_property
    def _fields(self) -> frozenset[str]:
        structures = (structure for of_run in self._structures for structure in of_run)
        return frozenset(leaf for structure in structures for leaf in _leaves(structure))

    def only_prompted_text(self, texts: Collection[str], answer_run: ModelRun | None) -> str | None:
        """Return the first text that is the only one of ``texts`` in one of these places; None without such a text.

        1. any prompt
        2. the last human messages of prompts, as a whole
        3. the last human messages of prompts, as a part
        4. the prompt of ``answer_run``; only for a sentence, because settings such as a language are next to the question
        """
        matching = ([text for text in texts if is_there(text)] for is_there in self._searches())
        only_text = next((found_texts[0] for found_texts in matching if len(found_texts) == 1), None)
        if only_text is not None or answer_run is None:
            return only_text
        prompted = [text for text in texts if contains_words(_prompt_of(answer_run), text)]
        return prompted[0] if len(prompted) == 1 and _is_sentence(prompted[0]) else None

    def _searches(self) -> Sequence[Callable[[str], bool]]:
        human_texts = [text for run in self._runs if (text := last_human_text(run.input))]
        return (
            lambda text: any(contains_words(prompt, text) for prompt in self._prompts),
            lambda text: text.strip() in map(str.strip, human_texts),
            lambda text: any(contains_words(human, text) for human in human_texts),
        )

    def prompts_contain(self, texts: Collection[str]) -> bool:
        """Return whether prompts contain all of the texts."""
        return bool(texts) and all(any(contains_words(prompt, text) for prompt in self._prompts) for text in texts)

    def is_whole_answer(self, text: str) -> bool:
        """Return whether the text is the whole answer of a model."""
        return text.strip() in self._answers

    def is_in_answer(self, text: str) -> bool:
        """Return whether the text is a part of a model's answer, or a field of a structured answer."""
        return self.is_answer_field(text) or any(contains_words(answer, text) for answer in self._answers)

    def is_answer_field(self, text: str) -> bool:
        """Return whether the text is a field of a structured answer."""
        return text.strip() in self._fields

    def is_written_by_model(self, text: str) -> bool:
        """Return whether the text is the whole answer of a model, or a field of one."""
        return self.is_whole_answer(text) or self.is_answer_field(text)

    def contains_answer(self, text: str) -> bool:
        """Return whether the text contains the whole answer of a model."""
        return any(contains_words(text, answer) for answer in self._answers)

    def is_structured_answer(self, value: Any) -> bool:
        """Return whether a dict is a model's structured answer of several fields, without other texts."""
        return any(_is_same_structure(structure, value) for of_run in self._structures for structure in of_run)

    def run_with_answer(self, answer: str | None) -> ModelRun | None:
        """Return the last run that gave the answer, otherwise the only run; None if there is no such run."""
        if answer is None:
            return None
        text = answer.strip()
        if text and text in self._answers:
            return self._runs[-1 - self._answers[::-1].index(text)]
        for run, structures in [*zip(self._runs, self._structures, strict=True)][::-1]:
            if any(text in _leaves(structure) or text == as_text(structure) for structure in structures):
                return run
        return self._runs[0] if len(self._runs) == 1 else None

    def contributing_runs(self, answer_run: ModelRun) -> list[tuple[ModelRun, str]]:
        """Return a run and the runs whose answers its prompt contains, each with its prompt.

        The runs whose answers are in those prompts follow, and so on: an application may have each document summarised.
        """
        contributing = [(answer_run, _prompt_of(answer_run))]
        for run, prompt, answer in list(zip(self._runs, self._prompts, self._answers, strict=True))[-_MOST_RUNS:][::-1]:
            if run is not answer_run and any(_contains_answer(reached, answer) for _, reached in contributing):
                contributing.append((run, prompt))
        return contributing


def final_text(turn: Sequence[GenAIMessage]) -> str | None:
    """Return the text of a turn's last message if it is the assistant's, or a tool's that answers instead of the assistant."""
    if not turn:
        return None
    last = turn[-1]
    role = role_of(last.get("role"))
    if role == TOOL:
        responses = tool_responses(last)
        return responses[-1].content if responses else None
    if role != ASSISTANT:
        return None
    text = message_text(last)
    return None if not text and call_names_and_ids(last) else text


def _contains_answer(prompt: str, answer: str) -> bool:
    """Return whether a prompt contains a model's answer; a short answer must be a line or the end of a line."""
    if not answer or answer not in prompt:
        return False
    if len(answer) >= _SENTENCE_CHARS:
        return True
    return re.search(rf"(?:\A|[:\n])[ \t\"'`]*{re.escape(answer)}[ \t\"'`]*(?:\n|\Z)", prompt) is not None


def _is_sentence(text: str) -> bool:
    return len(text) >= _SENTENCE_CHARS or len(text.split()) >= _SENTENCE_WORDS


def _prompt_of(run: ModelRun) -> str:
    """Return all text of a model's input, including the answers of tools."""
    return "\n".join(text for message in run.input for text in _texts_in_message(message))


def _texts_in_message(message: GenAIMessage) -> Iterator[str]:
    text = message_text(message)
    if text:
        yield text
    if role_of(message.get("role")) == TOOL or not text:
        yield from (response.content for response in tool_responses(message))


def _structures(messages: Sequence[GenAIMessage], answer: str) -> list[Mapping[str, Any]]:
    """Return the structured answers of a run: the arguments of its calls, and JSON as its answer."""
    arguments: list[Mapping[str, Any]] = [call.args for message in messages for call in tool_calls(message)]
    parsed = _parse_object(answer)
    return [*arguments, parsed] if isinstance(parsed, dict) else arguments


def _parse_object(text: str) -> Any:
    fenced = _FENCED.fullmatch(text) if text.startswith("```") else None
    inner = (fenced[1] if fenced else text).strip()
    if not inner.startswith("{"):
        return None
    try:
        return jsonable(json.loads(inner, parse_constant=str))
    except (ValueError, RecursionError):
        return None


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)


def _is_same_structure(structure: Mapping[str, Any], value: Any) -> bool:
    if not structure or not isinstance(value, dict) or len(value) <= 1:
        return False
    rest = {name: inner for name, inner in value.items() if name not in structure}
    return all(name in value and value[name] == inner for name, inner in structure.items()) and not any(_leaves(rest))


# --- question and answer --------------------------------------------------------------------------------------------

# Question and answer come from the unit's root, or else from a model's prompt and answer. The first row that applies counts:
#
#                      question                                answer
# 1  messages          the input's last human message          the output's last message
# 2  known keys        QUESTION_KEYS of the input              ANSWER_KEYS of the output
# 3  the only text     of the input                            of the output, without the texts of the input
# 4  one of several    the only one in a prompt                a model's whole answer, or a field of it
# 5  all texts         as JSON, if prompts contain them        as JSON, if models wrote them
# 6  ambiguous         no sample                               no sample
#
# If a graph continues with an existing state (``Command(resume=…)``, a checkpoint), the output also has the user's messages of
# earlier requests. Then the question is a text that no model wrote in this run, and the answer is a text that a model wrote in
# this run.

QUESTION_KEYS = ("question", "query", "input", "user_input")
ANSWER_KEYS = ("answer", "output", "result", "response", "generation", "final_answer")
_QUESTION_PLACES = (
    f"root input: messages, keys {', '.join(QUESTION_KEYS)}, its one text; root output: messages, keys; model runs"
)
_ANSWER_PLACES = f"root output: messages of this turn, keys {', '.join(ANSWER_KEYS)}, its one text; model runs"
_MESSAGES = "messages"
_WITH_RAW = {"raw", "parsed", "parsing_error"}
"""Keys of the output of ``with_structured_output(…, include_raw=True)``."""


class TextSource(StrEnum):
    """The way in which a question or an answer was found, the most certain first."""

    EXTRACT = "extract"
    MESSAGES = "messages"
    KEYS = "keys"
    ONLY_TEXT = "only_text"
    MATCHED = "matched"
    OBJECT = "object"
    MODEL = "model"


@dataclass(slots=True)
class TextMatch:
    """The result of a search for a question, an answer or contexts; or a possible result.

    Attributes:
        value: the found value; None = not found.
        source: the way in which it was found; None if it was not found, and for contexts.
        ambiguous: key paths of equally likely texts, because of which no value was found; empty otherwise.
        searched: the searched places, in order; empty for a possible result.
    """

    value: Any
    source: TextSource | None = None
    ambiguous: tuple[str, ...] = ()
    searched: str = ""


def question_in(view: UnitView, model_texts: ModelTexts, answer_run: ModelRun | None) -> TextMatch:
    """Find the text of the question. ``answer_run`` is the run that gave the answer; None = unknown."""
    return _first_text(_questions(view, model_texts, answer_run), _QUESTION_PLACES)


def answer_in(view: UnitView, model_texts: ModelTexts) -> TextMatch:
    """Find the text of the answer. An empty answer counts as an answer."""
    return _first_text(_answers(view, model_texts), _ANSWER_PLACES)


def question_text(value: Any) -> str | None:
    """Return the question in a value: the last human message, the value of a known key, or the only text."""
    if are_messages(value):
        return last_human_text(value)
    texts = set(texts_by_path(value).values())
    only_text = texts.pop() if len(texts) == 1 else None
    return next(texts_under_keys(value, QUESTION_KEYS, text_of), None) or only_text or text_of(value)


def answer_text(value: Any) -> str | None:
    """Return the answer in a value: the final message, the value of a known key, or the whole value."""
    if are_messages(value):
        return final_text(messages_of_turn(value))
    return next(texts_under_keys(value, ANSWER_KEYS, text_of), None) or text_of(value)


def _first_text(candidates: Iterable[TextMatch], searched: str) -> TextMatch:
    """Return the first text that is not empty, otherwise an empty text, because a stream starts with ``{"input": ""}``."""
    empty: TextMatch | None = None
    for candidate in candidates:
        if candidate.value or candidate.ambiguous:
            source = None if candidate.ambiguous else candidate.source
            return replace(candidate, source=source, searched=searched)
        empty = candidate if candidate.value is not None and empty is None else empty
    return replace(empty or TextMatch(None), searched=searched)


def _questions(view: UnitView, model_texts: ModelTexts, answer_run: ModelRun | None) -> Iterator[TextMatch]:
    input, output = view.input, view.output
    yield TextMatch(last_human_text(input.messages), TextSource.MESSAGES)
    chosen = TextMatch(None, TextSource.MATCHED)
    if not view.continues_thread:
        yield from _candidates_under_keys(input.value, QUESTION_KEYS, question_text)
        yield TextMatch(scalar_text(input.value), TextSource.ONLY_TEXT)
        chosen = _choose_question(input.value, model_texts, answer_run)
        yield TextMatch(chosen.value, chosen.source)
    yield TextMatch(last_human_text(output.messages), TextSource.MESSAGES)
    yield from _candidates_under_keys(output.value, QUESTION_KEYS, question_text)
    if view.continues_thread:
        earlier_texts = _read_earlier_texts(view, model_texts)
        earlier = _choose_question_text(earlier_texts, model_texts, answer_run)
        question = earlier.value if earlier.value and model_texts.prompts_contain([earlier.value]) else None
        yield TextMatch(question, TextSource.MATCHED, earlier.ambiguous)
        yield TextMatch(last_human_text(view.history or last_human_in_steps(view.unit)), TextSource.MESSAGES)
        if earlier_texts or is_resume(input.value):
            return  # the user's message came with an earlier request; the application wrote the present prompts
    yield chosen
    human_texts = (text for run in view.models if (text := last_human_text(run.input)) is not None)
    yield TextMatch(next(human_texts, None), TextSource.MODEL)


def _candidates_under_keys(value: Any, keys: Sequence[str], read: Callable[[Any], str | None]) -> Iterator[TextMatch]:
    return (TextMatch(text, TextSource.KEYS) for text in texts_under_keys(value, keys, read))


def _read_earlier_texts(view: UnitView, model_texts: ModelTexts) -> dict[str, str]:
    """Return the texts of an existing state that no model wrote in this run and that did not come with the resume."""
    in_input = {*texts_by_path(view.input.value).values(), *texts_in_lists(view.input.value)}
    texts = texts_by_path(view.output.value).items()
    return {path: text for path, text in texts if not (text in in_input or model_texts.is_written_by_model(text))}


def _choose_question(value: Any, model_texts: ModelTexts, answer_run: ModelRun | None) -> TextMatch:
    """Choose between the texts of an input. Next to unread messages, only a text that prompts contain is accepted."""
    texts = texts_by_path(value)
    chosen = _choose_question_text(texts, model_texts, answer_run) if texts else _choose_listed_text(value, model_texts)
    if _has_unread_messages(value) and not (chosen.value and model_texts.prompts_contain([chosen.value])):
        return TextMatch(None, TextSource.MATCHED)
    return chosen


def _choose_question_text(texts: Mapping[str, str], model_texts: ModelTexts, answer_run: ModelRun | None) -> TextMatch:
    """Choose between the texts of an input: the only text, otherwise the only text that a prompt contains."""
    values = list(dict.fromkeys(texts.values()))
    if len(values) <= 1:
        return TextMatch(values[0] if values else None, TextSource.ONLY_TEXT)
    only = model_texts.only_prompted_text(values, answer_run)
    return TextMatch(only, TextSource.MATCHED, () if only is not None else tuple(texts))


def _choose_listed_text(value: Any, model_texts: ModelTexts) -> TextMatch:
    """Return the texts in lists of an input without other texts."""
    texts = texts_in_lists(value)
    if not texts and has_text_records(value):
        return TextMatch(None, TextSource.OBJECT, _keys(value))
    if len(texts) <= 1:
        return TextMatch(texts[0] if texts else None, TextSource.ONLY_TEXT)
    text = as_text(texts) if model_texts.prompts_contain(texts) else None
    return TextMatch(text, TextSource.OBJECT, () if text is not None else _keys(value))


def _keys(value: Any) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, dict) else ("a list",)


def _answers(view: UnitView, model_texts: ModelTexts) -> Iterator[TextMatch]:
    output = view.output
    yield TextMatch(_response_format(output), TextSource.OBJECT)
    yield TextMatch(_final_answer(view.output_of_turn(), model_texts), TextSource.MESSAGES)
    whole = _unwrap_answer(output.value)
    value = _without_input(whole, view.input.value)
    yield from _candidates_under_keys(value, ANSWER_KEYS, answer_text)
    yield TextMatch(message_text(value) if is_message(value) else scalar_text(value), TextSource.ONLY_TEXT)
    if model_texts.is_structured_answer(whole):
        yield TextMatch(as_text(whole), TextSource.OBJECT)
    if view.continues_thread:
        yield _choose_new_answer(value, model_texts)
    else:
        yield _choose_answer(_new_texts(value, view.input), value, model_texts)
    if view.failed and not view.score_failed:
        return  # a model's answer inside a failed run never reached a user
    if view.models:
        last = view.models[-1].output
        yield TextMatch(final_text(last), TextSource.MODEL)
        if calls_tools(last) and not output.messages:
            yield TextMatch(_render_structure(value), TextSource.OBJECT)


def _choose_new_answer(value: Any, model_texts: ModelTexts) -> TextMatch:
    """Choose between the texts of an existing state; a text that no model wrote in this run may be the question."""
    texts = texts_by_path(value)
    if any(model_texts.is_in_answer(text) or model_texts.contains_answer(text) for text in texts.values()):
        return _choose_answer(texts, value, model_texts)
    return TextMatch(None, TextSource.MATCHED, tuple(texts))


def _choose_answer(texts: Mapping[str, str], value: Any, model_texts: ModelTexts) -> TextMatch:
    values = list(dict.fromkeys(texts.values()))
    if not values:
        return TextMatch(_list_of_answers(value, model_texts), TextSource.OBJECT)
    if len(values) == 1:
        return TextMatch(
            None if _is_beside_messages(values[0], value, model_texts) else values[0], TextSource.ONLY_TEXT
        )
    whole = [text for text in values if model_texts.is_whole_answer(text)]
    chosen = whole or [text for text in values if model_texts.is_answer_field(text)]
    if len(chosen) == 1:
        return TextMatch(chosen[0], TextSource.MATCHED)
    if all(map(model_texts.is_written_by_model, values)):
        return TextMatch(as_text(with_message_texts(value)), TextSource.OBJECT)
    only = _choose_composed_text(values, chosen, model_texts)
    return TextMatch(only, TextSource.MATCHED, () if only is not None else tuple(texts))


def _has_unread_messages(value: Any) -> bool:
    """Return whether a state has messages in an unknown form. A text next to them is then not the whole conversation."""
    return isinstance(value, dict) and has_text_records({_MESSAGES: value.get(_MESSAGES)})


def _is_beside_messages(text: str, value: Any, model_texts: ModelTexts) -> bool:
    """Return whether the only text of an output is next to unread messages, and no model wrote it."""
    return _has_unread_messages(value) and not (model_texts.is_in_answer(text) or model_texts.contains_answer(text))


def _list_of_answers(value: Any, model_texts: ModelTexts) -> str | None:
    """Return an output that has only lists as JSON, if models wrote each of its texts; otherwise None."""
    listed = texts_in_lists(value)
    return as_text(value) if listed and all(map(model_texts.is_in_answer, listed)) else None


def _choose_composed_text(texts: Sequence[str], parts: Sequence[str], model_texts: ModelTexts) -> str | None:
    """Return the only text that contains all answers of models or, without such parts, an answer with a signature."""
    composed = [
        t
        for t in texts
        if (all(contains_words(t, part) for part in parts) if parts else model_texts.contains_answer(t))
    ]
    return composed[0] if len(composed) == 1 else None


def _without_input(output: Any, input: Any) -> Any:
    """Return the output without values that came unchanged with the input; the whole output if nothing else is left."""
    if not isinstance(output, dict) or not input or not isinstance(input, (dict, str)):
        return output
    in_input = input if isinstance(input, dict) else dict.fromkeys(output, input)
    new = {key: value for key, value in output.items() if key not in in_input or in_input[key] != value}
    return new or output


def _new_texts(value: Any, input: RootValue) -> dict[str, str]:
    """Return the texts of an output that are not in the input, and not under the input's keys with another text."""
    by_path = texts_by_path(input.value)
    in_input = {*by_path.values(), scalar_text(input.value), last_human_text(input.messages)}
    new = {path: text for path, text in texts_by_path(value).items() if text not in in_input}
    return {path: text for path, text in new.items() if path not in by_path} or new


def _final_answer(turn: Sequence[GenAIMessage], model_texts: ModelTexts) -> str | None:
    """Return the text of a turn's last message; an agent may pass its answer to the next one as a human message."""
    text = message_text(turn[-1]) if turn and is_human(turn[-1]) else None
    return text if text and model_texts.is_whole_answer(text) else final_text(turn)


def _response_format(output: RootValue) -> str | None:
    """Return the answer of a LangChain agent with a response format if its last message only announces it, otherwise None."""
    turn = messages_of_turn(output.messages)
    if not turn or role_of(turn[-1].get("role")) != TOOL or not isinstance(output.value, dict):
        return None
    return _render_structure(output.value.get("structured_response"))


def _render_structure(value: Any) -> str | None:
    """Return a parsed answer as JSON, because a model that must return a structure does so by a tool call."""
    return as_text(value) if isinstance(value, (dict, list)) and value and not is_message(value) else None


def _unwrap_answer(value: Any) -> Any:
    """Return the parsed answer next to a raw message, or that message; of server-sent events, the words."""
    if type(value) is str:
        return text_of_events(value)
    if not isinstance(value, dict) or value.keys() != _WITH_RAW:
        return value
    return value["raw"] if value["parsed"] is None else value["parsed"]
