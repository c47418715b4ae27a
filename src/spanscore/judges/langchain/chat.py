"""LangChain judge: any LangChain chat model as a judge, by structured output if the provider has it, else by text."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
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
    UnsentRequest,
    at_batch_price,
    choices_of,
    model_of,
    tokens_of,
    use_exchange,
)
from spanscore.judges.langchain.models import account_of_model, is_in_process, model_name, profile_of, takes_images
from spanscore.judges.records import failed_call, record
from spanscore.judges.rendering import image_blocks, less_answer, render, schema_of
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
_ANSWER_LIMITS = ("max_tokens", "max_output_tokens")
"""Names, in integrations, of the parameter that limits an answer's tokens; integrations read it at each call."""
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "system": (),
    "temperature": ("temperature",),
    "top_p": ("top_p",),
    "max_tokens": ("max_tokens", "max_completion_tokens", *_ANSWER_LIMITS[1:], "num_predict"),
}
"""Settings that some models refuse (Gemma the system role, reasoning models the others) → their names in integrations."""
_CACHE_PARAMETERS = {"langchain_openai": "prompt_cache_key", "langchain_anthropic": "cache_control"}
"""Package of a chat model → the request parameter for its provider's prompt cache."""
_CACHED_FROM = {"haiku-4": 4_096, "opus-4-5": 4_096, "opus-4-6": 4_096, "haiku": 2_048, "sonnet-4-6": 2_048}
"""Part of a model's name → minimum tokens of a cached prefix; the first match counts, otherwise 1,024. Source: Anthropic's page
"Prompt caching", November 2026.
"""
_CACHE_KEY_CHARS = 2_048
"""Characters at each end of a shared beginning that its key is made of: a digest of 65 kB, twenty chunks, takes 0.15 ms."""
_OFF_S = 3_600.0
"""Seconds for which a refused feature is omitted."""
_MOST_REFUSALS = 2


class BoundModel(NamedTuple):
    """A model, and keywords that are passed with each of its calls (LangChain's ``bind``)."""

    model: Any
    keywords: Mapping[str, Any]


def unwrap_bindings(model: Any) -> BoundModel:
    """Return the model inside all bindings of a runnable, with the bound keywords; keywords of outer bindings win."""
    keywords: dict[str, Any] = {}
    while (inner := getattr(model, "bound", None)) is not None and isinstance(getattr(model, "kwargs", None), Mapping):
        keywords = {**model.kwargs, **keywords}
        model = inner
    return BoundModel(model, keywords)


