"""The question and answer of a unit, from its root or from what its models were asked and answered."""

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
    tool_calls,
    tool_responses,
    words_of,
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

# --- said -----------------------------------------------------------------------------------------------------------

_A_SENTENCE = 16
"""Characters from which on an answer is recognised in another prompt: ``yes`` stands in many."""
_WORDS = 3
"""Words from which on a shorter text is a sentence."""
_MOST_RUNS = 64
"""Runs searched for what stands behind an answer: each is searched in all that were found."""
_FENCED = re.compile(r"```(?:json)?\s*(.*?)\s*```", re.DOTALL)


class ModelTexts:
    """What stands in the prompts and answers of a unit's models. Texts are compared without the blanks around them.

    Args:
        view: whose models are read; a model inside a tool is not among them.
    """

    def __init__(self, view: UnitView) -> None:
        self._runs = view.models
        self._words = [(final_text(run.said) or "").strip() for run in self._runs]

    @cached_property
    def _prompts(self) -> list[str]:
        # Only where asked for: each of an agent's prompts holds all before it.
        return [_prompt_of(run) for run in self._runs]

    @cached_property
    def _structures(self) -> list[list[Mapping[str, Any]]]:
        return [_structures(run.said, words) for run, words in zip(self._runs, self._words, strict=True)]

    @cached_property
    def _fields(self) -> frozenset[str]:
        return frozenset(leaf for structures in self._structures for one in structures for leaf in _leaves(one))

    def only_asked(self, texts: Collection[str], answering: ModelRun | None) -> str | None:
        """Return the one of several texts that prompts contain: any prompt, else a human message, else that of the answer.

        There it must be a sentence: a language or a tone stands beside what was asked.
        """
        found = ([text for text in texts if stands(text)] for stands in self._places())
        only = next((one[0] for one in found if len(one) == 1), None)
        if only is not None or answering is None:
            return only
        answered = [text for text in texts if holds(_prompt_of(answering), text)]
        return answered[0] if len(answered) == 1 and _is_sentence(answered[0]) else None

    def _places(self) -> Sequence[Callable[[str], bool]]:
        heard = [text for run in self._runs if (text := last_human_text(run.asked))]
        return (
            lambda text: any(holds(prompt, text) for prompt in self._prompts),
            lambda text: text.strip() in map(str.strip, heard),
            lambda text: any(holds(human, text) for human in heard),
        )

    def asked_for(self, texts: Collection[str]) -> bool:
        """Whether prompts contain all of the texts."""
        return bool(texts) and all(any(holds(prompt, text) for prompt in self._prompts) for text in texts)

    def whole(self, text: str) -> bool:
        """Whether it is all that a model answered."""
        return text.strip() in self._words

    def mentions(self, text: str) -> bool:
        """Whether it stands in what a model answered, in its words or in its structure."""
        return self.field(text) or any(holds(words, text) for words in self._words)

    def field(self, text: str) -> bool:
        """Whether it is a field of a structured answer."""
        return text.strip() in self._fields

    def answered(self, text: str) -> bool:
        """Whether it is all that a model answered, or a field of that."""
        return self.whole(text) or self.field(text)

    def finished(self, text: str) -> bool:
        """Whether it holds the whole of what a model answered, with something around it."""
        return any(holds(text, words) for words in self._words)

    def structure(self, value: Any) -> bool:
        """Whether a dict is a structured answer of several fields: the model gave them, and beside them it holds no text."""
        return any(_same(one, value) for structures in self._structures for one in structures)

    def answering(self, answer: str | None) -> ModelRun | None:
        """Return the last run that gave the answer, the only run there is, or None where that cannot be told."""
        if answer is None:
            return None
        text = answer.strip()
        if text and text in self._words:
            return self._runs[-1 - self._words[::-1].index(text)]
        for run, structures in [*zip(self._runs, self._structures, strict=True)][::-1]:
            if any(text in _leaves(one) or text == as_text(one) for one in structures):
                return run
        return self._runs[0] if len(self._runs) == 1 else None

    def prompts_behind(self, answering: ModelRun) -> str:
        """Return the prompts of ``runs_behind``, joined."""
        return "\n".join(prompt for _, prompt in self._behind(answering))

    def runs_behind(self, answering: ModelRun) -> list[ModelRun]:
        """Return a run, and the runs whose answers stand in its prompt: documents are read one by one, too."""
        return [run for run, _ in self._behind(answering)]

    def _behind(self, answering: ModelRun) -> list[tuple[ModelRun, str]]:
        behind = [(answering, _prompt_of(answering))]
        for run, prompt, words in list(zip(self._runs, self._prompts, self._words, strict=True))[-_MOST_RUNS:][::-1]:
            if run is not answering and any(_quotes(reached, words) for _, reached in behind):
                behind.append((run, prompt))
        return behind


