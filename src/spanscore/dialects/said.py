"""Said: what the models of a unit were asked, and what they answered, as the rules ask for it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from spanscore.core.codecs.messages import (
    ASSISTANT,
    TOOL,
    calls_by_id,
    message_text,
    role_of,
    tool_calls,
    tool_responses,
)
from spanscore.core.codecs.text import as_text, jsonable
from spanscore.dialects.texts import holds
from spanscore.dialects.view import GenAIMessage, ModelRun, View, last_human_text

__all__ = ["Said", "final_text"]

_A_SENTENCE = 16
"""Characters from which on an answer is recognised in another prompt: ``yes`` stands in many."""
_WORDS = 3
"""Words from which on a shorter text is a sentence."""
_MOST_RUNS = 64
"""Runs searched for what stands behind an answer: each is searched in all that were found."""
_FENCED = re.compile(r"```(?:json)?\s*(.*?)\s*```", re.DOTALL)


class Said:
    """What stands in the prompts and answers of a unit's models. Texts are compared without the blanks around them.

    Args:
        view: whose models are read; a model inside a tool is not among them.
    """

    def __init__(self, view: View) -> None:
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
