"""Finds the question and the answer of a unit, in its root or in the inputs and outputs of its models."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from spanscore.core.codecs.messages import (
    ASSISTANT,
    TOOL,
    calls_by_id,
    is_message,
    message_text,
    role_of,
    text_of_events,
    tool_calls,
    tool_responses,
)
from spanscore.core.codecs.text import as_text, jsonable
from spanscore.samples.texts import are_messages, has_records, holds, in_lists, keyed, leaves, scalar, text_of, worded
from spanscore.samples.view import (
    GenAIMessage,
    ModelRun,
    RootValue,
    UnitView,
    asked_before,
    calls_tools,
    is_human,
    is_resume,
    last_human_text,
    turn_of,
)

# --- texts of models ------------------------------------------------------------------------------------------------

_A_SENTENCE = 16
"""Smallest length in characters at which an answer is searched in another prompt: ``yes`` is in many prompts."""
_WORDS = 3
"""Number of words from which on a shorter text is a sentence."""
_MOST_RUNS = 64
"""Number of runs that are searched for the runs behind an answer; each is compared with all found runs."""
_FENCED = re.compile(r"```(?:json)?\s*(.*?)\s*```", re.DOTALL)


class ModelTexts:
    """The texts in the prompts and answers of a unit's models. Texts are compared without surrounding white space.

    Args:
        view: the unit; models inside a tool are not read.
    """

    def __init__(self, view: UnitView) -> None:
        self._runs = view.models
        self._words = [(final_text(run.said) or "").strip() for run in self._runs]

    @cached_property
    def _prompts(self) -> list[str]:
        # On first need: each of an agent's prompts repeats all earlier messages.
        return [_prompt_of(run) for run in self._runs]

    @cached_property
    def _structures(self) -> list[list[Mapping[str, Any]]]:
        return [_structures(run.said, words) for run, words in zip(self._runs, self._words, strict=True)]

    @cached_property
    def _fields(self) -> frozenset[str]:
        return frozenset(leaf for structures in self._structures for each in structures for leaf in _leaves(each))

    def only_asked(self, texts: Collection[str], answering: ModelRun | None) -> str | None:
        """Return the only text that any prompt contains; or else that a human message contains; or else the answer's prompt.

        In the answer's prompt it must be a sentence, because settings such as a language or a tone are next to the question.
        """
        found = ([text for text in texts if matches(text)] for matches in self._places())
        only = next((one[0] for one in found if len(one) == 1), None)
        if only is not None or answering is None:
            return only
        answered = [text for text in texts if holds(_prompt_of(answering), text)]
        return answered[0] if len(answered) == 1 and _is_sentence(answered[0]) else None

    def _places(self) -> Sequence[Callable[[str], bool]]:
        human_texts = [text for run in self._runs if (text := last_human_text(run.asked))]
        return (
            lambda text: any(holds(prompt, text) for prompt in self._prompts),
            lambda text: text.strip() in map(str.strip, human_texts),
            lambda text: any(holds(human, text) for human in human_texts),
        )

    def prompts_contain(self, texts: Collection[str]) -> bool:
        """Return whether prompts contain all of the texts."""
        return bool(texts) and all(any(holds(prompt, text) for prompt in self._prompts) for text in texts)

    def whole(self, text: str) -> bool:
        """Return whether the text is the whole answer of a model."""
        return text.strip() in self._words

    def mentions(self, text: str) -> bool:
        """Return whether the text is in an answer of a model, in its words or in its structure."""
        return self.field(text) or any(holds(words, text) for words in self._words)

    def field(self, text: str) -> bool:
        """Return whether the text is a field of a structured answer."""
        return text.strip() in self._fields

    def answered(self, text: str) -> bool:
        """Return whether the text is the whole answer of a model, or a field of one."""
        return self.whole(text) or self.field(text)

    def finished(self, text: str) -> bool:
        """Return whether the text contains the whole answer of a model, with other text around it."""
        return any(holds(text, words) for words in self._words)

    def structure(self, value: Any) -> bool:
        """Return whether a dict is a model's structured answer of several fields, without other texts."""
        return any(_same(one, value) for structures in self._structures for one in structures)

    def answering(self, answer: str | None) -> ModelRun | None:
        """Return the last run that gave the answer, otherwise the only run; None if there is no such run."""
        if answer is None:
            return None
        text = answer.strip()
        if text and text in self._words:
            return self._runs[-1 - self._words[::-1].index(text)]
        for run, structures in [*zip(self._runs, self._structures, strict=True)][::-1]:
            if any(text in _leaves(structure) or text == as_text(structure) for structure in structures):
                return run
        return self._runs[0] if len(self._runs) == 1 else None

    def prompts_behind(self, answering: ModelRun) -> str:
        """Return the prompts of ``runs_behind``, joined."""
        return "\n".join(prompt for _, prompt in self._behind(answering))

    def runs_behind(self, answering: ModelRun) -> list[ModelRun]:
        """Return a run, and the runs whose answers are in its prompt, because documents may be read one by one."""
        return [run for run, _ in self._behind(answering)]

    def _behind(self, answering: ModelRun) -> list[tuple[ModelRun, str]]:
        behind = [(answering, _prompt_of(answering))]
        for run, prompt, words in list(zip(self._runs, self._prompts, self._words, strict=True))[-_MOST_RUNS:][::-1]:
            if run is not answering and any(_quotes(reached, words) for _, reached in behind):
                behind.append((run, prompt))
        return behind