def final_text(turn: Sequence[GenAIMessage]) -> str | None:
    """Return the text of a turn's last message: the assistant's, or that of a tool which answers for it."""
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
    """Whether a prompt holds what a model said: a short text, which may stand anywhere, only as a line's whole end or alone."""
    if not words or words not in prompt:
        return False
    if len(words) >= _A_SENTENCE:
        return True
    return re.search(rf"(?:\A|[:\n])[ \t\"'`]*{re.escape(words)}[ \t\"'`]*(?:\n|\Z)", prompt) is not None


def _is_sentence(text: str) -> bool:
    return len(text) >= _A_SENTENCE or len(text.split()) >= _WORDS


def _prompt_of(run: ModelRun) -> str:
    """Return all the text of a model's input, the answers of tools included."""
    return "\n".join(text for message in run.asked for text in _texts_of(message))


def _texts_of(message: GenAIMessage) -> Iterator[str]:
    text = message_text(message)
    if text:
        yield text
    if role_of(message.get("role")) == TOOL or not text:
        yield from (response.content for response in tool_responses(message))


def _structures(said: Sequence[GenAIMessage], words: str) -> list[Mapping[str, Any]]:
    """Return the structured answers of a run: the arguments of what it calls, and JSON in its last words."""
    called: list[Mapping[str, Any]] = [call.args for message in said for call in tool_calls(message)]
    parsed = _parsed(words)
    return [*called, parsed] if isinstance(parsed, dict) else called


def _parsed(text: str) -> Any:
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

# The user's turn: question and answer of a unit. Those of its root; a model's prompt or words only where the root holds
# none.
#
# 1  messages         the last human one of the input; the final one of the turn in the output
# 2  known keys       QUESTION_KEYS of the input; ANSWER_KEYS of the output
# 3  the only text    of the side; in the output, less the texts that the input holds too
# 4  one of several   that a prompt contains (question); that a model said as its whole answer, else as a field (answer)
# 5  all of them      as JSON: an output of which models said each text, a list of texts that prompts contain
# 6  none             the side is ambiguous: no sample is better than a wrong one
#
# Where a graph goes on with a state that was there already (``Command(resume=…)``, a checkpoint), the output holds what the
# user gave with an earlier request: there the question is a text that no model said now, and the answer one that a model
# said now.

QUESTION_KEYS = ("question", "query", "input", "user_input")
ANSWER_KEYS = ("answer", "output", "result", "response", "generation", "final_answer")
_QUESTION_PLACES = (
    f"root input: messages, keys {', '.join(QUESTION_KEYS)}, its one text; root output: messages, keys; model runs"
)
_ANSWER_PLACES = f"root output: messages of this turn, keys {', '.join(ANSWER_KEYS)}, its one text; model runs"
_MESSAGES = "messages"
_WITH_RAW = {"raw", "parsed", "parsing_error"}
"""What ``with_structured_output(…, include_raw=True)`` answers."""


class TextSource(StrEnum):
    """How a question or an answer was found, from the surest on."""

    MESSAGES = "messages"
    KEYS = "keys"
    ONLY_TEXT = "only_text"
    MATCHED = "matched"
    OBJECT = "object"
    MODEL = "model"
    EXTRACT = "extract"


@dataclass(slots=True)
class TextMatch:
    """What a search found.

    Attributes:
        value: None where it found nothing.
        searched: the places, in order.
        source: how it was found; None where nothing was, and of contexts.
        torn: the key paths between which nothing could be told; empty where that is not why nothing was found.
    """

    value: Any
    searched: str
    source: TextSource | None = None
    torn: tuple[str, ...] = ()


class _Guess(NamedTuple):
    text: str | None
    source: TextSource
    torn: tuple[str, ...] = ()


def question_in(view: UnitView, said: ModelTexts, answering: ModelRun | None) -> TextMatch:
    """Find the question: a text. ``answering`` is what ``ModelTexts.answering`` tells of the answer."""
    return _best(_questions(view, said, answering), _QUESTION_PLACES)


def answer_in(view: UnitView, said: ModelTexts) -> TextMatch:
    """Find the answer: a text. An empty answer is one."""
    return _best(_answers(view, said), _ANSWER_PLACES)


def question_text(value: Any) -> str | None:
    """Return what a value asks: of messages the last human one, of a dict what stands under a known key, or its one text."""
    if are_messages(value):
        return last_human_text(value)
    return next(keyed(value, QUESTION_KEYS, text_of), None) or _only(value) or text_of(value)


def answer_text(value: Any) -> str | None:
    """Return what a value answers: of messages the final one, of a dict what stands under a known key, else all of it."""
    if are_messages(value):
        return final_text(turn_of(value))
    return next(keyed(value, ANSWER_KEYS, text_of), None) or text_of(value)


