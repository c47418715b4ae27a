"""LangChain judge: any LangChain chat model as a judge, asked by structured output if the provider has it, else in text."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from pydantic import BaseModel

from spanscore.core.log import log_once, module_of, type_name
from spanscore.core.prompt import Prompt, PromptOrder, Reply
from spanscore.errors import ConfigurationError, JudgeError
from spanscore.judges.effects.cache import key_of
from spanscore.judges.effects.prefix import CACHED_FROM, shared_beginning
from spanscore.judges.langchain.client import BlockingCalls, own_client
from spanscore.judges.langchain.errors import ParameterRefused, judge_error
from spanscore.judges.langchain.message import (
    CUT,
    Exchange,
    HeldRequest,
    at_batch_price,
    choices_of,
    exchanging,
    model_of,
    tokens_of,
)
from spanscore.judges.langchain.models import account_of_model, is_in_process, model_name
from spanscore.judges.records import failed_call, record
from spanscore.judges.rendering import less_answer, render
from spanscore.judges.score_context import suppress_tracing

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable, RunnableConfig

    from spanscore.judges.batches.api import BatchApi
    from spanscore.judges.batches.run import BatchAccount

Structured = Literal["auto", "schema", "tools", "json", "text"]
_METHODS: Mapping[str, dict[str, str]] = {
    "auto": {},
    "schema": {"method": "json_schema"},
    "tools": {"method": "function_calling"},
    "json": {"method": "json_mode"},
}
_ROOMS = ("max_tokens", "max_output_tokens")
"""Names of the parameter for the most tokens of an answer that integrations read at call time."""
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "system": (),
    "temperature": ("temperature",),
    "top_p": ("top_p",),
    "max_tokens": ("max_tokens", "max_completion_tokens", *_ROOMS[1:], "num_predict"),
}
"""Settings that some models refuse (Gemma the system role, reasoning models the others) → their names in integrations."""
_CACHES = {"langchain_openai": "prompt_cache_key", "langchain_anthropic": "cache_control"}
"""Package of a chat model → the request parameter for its provider's prompt cache."""
_CACHED_FROM = {"haiku-4": 4_096, "opus-4-5": 4_096, "opus-4-6": 4_096, "haiku": 2_048, "sonnet-4-6": 2_048}
"""Part of a model's name → minimum tokens of a cached prefix; otherwise 1,024. Source: Anthropic's page, November 2026."""
_64_BITS = 2**64 - 1
_AGAIN_AFTER_S = 3_600.0
_IN_A_ROW = 2


class BoundModel(NamedTuple):
    """A model, and the keywords of its calls."""

    model: Any
    keywords: Mapping[str, Any]


def bound_to(model: Any) -> BoundModel:
    """Return the model inside all bindings of a runnable, with the bound keywords; outer bindings win."""
    keywords: dict[str, Any] = {}
    while (inner := getattr(model, "bound", None)) is not None and isinstance(getattr(model, "kwargs", None), Mapping):
        keywords = {**model.kwargs, **keywords}
        model = inner
    return BoundModel(model, keywords)


