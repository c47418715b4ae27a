"""Forms: how a chat model is asked for an answer of a schema, and what its provider was found not to know.

schema, tools, json    the integration's own way to structured output: what it binds to the model. Its parser stays out
text                   the form stands in the question, as it does in every mode
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from spanscore.core.log import log_once, type_name
from spanscore.errors import ConfigurationError

__all__ = ["SETTINGS", "Bound", "Feature", "Form", "Forms", "Structured", "bound_to"]

Structured = Literal["auto", "schema", "tools", "json", "text"]
_METHODS: Mapping[str, dict[str, str]] = {
    "auto": {},
    "schema": {"method": "json_schema"},
    "tools": {"method": "function_calling"},
    "json": {"method": "json_mode"},
}
_ROOMS = ("max_tokens", "max_output_tokens")
"""What integrations call the most tokens of an answer; read at call time by those that have it."""
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "system": (),
    "temperature": ("temperature",),
    "top_p": ("top_p",),
    "max_tokens": ("max_tokens", "max_completion_tokens", *_ROOMS[1:], "num_predict"),
}
"""Settings that some models refuse (Gemma the system role, reasoning models the others) → their names in integrations."""
_AGAIN_AFTER_S = 3_600.0
_IN_A_ROW = 2


class Bound(NamedTuple):
    """A model, and with which keywords it is called."""

    model: Any
    keywords: Mapping[str, Any]


def bound_to(model: Any) -> Bound:
    """Return what is inside all bindings of a runnable, and what they bind to it."""
    keywords: dict[str, Any] = {}
    while (inner := getattr(model, "bound", None)) is not None and isinstance(getattr(model, "kwargs", None), Mapping):
        keywords = {**model.kwargs, **keywords}
        model = inner
    return Bound(model, keywords)


class Form(NamedTuple):
    """How one request asks.

    Attributes:
        bound: the model and its keywords.
        has_schema: whether they hold the answer's schema.
        number: answers to one request.
        has_cache_key: whether the provider is told which questions begin alike.
        room: the most tokens of an answer; None as the model is set.
        left_out: which of ``SETTINGS`` the request does without.
    """

    bound: Bound
    has_schema: bool
    number: int = 1
    has_cache_key: bool = False
    room: int | None = None
    left_out: frozenset[str] = frozenset()

    @property
    def model(self) -> Any:
        """The model, without the settings that are left out."""
        unset = self._unset()
        if not unset:
            return self.bound.model
        model = self.bound.model
        named: dict[str, Any] = {name: None for name in unset if getattr(model, name, None) is not None}
        for holder in ("model_kwargs", "extra_body"):
            if isinstance(kept := getattr(model, holder, None), Mapping):
                named[holder] = {name: value for name, value in kept.items() if name not in unset}
        return model.model_copy(update=named) if hasattr(model, "model_copy") else model

    def _unset(self) -> frozenset[str]:
        return frozenset(name for setting in self.left_out for name in SETTINGS[setting])

    def keywords(self, step: str) -> dict[str, Any]:
        """Return what the model is called with, beside the messages."""
        own: dict[str, Any] = {"n": self.number} if self.number > 1 else {}
        if self.has_cache_key:
            own["prompt_cache_key"] = step
        if self.room is not None:
            own |= dict.fromkeys(self._rooms(), self.room)
        unset = self._unset()
        return {name: value for name, value in {**self.bound.keywords, **own}.items() if name not in unset}

    def with_more_room(self, written: int) -> Form | None:
        """Return it with twice the room; None where it had that already, or the model takes no such parameter.

        Args:
            written: tokens of the answer that was cut.
        """
        rooms = self._rooms()
        most = max((getattr(self.bound.model, name) or 0 for name in rooms), default=0)
        room = 2 * max(most, written // self.number)
        return (
            self._replace(room=room)
            if self.room is None and rooms and room and "max_tokens" not in self.left_out
            else None
        )

    def _rooms(self) -> list[str]:
        known = getattr(type(self.bound.model), "model_fields", ())
        return [name for name in _ROOMS if name in known]


class Feature:
    """What a provider may not know: left out once it was refused so many times in a row, and tried again after an hour.

    Args:
        exists: whether the integration has it at all.
        patience: refusals in a row; one may be a sample's own trouble.
        clock: steady seconds.
    """

    def __init__(
        self, *, exists: bool = True, patience: int = _IN_A_ROW, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._patience = patience
        self._clock = clock
        self._refusals = 0
        self._off_until_s = -inf if exists else inf

    @property
    def is_on(self) -> bool:
        """Whether it is to be asked for."""
        return self._clock() >= self._off_until_s

    def refused(self) -> None:
        """Say that the provider refused it, and answered the same question without it."""
        self._refusals += 1
        if self._refusals >= self._patience:
            self._off_until_s = self._clock() + _AGAIN_AFTER_S

    def passed(self) -> None:
        """Say that the provider took it."""
        self._refusals = 0


class Forms:
    """The schemas of one model's answers, bound to it.

    Args:
        structured: which way; ``auto`` is the integration's own choice, and text where the provider knows none. True is
            ``auto``, False is ``text``.

    Raises:
        ConfigurationError: the model cannot be asked so.
    """

    def __init__(self, plain: Bound, structured: Structured | bool) -> None:
        mode = ("auto" if structured else "text") if isinstance(structured, bool) else structured
        if mode not in (*_METHODS, "text"):
            raise ConfigurationError(f"structured is {structured!r}; it is one of auto, schema, tools, json, text")
        self._model, self._keywords = plain
        self._mode = mode
        self._known = Feature()
        self._bound: dict[type[BaseModel], Bound] = {}
        self._has_none = mode == "text" or not hasattr(self._model, "with_structured_output")
        if not self._has_none and mode != "auto":
            self._try()
        elif mode not in ("auto", "text"):
            raise ConfigurationError(f"structured is {mode!r}, and {type_name(self._model)} has no structured output")

    @property
    def may_change(self) -> bool:
        """Whether a question is asked in text where the provider does not know the schema."""
        return self._mode == "auto"

    def bound(self, output: type[BaseModel]) -> Bound | None:
        """Return the model with a schema for its answers; None: it is asked in text."""
        if self._has_none or not self._known.is_on:
            return None
        if output not in self._bound:
            try:
                self._bound[output] = self._bind(output)
            except Exception:  # noqa: BLE001  (NotImplementedError by contract; integrations raise all sorts)
                self._has_none = True
                return None
        return self._bound[output]

    def passed(self) -> None:
        """Say that the provider took a schema."""
        self._known.passed()

    def refused(self, model: str) -> None:
        """Say that the provider refused the schema, and answered the same question in text."""
        self._known.refused()
        if not self._known.is_on:
            log_once(
                f"structured output of {model}",
                f"{model} does not take the schema of an answer: it is asked in plain text, and the schema again in an hour."
                " structured='text' or 'tools' says so from the start",
            )

    def _bind(self, output: type[BaseModel]) -> Bound:
        # As a dict: given the class, some clients validate inside their parser and raise there, out of reach of the repair.
        schema = {"description": output.__name__, **_inlined(output.model_json_schema())}
        shaped = self._model.with_structured_output(schema, **_METHODS[self._mode])
        # A sequence of the bound model and a parser. The parser is left out: ``read()`` is linear, LangChain's is quadratic.
        model, keywords = bound_to(shaped.first)
        return Bound(model, {**self._keywords, **keywords})

    def _try(self) -> None:
        try:
            self._bind(_Probe)
        except Exception as error:
            name = type_name(self._model)
            raise ConfigurationError(f"structured is {self._mode!r}, and {name} cannot be asked so: {error}") from error


class _Probe(BaseModel):
    """Any answer."""

    text: str


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema without ``$ref``: not every provider's structured output knows them."""
    from langchain_core.utils.json_schema import dereference_refs

    inlined = dict(dereference_refs(schema))
    inlined.pop("$defs", None)
    return inlined