def _best(guesses: Iterable[_Guess], searched: str) -> TextMatch:
    """Take the first text that is not empty, else an empty one: a stream's start gives ``{"input": ""}``."""
    empty: _Guess | None = None
    for guess in guesses:
        if guess.text or guess.torn:
            return TextMatch(guess.text, searched, None if guess.torn else guess.source, guess.torn)
        empty = guess if guess.text is not None and empty is None else empty
    return TextMatch(None, searched) if empty is None else TextMatch(empty.text, searched, empty.source)


def _questions(view: UnitView, said: ModelTexts, answering: ModelRun | None) -> Iterator[_Guess]:
    input, output = view.input, view.output
    yield _Guess(last_human_text(input.messages), TextSource.MESSAGES)
    torn = _Guess(None, TextSource.MATCHED)
    if not view.goes_on:
        yield from (_Guess(text, TextSource.KEYS) for text in keyed(input.value, QUESTION_KEYS, question_text))
        yield _Guess(scalar(input.value), TextSource.ONLY_TEXT)
        torn = _asked_in(input.value, said, answering)
        yield _Guess(torn.text, torn.source)
    yield _Guess(last_human_text(output.messages), TextSource.MESSAGES)
    yield from (_Guess(text, TextSource.KEYS) for text in keyed(output.value, QUESTION_KEYS, question_text))
    if view.goes_on:
        held = _held_before(view, said)
        found = _asked_of(held, said, answering)
        asked = found.text if found.text and said.asked_for([found.text]) else None
        yield _Guess(asked, TextSource.MATCHED, found.torn)
        yield _Guess(last_human_text(view.history or asked_before(view.unit)), TextSource.MESSAGES)
        if held or is_resume(input.value):
            return  # the user's words came with an earlier request; a prompt of now is the application's
    yield torn
    heard = (text for run in view.models if (text := last_human_text(run.asked)) is not None)
    yield _Guess(next(heard, None), TextSource.MODEL)


def _held_before(view: UnitView, said: ModelTexts) -> dict[str, str]:
    """Return the texts of a state that was there already: neither said by a model now, nor brought to resume it."""
    brought = {*leaves(view.input.value).values(), *in_lists(view.input.value)}
    texts = leaves(view.output.value).items()
    return {path: text for path, text in texts if not (text in brought or said.answered(text))}


def _asked_in(value: Any, said: ModelTexts, answering: ModelRun | None) -> _Guess:
    """Choose between the texts of an input; beside messages that nobody reads it is one that prompts contain, or none."""
    texts = leaves(value)
    found = _asked_of(texts, said, answering) if texts else _listed(value, said)
    if _has_unread_messages(value) and not (found.text and said.asked_for([found.text])):
        return _Guess(None, TextSource.MATCHED)
    return found


def _asked_of(texts: Mapping[str, str], said: ModelTexts, answering: ModelRun | None) -> _Guess:
    """Choose between the texts of an input: the only one, else the only one that a prompt contains."""
    values = list(dict.fromkeys(texts.values()))
    if len(values) <= 1:
        return _Guess(values[0] if values else None, TextSource.ONLY_TEXT)
    asked = said.only_asked(values, answering)
    return _Guess(asked, TextSource.MATCHED, () if asked is not None else tuple(texts))


def _listed(value: Any, said: ModelTexts) -> _Guess:
    """Take the texts that an input lists, where it holds no other."""
    texts = in_lists(value)
    if not texts and has_records(value):
        return _Guess(None, TextSource.OBJECT, _keys(value))
    if len(texts) <= 1:
        return _Guess(texts[0] if texts else None, TextSource.ONLY_TEXT)
    asked = as_text(texts) if said.asked_for(texts) else None
    return _Guess(asked, TextSource.OBJECT, () if asked is not None else _keys(value))


def _keys(value: Any) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, dict) else ("a list",)


def _only(value: Any) -> str | None:
    texts = set(leaves(value).values())
    return texts.pop() if len(texts) == 1 else None


def _answers(view: UnitView, said: ModelTexts) -> Iterator[_Guess]:
    output = view.output
    yield _Guess(_response_format(output), TextSource.OBJECT)
    yield _Guess(_final(view.turn(), said), TextSource.MESSAGES)
    whole = _unwrapped(output.value)
    value = _less(whole, view.input.value)
    yield from (_Guess(text, TextSource.KEYS) for text in keyed(value, ANSWER_KEYS, answer_text))
    yield _Guess(message_text(value) if is_message(value) else scalar(value), TextSource.ONLY_TEXT)
    if said.structure(whole):
        yield _Guess(as_text(whole), TextSource.OBJECT)
    yield _said_now(value, said) if view.goes_on else _said_of(_own_texts(value, view.input), value, said)
    if view.failed and not view.score_failed:
        return  # what a model said inside of a failed run never reached a user
    if view.models:
        last = view.models[-1].said
        yield _Guess(final_text(last), TextSource.MODEL)
        if calls_tools(last) and not output.messages:
            yield _Guess(_structured(value), TextSource.OBJECT)