def final_text(turn: Sequence[GenAIMessage]) -> str | None:
    """Return the text of a turn's last message, if it is the assistant's, or a tool's that answers instead of the assistant."""
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
    return None if not text and calls_by_id(last) else text


def _quotes(prompt: str, words: str) -> bool:
    """Return whether a prompt contains a model's answer; a short answer must be a line or the end of a line."""
    if not words or words not in prompt:
        return False
    if len(words) >= _A_SENTENCE:
        return True
    return re.search(rf"(?:\A|[:\n])[ \t\"'`]*{re.escape(words)}[ \t\"'`]*(?:\n|\Z)", prompt) is not None


def _is_sentence(text: str) -> bool:
    return len(text) >= _A_SENTENCE or len(text.split()) >= _WORDS


def _prompt_of(run: ModelRun) -> str:
    """Return all text of a model's input, including the answers of tools."""
    return "\n".join(text for message in run.asked for text in _texts_of(message))


def _texts_of(message: GenAIMessage) -> Iterator[str]:
    text = message_text(message)
    if text:
        yield text
    if role_of(message.get("role")) == TOOL or not text:
        yield from (response.content for response in tool_responses(message))


def _structures(messages: Sequence[GenAIMessage], words: str) -> list[Mapping[str, Any]]:
    """Return the structured answers of a run: the arguments of its calls, and JSON in its last text."""
    called: list[Mapping[str, Any]] = [call.args for message in messages for call in tool_calls(message)]
    parsed = _parse_object(words)
    return [*called, parsed] if isinstance(parsed, dict) else called


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


def _same(structure: Mapping[str, Any], value: Any) -> bool:
    if not structure or not isinstance(value, dict) or len(value) <= 1:
        return False
    rest = {name: inner for name, inner in value.items() if name not in structure}
    return all(name in value and value[name] == inner for name, inner in structure.items()) and not any(_leaves(rest))


# --- turn -----------------------------------------------------------------------------------------------------------

# The user's turn: question and answer of a unit, from its root; if the root has none, from a model's prompt or answer.
#
# 1  messages         the last human message of the input; the final message of the turn in the output
# 2  known keys       QUESTION_KEYS of the input; ANSWER_KEYS of the output
# 3  the only text    of the input; of the output, without texts that the input has, too
# 4  one of several   in a prompt (question); the whole answer of a model, or a field of such an answer (answer)
# 5  all texts        as JSON: an output of texts that models wrote, a list of texts that prompts contain
# 6  no text          the value is ambiguous: no sample is better than a wrong one
#
# If a graph continues with an existing state (``Command(resume=…)``, a checkpoint), the output has the user's messages of
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
    """The result of a search.

    Attributes:
        value: the found value; None = not found.
        searched: the searched places, in order.
        source: the way in which it was found; None if it was not found, and for contexts.
        torn: key paths of equally likely texts, which are the reason for finding nothing; empty otherwise.
    """

    value: Any
    searched: str
    source: TextSource | None = None
    torn: tuple[str, ...] = ()


class _Guess(NamedTuple):
    text: str | None
    source: TextSource
    torn: tuple[str, ...] = ()


def question_in(view: UnitView, model_texts: ModelTexts, answering: ModelRun | None) -> TextMatch:
    """Find the text of the question. ``answering`` is the run that gave the answer; None = unknown."""
    return _best(_questions(view, model_texts, answering), _QUESTION_PLACES)


def answer_in(view: UnitView, model_texts: ModelTexts) -> TextMatch:
    """Find the text of the answer. An empty answer counts as an answer."""
    return _best(_answers(view, model_texts), _ANSWER_PLACES)


def question_text(value: Any) -> str | None:
    """Return the question in a value: the last human message, the value of a known key, or the only text."""
    if are_messages(value):
        return last_human_text(value)
    return next(keyed(value, QUESTION_KEYS, text_of), None) or _only(value) or text_of(value)


