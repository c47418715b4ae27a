"""Any LangChain chat model → Judge: structured output where the provider has it, text where it has not."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from spanscore.errors import ConfigurationError, JudgeError
from spanscore.judges.ballots import BallotGatherer
from spanscore.judges.langchain.blocking import BlockingCalls
from spanscore.judges.langchain.provider_errors import judge_error
from spanscore.judges.render import render
from spanscore.judges.suppress import suppressed
from spanscore.model.prompt import Prompt, Reply

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable, RunnableConfig

__all__ = ["LangChainJudge"]

# An inherited callback would see the judge's prompts, and the handler of the application would trace its own evaluation.
_UNSEEN: RunnableConfig = {"callbacks": [], "tags": ["spanscore"], "run_name": "spanscore judge"}
_LASTING = frozenset({"http_401", "http_403"})
"""Refusals that have nothing to do with how the answer was asked for."""
_DRAWING = ("temperature", "top_p", "seed", "n", "reasoning_effort", "model_kwargs", "extra_body")


class LangChainJudge:
    """A judge made of a LangChain chat model (or any runnable that answers messages).

    The provider's structured output is used where the model has it. A model that refuses it, and answers the same question
    in plain text, is asked in plain text from then on.

    It is called by ``invoke``, on threads: the application may use the same model from any loop (see ``blocking.py``). One
    that has no blocking side is awaited.

    The ballots of a vote are one request for several answers where the model has a parameter ``n`` (OpenAI's and those like
    it): the question is paid for once.

    Args:
        model: a ``BaseChatModel``; its own temperature, keys and retries stay as they are.
        structured: False asks in plain text from the start.
    """

    reads_instructions = True

    def __init__(self, model: Runnable[Any, Any], *, structured: bool = True) -> None:
        if not callable(getattr(model, "ainvoke", None)):
            raise ConfigurationError(f"{type(model).__name__} is no LangChain chat model: it has no ainvoke")
        self._model = model
        self._structured = structured and hasattr(model, "with_structured_output")
        self._shaped: dict[type[BaseModel], Runnable[Any, Any]] = {}
        self._calls = BlockingCalls()
        several = "n" in getattr(type(model), "model_fields", {}) and hasattr(model, "generate")
        self._ballots = BallotGatherer() if several else None

    def __repr__(self) -> str:
        return f"LangChainJudge({self.model!r})"

    @property
    def model(self) -> str:
        """The model's configured name; its class where it has none."""
        for attribute in ("model_name", "model", "model_id"):
            name = getattr(self._model, attribute, None)
            if isinstance(name, str) and name:
                return name
        return type(self._model).__name__

    @property
    def drawing(self) -> dict[str, Any]:
        """How the model draws its answers, where it says so: temperature, seed, number of answers and the like."""
        return {name: getattr(self._model, name) for name in _DRAWING if getattr(self._model, name, None) is not None}

    async def ask(self, prompt: Prompt) -> Reply:
        """Answer one prompt, unseen by any instrumentation.

        Raises:
            JudgeUnavailable: the provider could not be reached, was overloaded or failed; ``retry_after_s`` when it said so.
            JudgeError: it refused; ``error_type`` is ``http_401`` and the like, or the exception's class.
        """
        with suppressed():
            if self._ballots is None:
                return await self._one(prompt)
            return await self._ballots.ask(prompt, self._one, self._several)

    async def _one(self, prompt: Prompt) -> Reply:
        started = time.perf_counter()
        message, text = await self._said(prompt)
        tokens = getattr(message, "usage_metadata", None) or {}
        metadata = getattr(message, "response_metadata", None) or {}
        return Reply(
            text=text,
            model=str(metadata.get("model_name") or metadata.get("model") or self.model),
            input_tokens=int(tokens.get("input_tokens") or 0),
            output_tokens=int(tokens.get("output_tokens") or 0),
            duration_s=time.perf_counter() - started,
        )

    async def _several(self, prompt: Prompt, number: int) -> list[Reply]:
        """Return up to so many answers to one request; none from a provider that refuses to be asked so, from then on."""
        started = time.perf_counter()
        model: Any = self._model
        messages = [_messages(prompt)]
        try:
            result = await self._calls.run(
                lambda: model.generate(messages, n=number, callbacks=[]),
                lambda: model.agenerate(messages, n=number, callbacks=[]),
            )
        except Exception as error:
            refusal = judge_error(error, prompt.step)
            if not _may_be_the_form(refusal):
                raise refusal from error
            self._ballots = None
            return []
        took_s = time.perf_counter() - started
        usage = (result.llm_output or {}).get("token_usage") or {}
        sent, received = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
        said = result.generations[0][:number]
        shares = [received // len(said) + (place < received % len(said)) for place in range(len(said))]
        return [
            Reply(
                text=_text(one.message),
                model=str(one.message.response_metadata.get("model_name") or self.model),
                input_tokens=0 if place else sent,
                output_tokens=share,
                duration_s=took_s,
            )
            for place, (one, share) in enumerate(zip(said, shares, strict=True))
        ]

    async def _said(self, prompt: Prompt) -> tuple[Any, str]:
        shaped = self._shaped_for(prompt.output)
        if shaped is None:
            return await self._in_text(prompt)
        try:
            return _unwrapped(await self._called(shaped, prompt))
        except Exception as error:
            refusal = judge_error(error, prompt.step)
            if not _may_be_the_form(refusal):
                raise refusal from error
        said = await self._in_text(prompt)
        self._structured = False  # proved: the same question passes as text
        return said

    async def _in_text(self, prompt: Prompt) -> tuple[Any, str]:
        try:
            message = await self._called(self._model, prompt)
        except Exception as error:
            raise judge_error(error, prompt.step) from error
        return message, _text(message)

    async def _called(self, model: Runnable[Any, Any], prompt: Prompt) -> Any:
        messages = _messages(prompt)
        return await self._calls.run(
            lambda: model.invoke(messages, config=_UNSEEN), lambda: model.ainvoke(messages, config=_UNSEEN)
        )

    def _shaped_for(self, output: type[BaseModel]) -> Runnable[Any, Any] | None:
        if not self._structured:
            return None
        if output not in self._shaped:
            # As a dict: given the class, some clients validate inside their parser and raise there, out of reach of the repair.
            schema = {"description": output.__name__, **_inlined(output.model_json_schema())}
            try:
                bound = self._model.with_structured_output(schema, include_raw=True)  # type: ignore[attr-defined]  # checked at construction
            except Exception:  # noqa: BLE001  (NotImplementedError by contract; integrations raise all sorts)
                self._structured = False
                return None
            self._shaped[output] = bound
        return self._shaped[output]


def _messages(prompt: Prompt) -> list[Any]:
    from langchain_core.messages import HumanMessage, SystemMessage

    rendered = render(prompt)
    return [SystemMessage(content=rendered.system), HumanMessage(content=rendered.user)]


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema without ``$ref``: not every provider's structured output knows them."""
    from langchain_core.utils.json_schema import dereference_refs

    inlined = dict(dereference_refs(schema))
    inlined.pop("$defs", None)
    return inlined


def _unwrapped(answer: Any) -> tuple[Any, str]:
    """Return message and text of an ``include_raw`` answer: the parsed object as JSON, else whatever the model wrote."""
    raw, parsed = answer.get("raw"), answer.get("parsed")
    if isinstance(parsed, BaseModel):
        return raw, parsed.model_dump_json()
    if parsed is not None:
        return raw, json.dumps(parsed, ensure_ascii=False)
    calls: Sequence[Any] = getattr(raw, "invalid_tool_calls", None) or ()
    return raw, next((str(call["args"]) for call in calls if call.get("args")), None) or _text(raw)


def _text(message: Any) -> str:
    content = getattr(message, "content", message)
    if isinstance(content, list):
        return "".join(block if isinstance(block, str) else str(block.get("text", "")) for block in content)
    return str(content)


def _may_be_the_form(refusal: JudgeError) -> bool:
    """Whether plain text might pass: not for a judge that is away, or one that does not know us."""
    return type(refusal) is JudgeError and refusal.error_type not in _LASTING