class RequestForm(NamedTuple):
    """The form of one request.

    Attributes:
        bound: the model and its keywords, with the answer's schema unless ``left_out`` contains ``schema``.
        number: number of answers to the request.
        left_out: features that the request omits: ``schema``, ``n``, the parameters of ``_CACHES``, and the keys of
            ``SETTINGS``.
        beginning: start of the user text that other questions of the unit share, for the provider's cache; empty without one.
        room: most tokens of an answer; None = the model's own setting.
    """

    bound: BoundModel
    number: int
    left_out: frozenset[str]
    beginning: str = ""
    room: int | None = None

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
        return frozenset(name for feature in self.left_out for name in SETTINGS.get(feature, ()))

    def keywords(self) -> dict[str, Any]:
        """Return the keywords of the model's call."""
        own: dict[str, Any] = {"n": self.number} if self.number > 1 else {}
        if "prompt_cache_key" not in self.left_out:
            own["prompt_cache_key"] = f"{hash(self.beginning) & _64_BITS:016x}"
        if self.room is not None:
            own |= dict.fromkeys(self._rooms(), self.room)
        unset = self._unset()
        return {name: value for name, value in {**self.bound.keywords, **own}.items() if name not in unset}

    def with_more_room(self, written: int) -> RequestForm | None:
        """Return the form with twice the room; None if the room was doubled already, or the model lacks the parameter.

        Args:
            written: tokens of the cut answers.
        """
        rooms = self._rooms()
        most = max((getattr(self.bound.model, name) or 0 for name in rooms), default=0)
        room = 2 * max(most, written // self.number)
        if self.room is not None or not rooms or not room or "max_tokens" in self.left_out:
            return None
        return self._replace(room=room)

    def _rooms(self) -> list[str]:
        known = getattr(type(self.bound.model), "model_fields", ())
        return [name for name in _ROOMS if name in known]


class OptionalFeature:
    """A request feature that a provider may not support. After several refusals in a row it is omitted for an hour.

    Args:
        exists: whether the integration has the feature at all.
        patience: number of refusals in a row; a single one may be about the sample.
        clock: monotonic clock, in seconds.
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
        """Whether requests use the feature."""
        return self._clock() >= self._off_until_s

    def refused(self) -> None:
        """Count a refusal by a provider that answered the same question without the feature."""
        self._refusals += 1
        if self._refusals >= self._patience:
            self._off_until_s = self._clock() + _AGAIN_AFTER_S

    def passed(self) -> None:
        """Count an accepted request, which ends a series of refusals."""
        self._refusals = 0


class AnswerForms:
    """The schemas of one model's answers, bound to the model by its integration's structured output.

    Args:
        plain: the model without a schema.
        structured: the mode of structured output. ``auto`` is the integration's own choice, and text if the provider supports
            no mode. True is ``auto``, False is ``text``. The question contains the form of the answer in every mode.

    Attributes:
        may_change: whether a question is asked in text if the provider refuses the schema.

    Raises:
        ConfigurationError: the mode is unknown, or the model does not support it.
    """

    def __init__(self, plain: BoundModel, structured: Structured | bool) -> None:
        mode = ("auto" if structured else "text") if isinstance(structured, bool) else structured
        if mode not in (*_METHODS, "text"):
            raise ConfigurationError(f"structured is {structured!r}; it is one of auto, schema, tools, json, text")
        self._model, self._keywords = plain
        self._mode = mode
        self.may_change = mode == "auto"
        self._bound: dict[type[BaseModel], BoundModel] = {}
        self._has_none = mode == "text" or not hasattr(self._model, "with_structured_output")
        if mode in ("auto", "text"):
            return
        if self._has_none:
            raise ConfigurationError(f"structured is {mode!r}, and {type_name(self._model)} has no structured output")
        try:
            self._bind(_Probe)
        except Exception as error:
            name = type_name(self._model)
            raise ConfigurationError(f"structured is {mode!r}, and {name} cannot be asked so: {error}") from error

    def json_mode(self) -> BoundModel | None:
        """Return the model in JSON mode, without a schema; None if another mode is configured, or it has no JSON mode."""
        if self._mode == "auto" and not self._has_none and _Any not in self._bound:
            try:
                self._bound[_Any] = self._bind(_Any, "json")
            except Exception:  # noqa: BLE001  (as in ``bound``)
                return None
        return self._bound.get(_Any)

    def bound(self, output: type[BaseModel]) -> BoundModel | None:
        """Return the model with a schema for its answers; None: the question is asked in text."""
        if not self._has_none and output not in self._bound:
            try:
                self._bound[output] = self._bind(output)
            except Exception:  # noqa: BLE001  (NotImplementedError by contract; integrations raise all sorts)
                self._has_none = True
        return None if self._has_none else self._bound[output]

    def _bind(self, output: type[BaseModel], mode: str = "") -> BoundModel:
        from langchain_core.utils.json_schema import dereference_refs

        # Without ``$ref``: not every provider's structured output supports it.
        inlined = dict(dereference_refs(output.model_json_schema()))
        inlined.pop("$defs", None)
        # As a dict: given the class, some clients validate inside their parser and raise there, out of reach of the repair.
        shaped = self._model.with_structured_output(
            {"description": output.__name__, **inlined}, **_METHODS[mode or self._mode]
        )
        # A sequence of the bound model and a parser. The parser is dropped: ``read()`` is linear, LangChain's is quadratic.
        model, keywords = bound_to(shaped.first)
        return BoundModel(model, {**self._keywords, **keywords})


class _Any(BaseModel):
    """An answer in JSON mode, without a schema."""


class _Probe(BaseModel):
    """Any answer, to test whether a mode is supported."""

    text: str


# An inherited callback would receive the judge's prompts, and the application's handler would trace its own evaluation.
_UNSEEN: RunnableConfig = {"callbacks": [], "tags": ["spanscore"], "run_name": "spanscore judge"}
_MAX_PARTS = 2_000
_DRAWING = ("temperature", "top_p", "seed", "n", "reasoning_effort", "model_kwargs", "extra_body")


class LangChainJudge:
    """A judge that asks a LangChain chat model (or any runnable that answers messages).

    It uses a copy of the model, without the model's own retries, whose requests end with the attempt. The model itself is
    never changed. Calls run on threads, as the application may use the same model from any loop (see ``BlockingCalls``). A
    model without blocking calls is awaited.

    Several answers to one question are one request if the model has a parameter ``n`` (OpenAI and compatible ones): the
    question is then paid for once. A question whose answer was cut is asked once more with twice the room.

    Args:
        model: a ``BaseChatModel``; its own temperature and keys are used.
        structured: mode of structured output: ``auto`` (the integration's choice; in text for an hour after the provider has
            refused the schema twice in a row), ``schema``, ``tools``, ``json``, or ``text``.
        timeout: seconds for one question, from sending to the last byte of its answer.
        max_answer_bytes: most bytes of a response, inflated.
        prompt_order: place of the evidence in its questions: ``evidence_first`` or ``instruction_first``.
        prompt_cache: whether the provider's prompt cache is used.

    Attributes:
        prompt_order: the argument ``prompt_order``.
        account: the account that it asks.
        in_process: whether the model computes in this process.
        own_attempts: most requests of one call of the client; more than 1 only if its retries cannot be switched off.
        notes: limitations of the client's copy, a sentence each.
        batch: account of a run that sends its questions in batches; None = each question is sent at once.
    """

    reads_instructions = True

    def __init__(
        self,
        model: Runnable[Any, Any],
        *,
        structured: Structured | bool = "auto",
        timeout: float = 30.0,
        max_answer_bytes: int = 2_000_000,
        prompt_order: PromptOrder = "evidence_first",
        prompt_cache: bool = True,
    ) -> None:
        if prompt_order not in get_args(PromptOrder):
            raise ConfigurationError(
                f"prompt_order is {prompt_order!r}; it is one of {', '.join(get_args(PromptOrder))}"
            )
        self.prompt_order = prompt_order
        if not callable(getattr(model, "ainvoke", None)):
            raise ConfigurationError(f"{type(model).__name__} is no LangChain chat model: it has no ainvoke")
        self._model = model  # kept alive: ``shared_judge`` and accounts identify it by its id
        asked = bound_to(model).model
        self.account = account_of_model(asked)
        self.in_process = is_in_process(asked)
        own, self.own_attempts, self.notes = own_client(model, timeout)
        self._plain = bound_to(own)
        self._forms = AnswerForms(self._plain, structured)
        self._timeout_s = timeout
        self._max_bytes = max_answer_bytes
        self._calls = BlockingCalls()
        self.batch: BatchAccount | None = None
        is_chat = not _is_text_model(type(asked))
        cache = _CACHES.get(module_of(type(asked)).partition(".")[0]) if is_chat and prompt_cache else None
        self._features = {
            "schema": OptionalFeature(),
            "n": OptionalFeature(exists=is_chat and "n" in getattr(type(asked), "model_fields", ())),
            **{name: OptionalFeature(exists=name == cache, patience=1) for name in _CACHES.values()},
            **{name: OptionalFeature(patience=1) for name in SETTINGS},
        }

    def __repr__(self) -> str:
        return f"LangChainJudge({self.model!r})"

    @property
    def max_input_tokens(self) -> int | None:
        """The maximum tokens of a question; None if the model's window is unknown."""
        window = window_of(self._plain.model)
        return None if window is None else less_answer(window)

    @property
    def model(self) -> str:
        """The model's configured name, or its class without one."""
        return model_name(self._plain.model)

    @property
    def answers_several(self) -> bool:
        """Whether it gives several answers to one question; False after the provider refused to."""
        return self._features["n"].is_on

    @property
    def cached_from(self) -> int | None:
        """Minimum tokens of a prefix that the provider caches; None if it has no cache, or the cache is off."""
        if not any(self._features[name].is_on for name in _CACHES.values()):
            return None
        return next((tokens for part, tokens in _CACHED_FROM.items() if part in self.model), CACHED_FROM)

    @property
    def drawing(self) -> dict[str, Any]:
        """The model's sampling parameters: temperature, seed, number of answers and the like."""
        model, bound = self._plain
        settings = {name: bound.get(name, getattr(model, name, None)) for name in _DRAWING}
        return {name: value for name, value in settings.items() if value is not None}

    def batch_api(self) -> BatchApi | None:
        """Return the batch endpoint of the model's provider; None without one in OpenAI's or Anthropic's form."""
        from spanscore.judges.batches.run import batch_api  # not above: a judge without batches saves 4 ms

        return batch_api(self.account, self._plain.model)

    async def ask(self, prompt: Prompt) -> Reply:
        """Answer one prompt, hidden from all instrumentation. If it is cancelled, it ends when its request has ended.

        Requests before the last are recorded as calls of their own.

        Raises:
            JudgeUnavailable: the provider could not be reached, was overloaded or failed; with its ``retry_after_s``, if any.
            JudgeTimeout: the answer was not complete in time.
            JudgeError: the provider refused, or its answer is unusable; ``error_type`` has the reason.
        """
        with suppress_tracing():
            first, *others = await self._asked(prompt, prompt.n if self.answers_several else 1)
        return replace(first, other_completions=tuple(others)) if others else first

    async def _asked(self, prompt: Prompt, number: int) -> list[Reply]:
        """Ask, and repeat the question in another form if only the form was refused."""
        ends_s = time.monotonic() + self._timeout_s
        first = form = self._form(prompt, number)
        while True:
            started_s = time.perf_counter()
            try:
                replies = await self._request(prompt, form, ends_s)
            except JudgeError as error:
                again = self._otherwise(form, error)
                if again is None:
                    raise
                record(failed_call(prompt, self.model, error, time.perf_counter() - started_s))
                form = again
            else:
                self._learn(first, form)
                return replies

    def _form(self, prompt: Prompt, number: int) -> RequestForm:
        left_out = {name for name, feature in self._features.items() if not feature.is_on}
        least_tokens = self.cached_from
        beginning = "" if least_tokens is None else shared_beginning(prompt, least_tokens)
        if not beginning:
            left_out |= {*_CACHES.values()}
        bound = None if "schema" in left_out else self._with_schema(prompt, beginning, left_out)
        if bound is None:
            left_out.add("schema")
        if number == 1:
            left_out.add("n")
        return RequestForm(bound or self._plain, number, frozenset(left_out), beginning)

    def _with_schema(self, prompt: Prompt, beginning: str, left_out: Collection[str]) -> BoundModel | None:
        """Return the model with a schema for its answers; None: the question is asked in text.

        Providers put a schema or a tool in front of the messages. Questions with different schemas share no prefix.
        """
        if not beginning or not self._forms.may_change:
            return self._forms.bound(prompt.output)
        return None if "cache_control" not in left_out else self._forms.json_mode()

    def _otherwise(self, form: RequestForm, error: JudgeError) -> RequestForm | None:
        """Return the form in which the same question may succeed; None if the form was not the cause."""
        if error.error_type == CUT:
            return form.with_more_room(error.output_tokens)
        refused = error.parameter if isinstance(error, ParameterRefused) else None
        if refused not in self._features or refused in form.left_out:
            return None
        form = form._replace(left_out=form.left_out | {refused})
        if refused == "schema":
            return form._replace(bound=self._plain) if self._forms.may_change else None
        return form._replace(number=1) if refused == "n" else form

    def _learn(self, first: RequestForm, last: RequestForm) -> None:
        for name, feature in self._features.items():
            if name in first.left_out:
                continue
            if name not in last.left_out:
                feature.passed()
                continue
            feature.refused()  # proved: the same question succeeds without it
            if name in SETTINGS:
                setting = "the system role" if name == "system" else name
                log_once(f"{name} of {self.model}", f"{self.model} does not take {setting}: it is left out for an hour")
            elif name == "schema" and not feature.is_on:
                log_once(
                    f"structured output of {self.model}",
                    f"{self.model} does not take the schema of an answer: it is asked in plain text, and the schema again in "
                    "an hour. structured='text' or 'tools' avoids this from the start",
                )

    async def _request(self, prompt: Prompt, form: RequestForm, ends_s: float) -> list[Reply]:
        started_s = time.perf_counter()
        has_many_parts = getattr(form.bound.model, "logprobs", None)  # for each token, as the user configured
        heard = Exchange(ends_s, self._max_bytes, inf if has_many_parts else _MAX_PARTS)
        try:
            if self.batch is None:
                messages = await self._messages(prompt, form, heard)
            else:
                messages = await self._batched_messages(self.batch, prompt, form, heard)
        except Exception as error:
            raise judge_error(error, prompt.step, heard) from error
        return self._replies(prompt, messages, heard, time.perf_counter() - started_s)

    def _replies(self, prompt: Prompt, messages: list[Any], heard: Exchange, took_s: float) -> list[Reply]:
        """Return the usable answers. The first has the question's tokens, and each has its share of the output tokens."""
        sent, received, cached, cache_write = tokens_of(messages, heard)
        choices = choices_of(messages, heard)
        good = [choice for choice in choices if choice.trouble is None]
        if not good:
            trouble, why = (choices[0].trouble, choices[0].why) if choices else ("empty", "there is no answer")
            raise JudgeError(
                f"{prompt.step}: {why}",
                error_type=trouble,
                headers=heard.headers,
                input_tokens=sent,
                output_tokens=received,
            )
        model, is_cheap = (
            model_of(messages, heard) or self.model,
            heard.stored is not None or at_batch_price(messages, heard),
        )
        shares = [received // len(good) + (place < received % len(good)) for place in range(len(good))]
        return [
            Reply(
                text=choice.text,
                model=model,
                input_tokens=0 if place else sent,
                output_tokens=share,
                duration_s=took_s,
                finish=choice.finish,
                cached_input_tokens=0 if place else cached,
                cache_write_tokens=0 if place else cache_write,
                at_batch_price=is_cheap,
                headers=heard.headers,
            )
            for place, (choice, share) in enumerate(zip(good, shares, strict=True))
        ]

    async def _batched_messages(
        self, batch: BatchAccount, prompt: Prompt, form: RequestForm, heard: Exchange
    ) -> list[Any]:
        """Call the model twice: first to get the request that it would send, then with the answer of a batch to it."""
        async with batch.run.at_work():
            request = await self._held_request(prompt, form)
        heard.stored = await batch.run.answer(batch, key_of(self, prompt), request)
        async with batch.run.at_work():
            return await self._messages(prompt, form, heard)

    async def _held_request(self, prompt: Prompt, form: RequestForm) -> HeldRequest:
        """Return the request that the model would send, without sending it."""
        held = Exchange(0.0, self._max_bytes, _MAX_PARTS, is_held=True)
        try:
            await self._messages(prompt, form, held)
        except Exception:
            if held.request is None:
                raise
        if held.request is None:
            raise JudgeError(f"{prompt.step}: the client of {self.model} cannot be asked by batch")
        return held.request

    async def _messages(self, prompt: Prompt, form: RequestForm, heard: Exchange) -> list[Any]:
        """Call the model on a thread, never through LangChain's own executor, which the interpreter joins at its exit."""
        model, keywords = form.model, form.keywords()
        asked = _text(prompt) if _is_text_model(type(model)) else _messages(prompt, form)

        def call() -> list[Any]:
            with exchanging(heard):
                if hasattr(model, "generate"):
                    return _generated(model.generate([asked], callbacks=[], **keywords))
                return [model.invoke(asked, config=_UNSEEN, **keywords)]

        async def awaited() -> list[Any]:
            if hasattr(model, "agenerate"):
                return _generated(await model.agenerate([asked], callbacks=[], **keywords))
            return [await model.ainvoke(asked, config=_UNSEEN, **keywords)]

        return await self._calls.run(call, awaited)


def _is_text_model(kind: type) -> bool:
    """Whether a model class completes a text and does not take messages (``OllamaLLM``, ``Together``)."""
    return "langchain_core.language_models.llms" in map(module_of, kind.__mro__)


def _text(prompt: Prompt) -> str:
    return "\n\n".join(render(prompt))


def _messages(prompt: Prompt, form: RequestForm) -> list[Any]:
    from langchain_core.messages import HumanMessage, SystemMessage

    if "system" in form.left_out:
        return [HumanMessage(content=_text(prompt))]
    system, user = render(prompt)
    content: Any = user
    if "cache_control" not in form.left_out:  # on the last block that other questions share
        rest = {"type": "text", "text": user[len(form.beginning) :]}
        content = [{"type": "text", "text": form.beginning, "cache_control": {"type": "ephemeral"}}, rest]
    return [SystemMessage(content=system), HumanMessage(content=content)]


def _generated(result: Any) -> list[Any]:
    """Return the messages that a model generated for its one question; a text model's texts are converted to messages."""
    from langchain_core.messages import AIMessage

    choices = [choice for several in result.generations[:1] for choice in several]
    if all(hasattr(choice, "message") for choice in choices):
        return [choice.message for choice in choices]
    return [AIMessage(choice.text, response_metadata=choice.generation_info or {}) for choice in choices]


def window_of(model: Any) -> int | None:
    """Return a model's context window in tokens, by its LangChain profile; None for a model without a profile."""
    profile = getattr(model, "profile", None)
    window = profile.get("max_input_tokens") if isinstance(profile, Mapping) else None
    return window if isinstance(window, int) and window > 0 else None