def answer_text(value: Any) -> str | None:
    """Return the answer in a value: the final message, the value of a known key, or the whole value."""
    if are_messages(value):
        return final_text(turn_of(value))
    return next(keyed(value, ANSWER_KEYS, text_of), None) or text_of(value)


def _best(guesses: Iterable[_Guess], searched: str) -> TextMatch:
    """Return the first text that is not empty, otherwise an empty text, because a stream starts with ``{"input": ""}``."""
    empty: _Guess | None = None
    for guess in guesses:
        if guess.text or guess.torn:
            return TextMatch(guess.text, searched, None if guess.torn else guess.source, guess.torn)
        empty = guess if guess.text is not None and empty is None else empty
    return TextMatch(None, searched) if empty is None else TextMatch(empty.text, searched, empty.source)


def _questions(view: UnitView, model_texts: ModelTexts, answering: ModelRun | None) -> Iterator[_Guess]:
    input, output = view.input, view.output
    yield _Guess(last_human_text(input.messages), TextSource.MESSAGES)
    torn = _Guess(None, TextSource.MATCHED)
    if not view.goes_on:
        yield from (_Guess(text, TextSource.KEYS) for text in keyed(input.value, QUESTION_KEYS, question_text))
        yield _Guess(scalar(input.value), TextSource.ONLY_TEXT)
        torn = _choose_question(input.value, model_texts, answering)
        yield _Guess(torn.text, torn.source)
    yield _Guess(last_human_text(output.messages), TextSource.MESSAGES)
    yield from (_Guess(text, TextSource.KEYS) for text in keyed(output.value, QUESTION_KEYS, question_text))
    if view.goes_on:
        held = _read_earlier_texts(view, model_texts)
        guess = _choose_question_text(held, model_texts, answering)
        asked = guess.text if guess.text and model_texts.prompts_contain([guess.text]) else None
        yield _Guess(asked, TextSource.MATCHED, guess.torn)
        yield _Guess(last_human_text(view.history or asked_before(view.unit)), TextSource.MESSAGES)
        if held or is_resume(input.value):
            return  # the user's message came with an earlier request; the present prompts are from the application
    yield torn
    human_texts = (text for run in view.models if (text := last_human_text(run.asked)) is not None)
    yield _Guess(next(human_texts, None), TextSource.MODEL)


def _read_earlier_texts(view: UnitView, model_texts: ModelTexts) -> dict[str, str]:
    """Return the texts of an existing state that no model wrote in this run and that did not come with the resume."""
    brought = {*leaves(view.input.value).values(), *in_lists(view.input.value)}
    texts = leaves(view.output.value).items()
    return {path: text for path, text in texts if not (text in brought or model_texts.answered(text))}


def _choose_question(value: Any, model_texts: ModelTexts, answering: ModelRun | None) -> _Guess:
    """Choose between the texts of an input. Next to unread messages, only a text that prompts contain is accepted."""
    texts = leaves(value)
    guess = _choose_question_text(texts, model_texts, answering) if texts else _choose_listed_text(value, model_texts)
    if _has_unread_messages(value) and not (guess.text and model_texts.prompts_contain([guess.text])):
        return _Guess(None, TextSource.MATCHED)
    return guess


def _choose_question_text(texts: Mapping[str, str], model_texts: ModelTexts, answering: ModelRun | None) -> _Guess:
    """Choose between the texts of an input: the only text, otherwise the only text that a prompt contains."""
    values = list(dict.fromkeys(texts.values()))
    if len(values) <= 1:
        return _Guess(values[0] if values else None, TextSource.ONLY_TEXT)
    only = model_texts.only_asked(values, answering)
    return _Guess(only, TextSource.MATCHED, () if only is not None else tuple(texts))


def _choose_listed_text(value: Any, model_texts: ModelTexts) -> _Guess:
    """Return the texts in lists of an input without other texts."""
    texts = in_lists(value)
    if not texts and has_records(value):
        return _Guess(None, TextSource.OBJECT, _keys(value))
    if len(texts) <= 1:
        return _Guess(texts[0] if texts else None, TextSource.ONLY_TEXT)
    text = as_text(texts) if model_texts.prompts_contain(texts) else None
    return _Guess(text, TextSource.OBJECT, () if text is not None else _keys(value))


def _keys(value: Any) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, dict) else ("a list",)


def _only(value: Any) -> str | None:
    texts = set(leaves(value).values())
    return texts.pop() if len(texts) == 1 else None


