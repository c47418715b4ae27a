"""Extract: places given by the user, which replace the search for a field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from spanscore.codec.text import jsonable
from spanscore.dialects.contexts import Contexts, contexts_in
from spanscore.dialects.documents import documents_in
from spanscore.dialects.said import Said
from spanscore.dialects.texts import CONTEXT_KEYS
from spanscore.dialects.turn import Found, Source, answer_in, answer_text, question_in, question_text
from spanscore.dialects.view import ModelRun, Side, View
from spanscore.errors import ConfigurationError
from spanscore.model.foreign import type_name
from spanscore.model.span import CUT, Unit

__all__ = ["Extract", "Place"]

Place: TypeAlias = str | Callable[[Unit], Any]
"""A key path (``"input.question"``, ``"output.docs"``, ``"output.messages.-1"``) or a function of the unit."""

_SIDES = ("input", "output")


@dataclass(frozen=True, slots=True)
class Extract:
    """Where to look, where the usual places do not have it. What is given replaces the search for that field.

    Attributes:
        user_input: the question.
        response: the answer.
        retrieved_contexts: the contexts: texts, documents (``page_content``, ``content`` or ``text``), or one text.
        retrieval_tools: names of tools whose results are contexts; each text a tool gives back is one.

    Raises:
        ConfigurationError: a key path that begins with neither ``input`` nor ``output``.

    Example:
        >>> Extract(user_input="input.request.text", retrieved_contexts="output.passages").retrieval_tools
        ()
    """

    user_input: Place | None = None
    response: Place | None = None
    retrieved_contexts: Place | None = None
    retrieval_tools: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("user_input", "response", "retrieved_contexts"):
            place = getattr(self, name)
            if isinstance(place, str) and place.partition(".")[0] not in _SIDES:
                raise ConfigurationError(f"{name}={place!r}: a key path begins with one of {', '.join(_SIDES)}")
        named = (self.retrieval_tools,) if isinstance(self.retrieval_tools, str) else self.retrieval_tools
        object.__setattr__(self, "retrieval_tools", tuple(named))

    def question(self, view: View, said: Said, answering: ModelRun | None) -> Found:
        """Find the question: a text. ``answering`` is what ``Said.answering`` tells of the answer."""
        place = self.user_input
        return question_in(view, said, answering) if place is None else _at(place, view, question_text)

    def answer(self, view: View, said: Said) -> Found:
        """Find the answer: a text. An empty answer is one."""
        return answer_in(view, said) if self.response is None else _at(self.response, view, answer_text)

    def contexts(self, view: View, said: Said, answering: ModelRun | None) -> Found:
        """Find the contexts: a ``Contexts``. ``answering`` as for the question."""
        if self.retrieved_contexts is not None:
            return _at(self.retrieved_contexts, view, lambda value: Contexts(documents_in(value)))
        tools = ", ".join(self.retrieval_tools) or "none named"
        keys = ", ".join(CONTEXT_KEYS)
        searched = (
            f"root output: documents under keys {keys}; prompt of the answer; retriever runs; tool artifacts; "
            f"root: keys {keys}; retrieval_tools ({tools})"
        )
        if view.documents_cut:
            searched = f"{searched}; the documents of a retriever run were {CUT.reason}"
        contexts = contexts_in(view, said, answering, self.retrieval_tools)
        return Found(contexts, contexts.lack or searched)


def _at(place: Place, view: View, read: Callable[[Any], Any]) -> Found:
    if isinstance(place, str):
        return Found(read(_walk(place, view)), f"the configured place, {place}", Source.EXTRACT)
    name = getattr(place, "__name__", type_name(place))
    try:
        value = place(view.unit)
    except Exception as error:  # noqa: BLE001 - a user's function; its message may quote
        raised = f"the configured function {name}, which raised {type_name(error)}"
        return Found(read(None), raised, Source.EXTRACT)
    return Found(read(jsonable(value)), f"the configured function {name}", Source.EXTRACT)


def _walk(path: str, view: View) -> Any:
    side, *keys = path.split(".")
    whole: Side = view.input if side == "input" else view.output
    value = whole.whole()
    if keys and keys[0] == "messages" and isinstance(value, list) and whole.messages:
        keys = keys[1:]
    for key in keys:
        value = _step(value, key)
    return value


def _step(value: Any, key: str) -> Any:
    """Take one step: a dict's key, a list's position, or the key of each of a list's elements."""
    if isinstance(value, dict):
        return value.get(key)
    if not isinstance(value, list):
        return None
    if key.removeprefix("-").isdecimal():
        at = int(key)
        return value[at] if -len(value) <= at < len(value) else None
    steps = (_step(item, key) for item in value)
    return [step for step in steps if step is not None]