class RequestForm(NamedTuple):
    """The form of one request.

    Attributes:
        bound: the model with keywords, among them the answer's schema or JSON mode unless ``left_out`` contains ``schema``.
        answers: number of answers that are requested.
        left_out: features that the request omits: ``schema``, ``n``, the parameters of ``_CACHE_PARAMETERS``, and the keys of
            ``SETTINGS``.
        beginning: start of the user text that other questions of the unit share, for the provider's cache; empty without one.
        max_answer_tokens: most tokens of an answer; None = the model's own setting.
    """

    bound: BoundModel
    answers: int
    left_out: frozenset[str]
    beginning: str = ""
    max_answer_tokens: int | None = None

    @property
    def model(self) -> Any:
        """The model, without the settings that are left out."""
        unset = self._unset_names()
        if not unset:
            return self.bound.model
        model = self.bound.model
        changes: dict[str, Any] = {name: None for name in unset if getattr(model, name, None) is not None}
        for field in ("model_kwargs", "extra_body"):
            if isinstance(parameters := getattr(model, field, None), Mapping):
                changes[field] = {name: value for name, value in parameters.items() if name not in unset}
        return model.model_copy(update=changes) if hasattr(model, "model_copy") else model

    def _unset_names(self) -> frozenset[str]:
        return frozenset(name for feature in self.left_out for name in SETTINGS.get(feature, ()))

    def keywords(self) -> dict[str, Any]:
        """Return the keywords of the model's call."""
        own: dict[str, Any] = {"n": self.answers} if self.answers > 1 else {}
        if "prompt_cache_key" not in self.left_out:
            # The same in every worker of a service, because providers route requests by it. If two beginnings have the same
            # key, a request may miss the cache; its answer is the same.
            ends = f"{len(self.beginning)}{self.beginning[:_CACHE_KEY_CHARS]}{self.beginning[-_CACHE_KEY_CHARS:]}"
            own["prompt_cache_key"] = blake2b(ends.encode(), digest_size=8).hexdigest()
        if self.max_answer_tokens is not None:
            own |= dict.fromkeys(self._limit_names(), self.max_answer_tokens)
        unset = self._unset_names()
        return {name: value for name, value in {**self.bound.keywords, **own}.items() if name not in unset}

    def with_longer_answers(self, written: int) -> RequestForm | None:
        """Return the form with twice the tokens of an answer; None if they were doubled already, or cannot be set.

        Args:
            written: number of tokens of all cut answers.
        """
        names = self._limit_names()
        limit = max((getattr(self.bound.model, name) or 0 for name in names), default=0)
        doubled = 2 * max(limit, written // self.answers)
        if self.max_answer_tokens is not None or not names or not doubled or "max_tokens" in self.left_out:
            return None
        return self._replace(max_answer_tokens=doubled)

    def _limit_names(self) -> list[str]:
        fields = getattr(type(self.bound.model), "model_fields", ())
        return [name for name in _ANSWER_LIMITS if name in fields]


class OptionalFeature:
    """A request feature that a provider may not support. After several refusals in a row it is omitted for an hour.

    Args:
        exists: whether the integration has the feature at all.
        most_refusals: number of refusals in a row after which it is omitted; a single refusal may be about the sample.
        clock: monotonic clock, in seconds.
    """

    def __init__(
        self, *, exists: bool = True, most_refusals: int = _MOST_REFUSALS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most_refusals = most_refusals
        self._clock = clock
        self._refusals = 0
        self._off_until_s = -inf if exists else inf

    @property
    def is_on(self) -> bool:
        """Whether requests use the feature."""
        return self._clock() >= self._off_until_s

    def count_refusal(self) -> None:
        """Count a refusal by a provider that answered the same question without the feature."""
        self._refusals += 1
        if self._refusals >= self._most_refusals:
            self._off_until_s = self._clock() + _OFF_S

    def count_success(self) -> None:
        """Count an accepted request, which ends a series of refusals."""
        self._refusals = 0


class AnswerForms:
    """Binds the schema of an answer to one model, by ``with_structured_output`` of its integration.

    Args:
        plain: the model without a schema.
        structured: the mode of structured output. ``auto`` is the integration's own choice, and text if the provider supports
            no mode. True is ``auto``, False is ``text``. The question contains the form of the answer in every mode.

    Attributes:
        may_change: whether a question may be asked without a schema, if that is cheaper or the provider refuses the schema.

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
        self._bound_models: dict[type[BaseModel], BoundModel] = {}
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
        """Return the model in JSON mode, without a schema.

        None if the configured mode is not ``auto``, or the model has no JSON mode.
        """
        if self._mode == "auto" and not self._has_none and _Any not in self._bound_models:
            try:
                self._bound_models[_Any] = self._bind(_Any, "json")
            except Exception:  # noqa: BLE001  (as in ``bound``)
                return None
        return self._bound_models.get(_Any)

    def bound(self, output: type[BaseModel]) -> BoundModel | None:
        """Return the model with a schema for its answers; None if the question must be asked in text."""
        if not self._has_none and output not in self._bound_models:
            try:
                self._bound_models[output] = self._bind(output)
            except Exception:  # noqa: BLE001  (NotImplementedError by contract; integrations raise all sorts)
                self._has_none = True
        return None if self._has_none else self._bound_models[output]

    def _bind(self, output: type[BaseModel], mode: str = "") -> BoundModel:
        from langchain_core.utils.json_schema import dereference_refs

        # Without ``$ref``: not every provider's structured output supports it.
        inlined = dict(dereference_refs(dict(schema_of(output))))
        inlined.pop("$defs", None)
        # A dict, not the class: with a class, some clients validate in their own parser, and its error cannot be repaired.
        shaped = self._model.with_structured_output(
            {**inlined, "description": output.__name__}, **_METHODS[mode or self._mode]
        )
        # A sequence of the bound model and a parser. The parser is dropped: its time is quadratic, that of ``read()`` linear.
        model, keywords = unwrap_bindings(shaped.first)
        return BoundModel(model, {**self._keywords, **keywords})


class _Any(BaseModel):
    """An answer in JSON mode, without a schema."""


class _Probe(BaseModel):
    """Any answer, to test whether a mode is supported."""

    text: str


# Without ``callbacks``, handlers of the application would be inherited, and trace the judge's prompts.
_UNTRACED: RunnableConfig = {"callbacks": [], "tags": ["spanscore"], "run_name": "spanscore judge"}
_MAX_PARTS = 2_000
"""Most values in the JSON of a response; a judge's response has some 30."""
_SAMPLING_PARAMETERS = ("temperature", "top_p", "seed", "n", "reasoning_effort", "model_kwargs", "extra_body")


class LangChainJudge:
    """A judge that asks a LangChain chat model (or any runnable that answers messages).

    It uses a copy of the model. The copy does not retry, and its requests end when the attempt ends. The model itself is
    never changed. Calls run on threads, because the application may use the same model from any loop (``BlockingCalls``). A
    model without blocking calls is awaited.

    Several answers to one question are one request if the model has a parameter ``n`` (OpenAI and compatible providers): the
    question is then paid for once. A question whose answer was cut is asked once more, with twice the tokens for its answer.

    Args:
        model: a ``BaseChatModel``; the model's own temperature and keys are used.
        structured: mode of structured output: ``auto`` (the integration's choice; in text for an hour after the provider has
            refused the schema twice in a row), ``schema``, ``tools``, ``json``, or ``text``.
        timeout: seconds for one question, from sending to the last byte of its answer.
        max_answer_bytes: most bytes of a response, inflated.
        prompt_order: place of the evidence in its questions: ``evidence_first`` or ``instruction_first``.
        prompt_cache: whether the provider's prompt cache is used.
        images: whether the model reads images; None = by its LangChain profile, or by its name if it has no profile.

    Attributes:
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
        images: bool | None = None,
    ) -> None:
        if prompt_order not in get_args(PromptOrder):
            raise ConfigurationError(
                f"prompt_order is {prompt_order!r}; it is one of {', '.join(get_args(PromptOrder))}"
            )
        self.prompt_order = prompt_order
        if not callable(getattr(model, "ainvoke", None)):
            raise ConfigurationError(f"{type(model).__name__} is no LangChain chat model: it has no ainvoke")
        self._model = model  # kept alive: ``shared_judge`` and accounts identify it by its id
        inner = unwrap_bindings(model).model
        self.account = account_of_model(inner)
        self.in_process = is_in_process(inner)
        own, self.own_attempts, self.notes = own_client(model, timeout)
        self._plain = unwrap_bindings(own)
        self._forms = AnswerForms(self._plain, structured)
        self._timeout_s = timeout
        self._max_bytes = max_answer_bytes
        self._calls = BlockingCalls()
        self.batch: BatchAccount | None = None
        is_chat = not _is_text_model(type(inner))
        self._images = images if is_chat else False
        cache = _CACHE_PARAMETERS.get(module_of(type(inner)).partition(".")[0]) if is_chat and prompt_cache else None
        self._features = {
            "schema": OptionalFeature(),
            "n": OptionalFeature(exists=is_chat and "n" in getattr(type(inner), "model_fields", ())),
            **{name: OptionalFeature(exists=name == cache, most_refusals=1) for name in _CACHE_PARAMETERS.values()},
            **{name: OptionalFeature(most_refusals=1) for name in SETTINGS},
        }

    def __repr__(self) -> str:
        return f"LangChainJudge({self.model!r})"

    @property
    def max_input_tokens(self) -> int | None:
        """The maximum tokens of a question, by the model's LangChain profile; None if the window is unknown."""
        window = profile_of(self._plain.model).get("max_input_tokens")
        return less_answer(window) if isinstance(window, int) and window > 0 else None

    @property
    def reads_images(self) -> bool:
        """Whether its questions have the images of a sample. A model that completes a text gets none."""
        return takes_images(self._plain.model) if self._images is None else self._images

    @property
    def model(self) -> str:
        """The model's configured name, or the name of its class if no name is configured."""
        return model_name(self._plain.model)

    @property
    def answers_several(self) -> bool:
        """Whether it gives several answers to one question; False for an hour after the provider refused the parameter."""
        return self._features["n"].is_on

    @property
    def cached_from(self) -> int | None:
        """Minimum tokens of a prefix that the provider caches; None if it has no cache, or the cache is off."""
        if not any(self._features[name].is_on for name in _CACHE_PARAMETERS.values()):
            return None
        return next((tokens for part, tokens in _CACHED_FROM.items() if part in self.model), CACHED_FROM)

    @property
    def drawing(self) -> dict[str, Any]:
        """The model's sampling parameters: temperature, seed, number of answers and the like."""
        model, bound = self._plain
        settings = {name: bound.get(name, getattr(model, name, None)) for name in _SAMPLING_PARAMETERS}
        return {name: value for name, value in settings.items() if value is not None}

    def batch_api(self) -> BatchApi | None:
        """Return the batch endpoint of the model's provider; None without one in OpenAI's or Anthropic's form."""
        from spanscore.judges.batches.run import batch_api  # takes 4 ms, which a judge without batches saves

        return batch_api(self.account, self._plain.model)

    async def ask(self, prompt: Prompt) -> Reply:
        """Answer one prompt, hidden from all instrumentation. If cancelled, it waits until its request has ended.

        Requests before the last are recorded as calls of their own.

        Raises:
            JudgeUnavailable: the provider could not be reached, was overloaded or failed; with its ``retry_after_s``, if any.
            JudgeTimeout: the answer was not complete in time.
            JudgeError: the provider refused, or its answer is unusable; ``error_type`` has the reason.
        """
        with suppress_tracing():
            first, *others = await self._ask_in_forms(prompt, prompt.n if self.answers_several else 1)
        return replace(first, other_completions=tuple(others)) if others else first

    async def _ask_in_forms(self, prompt: Prompt, answers: int) -> list[Reply]:
        """Ask, and ask again in another form if the provider refused only the form, or cut the answer."""
        ends_s = time.monotonic() + self._timeout_s
        first = form = self._choose_form(prompt, answers)
        while True:
            started_s = time.perf_counter()
            try:
                replies = await self._request(prompt, form, ends_s)
            except JudgeError as error:
                next_form = self._next_form(form, error)
                if next_form is None:
                    raise
                record(failed_call(prompt, self.model, error, time.perf_counter() - started_s))
                form = next_form
            else:
                self._count_outcomes(first, form)
                return replies

    def _choose_form(self, prompt: Prompt, answers: int) -> RequestForm:
        left_out = {name for name, feature in self._features.items() if not feature.is_on}
        least_tokens = self.cached_from
        beginning = "" if least_tokens is None else shared_beginning(prompt, least_tokens)
        if not beginning:
            left_out |= {*_CACHE_PARAMETERS.values()}
        bound = None
        if "schema" not in left_out:
            # Providers put a schema or a tool in front of the messages, so questions with different schemas share no beginning.
            # A question with a shared beginning is asked in JSON mode without a schema; in text for ``cache_control``.
            if not beginning or not self._forms.may_change:
                bound = self._forms.bound(prompt.output)
            elif "cache_control" in left_out:
                bound = self._forms.json_mode()
        if bound is None:
            left_out.add("schema")
        if answers == 1:
            left_out.add("n")
        return RequestForm(bound or self._plain, answers, frozenset(left_out), beginning)

    def _next_form(self, form: RequestForm, error: JudgeError) -> RequestForm | None:
        """Return another form in which the question may succeed; None if the form was not the cause of the error."""
        if error.error_type == CUT:
            return form.with_longer_answers(error.output_tokens)
        refused = error.parameter if isinstance(error, ParameterRefused) else None
        if refused not in self._features or refused in form.left_out:
            return None
        form = form._replace(left_out=form.left_out | {refused})
        if refused == "schema":
            return form._replace(bound=self._plain) if self._forms.may_change else None
        return form._replace(answers=1) if refused == "n" else form

    def _count_outcomes(self, first: RequestForm, last: RequestForm) -> None:
        """Count refused and accepted features, by the first form of a question and the form that succeeded."""
        for name, feature in self._features.items():
            if name in first.left_out:
                continue
            if name not in last.left_out:
                feature.count_success()
                continue
            feature.count_refusal()  # the same question succeeded without the feature
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
        has_many_parts = getattr(form.bound.model, "logprobs", None)  # with ``logprobs`` each token has its own part
        exchange = Exchange(ends_s, self._max_bytes, inf if has_many_parts else _MAX_PARTS)
        batch = self.batch
        try:
            if batch is None:
                messages = await self._messages(prompt, form, exchange)
            else:  # the model is called twice: it makes the request without sending it, and later parses the batch's answer
                async with batch.run.preparation_slot():
                    request = await self._prepare_request(prompt, form)
                exchange.batch_answer = await batch.run.answer(batch, key_of(self, prompt), request)
                async with batch.run.preparation_slot():
                    messages = await self._messages(prompt, form, exchange)
        except Exception as error:
            raise judge_error(error, prompt.step, exchange) from error
        return self._replies(prompt, messages, exchange, time.perf_counter() - started_s)

    def _replies(self, prompt: Prompt, messages: list[Any], exchange: Exchange, took_s: float) -> list[Reply]:
        """Return the usable answers. The first has the question's tokens, and each has its share of the output tokens."""
        sent, received, cached, cache_write = tokens_of(messages, exchange)
        choices = choices_of(messages, exchange)
        usable = [choice for choice in choices if choice.error_type is None]
        if not usable:
            error_type, why = (choices[0].error_type, choices[0].why) if choices else ("empty", "there is no answer")
            raise JudgeError(
                f"{prompt.step}: {why}",
                error_type=error_type,
                headers=exchange.headers,
                input_tokens=sent,
                output_tokens=received,
            )
        model = model_of(messages, exchange) or self.model
        has_batch_price = exchange.batch_answer is not None or at_batch_price(messages, exchange)
        return [
            Reply(
                text=choice.text,
                model=model,
                input_tokens=0 if index else sent,
                output_tokens=received // len(usable) + (index < received % len(usable)),
                duration_s=took_s,
                finish=choice.finish,
                cached_input_tokens=0 if index else cached,
                cache_write_tokens=0 if index else cache_write,
                at_batch_price=has_batch_price,
                headers=exchange.headers,
            )
            for index, choice in enumerate(usable)
        ]

    async def _prepare_request(self, prompt: Prompt, form: RequestForm) -> UnsentRequest:
        """Return the request that the model would send, without sending it."""
        exchange = Exchange(0.0, self._max_bytes, _MAX_PARTS, keeps_request=True)
        try:
            await self._messages(prompt, form, exchange)
        except Exception:
            if exchange.request is None:
                raise
        if exchange.request is None:
            raise JudgeError(f"{prompt.step}: the client of {self.model} cannot be asked by batch")
        return exchange.request

    async def _messages(self, prompt: Prompt, form: RequestForm, exchange: Exchange) -> list[Any]:
        """Call the model on a thread, never through LangChain's own executor, which the interpreter joins at its exit."""
        model, keywords = form.model, form.keywords()
        question = _whole_text(prompt) if _is_text_model(type(model)) else _prompt_messages(prompt, form)

        def call() -> list[Any]:
            with use_exchange(exchange):
                if hasattr(model, "generate"):
                    return _read_messages(model.generate([question], callbacks=[], **keywords))
                return [model.invoke(question, config=_UNTRACED, **keywords)]

        async def call_async() -> list[Any]:
            if hasattr(model, "agenerate"):
                return _read_messages(await model.agenerate([question], callbacks=[], **keywords))
            return [await model.ainvoke(question, config=_UNTRACED, **keywords)]

        return await self._calls.run(call, call_async)


def _is_text_model(kind: type) -> bool:
    """Whether a model class completes a text and does not take messages (``OllamaLLM``, ``Together``)."""
    return "langchain_core.language_models.llms" in map(module_of, kind.__mro__)


def _whole_text(prompt: Prompt) -> str:
    return "\n\n".join(render(prompt))


def _prompt_messages(prompt: Prompt, form: RequestForm) -> list[Any]:
    from langchain_core.messages import HumanMessage, SystemMessage

    images = image_blocks(prompt)
    if "system" in form.left_out:
        return [HumanMessage(content=_content(_whole_text(prompt), images))]
    system, user = render(prompt)
    content = _content(user, images)
    if "cache_control" not in form.left_out:  # ``cache_control`` is on the last block that other questions share
        rest = {"type": "text", "text": user[len(form.beginning) :]}
        content = [{"type": "text", "text": form.beginning, "cache_control": {"type": "ephemeral"}}, rest, *images]
    return [SystemMessage(content=system), HumanMessage(content=content)]


def _content(text: str, images: list[dict[str, Any]]) -> Any:
    return [{"type": "text", "text": text}, *images] if images else text


def _read_messages(result: Any) -> list[Any]:
    """Return the messages that a model generated for its one question; a text model's texts are converted to messages."""
    from langchain_core.messages import AIMessage

    choices = [choice for several in result.generations[:1] for choice in several]
    if all(hasattr(choice, "message") for choice in choices):
        return [choice.message for choice in choices]
    return [AIMessage(choice.text, response_metadata=choice.generation_info or {}) for choice in choices]