def _answers(view: UnitView, model_texts: ModelTexts) -> Iterator[_Guess]:
    output = view.output
    yield _Guess(_response_format(output), TextSource.OBJECT)
    yield _Guess(_final(view.turn(), model_texts), TextSource.MESSAGES)
    whole = _unwrap_answer(output.value)
    value = _without_input(whole, view.input.value)
    yield from (_Guess(text, TextSource.KEYS) for text in keyed(value, ANSWER_KEYS, answer_text))
    yield _Guess(message_text(value) if is_message(value) else scalar(value), TextSource.ONLY_TEXT)
    if model_texts.structure(whole):
        yield _Guess(as_text(whole), TextSource.OBJECT)
    if view.goes_on:
        yield _choose_new_answer(value, model_texts)
    else:
        yield _choose_answer(_own_texts(value, view.input), value, model_texts)
    if view.failed and not view.score_failed:
        return  # a model's answer inside a failed run never reached a user
    if view.models:
        last = view.models[-1].said
        yield _Guess(final_text(last), TextSource.MODEL)
        if calls_tools(last) and not output.messages:
            yield _Guess(_render_structure(value), TextSource.OBJECT)


def _choose_new_answer(value: Any, model_texts: ModelTexts) -> _Guess:
    """Choose between the texts of an existing state; a text that no model wrote in this run may be the question."""
    texts = leaves(value)
    if any(model_texts.mentions(text) or model_texts.finished(text) for text in texts.values()):
        return _choose_answer(texts, value, model_texts)
    return _Guess(None, TextSource.MATCHED, tuple(texts))


def _choose_answer(texts: Mapping[str, str], value: Any, model_texts: ModelTexts) -> _Guess:
    values = list(dict.fromkeys(texts.values()))
    if not values:
        return _Guess(_list_of_answers(value, model_texts), TextSource.OBJECT)
    if len(values) == 1:
        return _Guess(None if _is_beside_messages(values[0], value, model_texts) else values[0], TextSource.ONLY_TEXT)
    whole = [text for text in values if model_texts.whole(text)]
    chosen = whole or [text for text in values if model_texts.field(text)]
    if len(chosen) == 1:
        return _Guess(chosen[0], TextSource.MATCHED)
    if all(map(model_texts.answered, values)):
        return _Guess(as_text(worded(value)), TextSource.OBJECT)
    only = _choose_composed_text(values, chosen, model_texts)
    return _Guess(only, TextSource.MATCHED, () if only is not None else tuple(texts))


def _has_unread_messages(value: Any) -> bool:
    """Return whether a state has messages in an unknown form. A text next to them is then not the whole conversation."""
    return isinstance(value, dict) and has_records({_MESSAGES: value.get(_MESSAGES)})


def _is_beside_messages(text: str, value: Any, model_texts: ModelTexts) -> bool:
    """Return whether the only text of an output is next to unread messages, and no model wrote it."""
    return _has_unread_messages(value) and not (model_texts.mentions(text) or model_texts.finished(text))


def _list_of_answers(value: Any, model_texts: ModelTexts) -> str | None:
    """Return an output that has only lists as JSON, if models wrote each of its texts; otherwise None."""
    listed = in_lists(value)
    return as_text(value) if listed and all(map(model_texts.mentions, listed)) else None


def _choose_composed_text(texts: Sequence[str], parts: Sequence[str], model_texts: ModelTexts) -> str | None:
    """Return the only text that contains all answers of models or, without such parts, an answer with a signature."""
    made = [t for t in texts if (all(holds(t, part) for part in parts) if parts else model_texts.finished(t))]
    return made[0] if len(made) == 1 else None


def _without_input(output: Any, input: Any) -> Any:
    """Return the output without values that came unchanged with the input; the whole output if nothing else is left."""
    if not isinstance(output, dict) or not input or not isinstance(input, (dict, str)):
        return output
    brought = input if isinstance(input, dict) else dict.fromkeys(output, input)
    own = {key: value for key, value in output.items() if key not in brought or brought[key] != value}
    return own or output


def _own_texts(value: Any, input: RootValue) -> dict[str, str]:
    """Return the texts of an output that are not in the input, and not under the input's keys with another text."""
    brought = leaves(input.value)
    held = {*brought.values(), scalar(input.value), last_human_text(input.messages)}
    own = {path: text for path, text in leaves(value).items() if text not in held}
    return {path: text for path, text in own.items() if path not in brought} or own


def _final(turn: Sequence[GenAIMessage], model_texts: ModelTexts) -> str | None:
    """Return the text of a turn's last message; an agent may pass its answer to the next one as a human message."""
    text = message_text(turn[-1]) if turn and is_human(turn[-1]) else None
    return text if text and model_texts.whole(text) else final_text(turn)


def _response_format(output: RootValue) -> str | None:
    """Return the answer of a LangChain agent with a response format if its last message only announces it, otherwise None."""
    turn = turn_of(output.messages)
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