def _said_now(value: Any, said: ModelTexts) -> _Guess:
    """Choose between the texts of a state that was there already: one that no model said now may be what was asked."""
    texts = leaves(value)
    if any(said.mentions(text) or said.finished(text) for text in texts.values()):
        return _said_of(texts, value, said)
    return _Guess(None, TextSource.MATCHED, tuple(texts))


def _said_of(texts: Mapping[str, str], value: Any, said: ModelTexts) -> _Guess:
    values = list(dict.fromkeys(texts.values()))
    if not values:
        return _Guess(_list_of_answers(value, said), TextSource.OBJECT)
    if len(values) == 1:
        return _Guess(None if _stands_beside_messages(values[0], value, said) else values[0], TextSource.ONLY_TEXT)
    whole = [text for text in values if said.whole(text)]
    chosen = whole or [text for text in values if said.field(text)]
    if len(chosen) == 1:
        return _Guess(chosen[0], TextSource.MATCHED)
    if all(map(said.answered, values)):
        return _Guess(as_text(worded(value)), TextSource.OBJECT)
    only = _put_together(values, chosen, said)
    return _Guess(only, TextSource.MATCHED, () if only is not None else tuple(texts))


def _has_unread_messages(value: Any) -> bool:
    """Whether a state has messages in a form that is not known: a text beside them is not all that was said."""
    return isinstance(value, dict) and has_records({_MESSAGES: value.get(_MESSAGES)})


def _stands_beside_messages(text: str, value: Any, said: ModelTexts) -> bool:
    """Whether the only text of an output is a side field of messages that nobody reads, and no model said it."""
    return _has_unread_messages(value) and not (said.mentions(text) or said.finished(text))


def _list_of_answers(value: Any, said: ModelTexts) -> str | None:
    """Return an output that holds only lists, as JSON, where models said each of their texts."""
    listed = in_lists(value)
    return as_text(value) if listed and all(map(said.mentions, listed)) else None


def _put_together(texts: Sequence[str], parts: Sequence[str], said: ModelTexts) -> str | None:
    """Return the only text that holds all of what models said, or, where there are no such parts, an answer and a signature."""
    made = [text for text in texts if (all(holds(text, part) for part in parts) if parts else said.finished(text))]
    return made[0] if len(made) == 1 else None


def _less(output: Any, input: Any) -> Any:
    """Return the output without what came in, with the state or as a text, and is unchanged; as it is where no more is left."""
    if not isinstance(output, dict) or not input or not isinstance(input, (dict, str)):
        return output
    brought = input if isinstance(input, dict) else dict.fromkeys(output, input)
    own = {key: value for key, value in output.items() if key not in brought or brought[key] != value}
    return own or output


def _own_texts(value: Any, input: RootValue) -> dict[str, str]:
    """Return the texts of an output that are not the input's: neither its texts, nor what was rewritten under its keys."""
    brought = leaves(input.value)
    held = {*brought.values(), scalar(input.value), last_human_text(input.messages)}
    own = {path: text for path, text in leaves(value).items() if text not in held}
    return {path: text for path, text in own.items() if path not in brought} or own


def _final(turn: Sequence[GenAIMessage], said: ModelTexts) -> str | None:
    """Return the text of a turn's last message; an agent may put what it said to the next one as a human's."""
    text = message_text(turn[-1]) if turn and is_human(turn[-1]) else None
    return text if text and said.whole(text) else final_text(turn)


def _response_format(output: RootValue) -> str | None:
    """Return what a LangChain agent with a response format answers, where its last message only says that it does."""
    turn = turn_of(output.messages)
    if not turn or role_of(turn[-1].get("role")) != TOOL or not isinstance(output.value, dict):
        return None
    return _structured(output.value.get("structured_response"))


def _structured(value: Any) -> str | None:
    """Return a parsed answer as JSON: a model that was asked for a structure gives it as a tool call."""
    return as_text(value) if isinstance(value, (dict, list)) and value and not is_message(value) else None


def _unwrapped(value: Any) -> Any:
    """Return the parsed answer of one that came with its raw message, else that message; of server-sent events their words."""
    if type(value) is str:
        return words_of(value)
    if not isinstance(value, dict) or value.keys() != _WITH_RAW:
        return value
    return value["raw"] if value["parsed"] is None else value["parsed"]
