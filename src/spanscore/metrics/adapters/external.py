"""ExternalMetric, the base class of the adapters, which run a metric object of another library as one of our metrics.

An async method of such a metric may block (ragas embeds with a blocking call), so it never runs on the loop of our judges. All
external metrics share one other loop, because a client of two metrics belongs to the loop that first used it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import Context
from dataclasses import replace
from enum import Enum
from importlib.metadata import version
from typing import Any, TypeVar

from spanscore.core.log import bases_of, class_name, type_name
from spanscore.core.loop import LoopThread
from spanscore.core.sample import Sample
from spanscore.core.score import Scale, Score
from spanscore.errors import JudgeError, JudgeTimeout, JudgeUnparseable
from spanscore.judges.langchain.client import BlockingCalls
from spanscore.judges.langchain.errors import causes_of, judge_error
from spanscore.judges.score_context import suppress_tracing
from spanscore.metrics.kit.base import to_json
from spanscore.metrics.kit.judged import NamedMetric

T = TypeVar("T")

_loop = LoopThread("spanscore-external", pool="spanscore-external-pool")

_UNREADABLE = ("Parse", "JSON", "Validation", "DidNotFinish", "Incomplete")
"""Parts of the names of exceptions that ragas, DeepEval, instructor and pydantic raise for an answer of the wrong shape."""
_NULL_HANDLER = logging.NullHandler()
"""If the application has not set up logging, a library's log lines, which may quote content, do not reach stderr."""


class ExternalMetric(NamedMetric):
    """A metric object of another library as one of our metrics.

    All its public attributes except ``name`` and ``requires`` are part of the version.

    Args:
        library: distribution of the metric object. The distribution's version is part of our version.
        revision: version that the user raises after changes that ``parameters`` does not show.
        requires: ``single_turn`` and/or ``multi_turn`` → fields.
        parameters: constructor arguments of the metric object, as JSON values.
        judge_model: name of the model that the metric calls; empty if unknown, or if the metric calls no model.
    """

    def __init__(
        self,
        external: Any,
        *,
        library: str,
        revision: str,
        name: str,
        pass_at: float | None,
        requires: Mapping[str, Sequence[str]],
        scale: Scale,
        parameters: Mapping[str, Any],
        judge_model: str,
    ) -> None:
        self.scale = scale
        super().__init__(name=name, pass_at=pass_at)
        logging.getLogger(library).addHandler(_NULL_HANDLER)  # logging adds the same handler only once
        self.base_version = revision
        self.requires = {turns: tuple(fields) for turns, fields in requires.items()}
        self.library = f"{library} {version(library)}"
        self.external = f"{type(external).__module__}.{type(external).__qualname__}"
        self.parameters = parameters
        self._judge_model = judge_model
        self._calls = BlockingCalls()

    @property
    def evaluator_version(self) -> str:
        """Version, judge model (``none`` if empty) and number of votes, separated by ``/``."""
        return f"{self.version}/{self._judge_model or 'none'}/{self.votes}"

    async def _score_here(self, sample: Sample) -> Score:
        score = await super()._score_here(sample)
        return replace(score, judge_model=self._judge_model or None)

    async def _run_async(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the loop of external metrics, untraced. A cancellation of this call cancels the coroutine, too."""
        try:
            return await asyncio.wrap_future(_loop.submit(_run_untraced(work)))
        except Exception as error:
            raise _translate_error(error, self.name) from error

    async def _run_blocking(self, call: Callable[[], T]) -> T:
        """Run a blocking call on a thread, untraced. After a cancellation of this method, the call continues on its thread."""

        def call_untraced() -> T:
            with suppress_tracing():
                return call()

        try:
            return await self._calls.on_a_thread(lambda: Context().run(call_untraced))
        except Exception as error:
            raise _translate_error(error, self.name) from error


def snake(name: str) -> str:
    """Return a metric's name in lower snake case: ``Answer Relevancy`` → ``answer_relevancy``."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")


def parameters_of(external: Any, *, include: Iterable[str] = (), exclude: Iterable[str] = ()) -> dict[str, Any]:
    """Return constructor arguments of a metric object as JSON values: attributes named like the constructor's parameters.

    An enum becomes its value, a pydantic model its fields, a prompt its instruction and examples, a class or function its name.
    Any other object becomes the name of its class, because a default repr has a memory address.

    Args:
        include: names of further attributes.
        exclude: names of attributes to omit.
    """
    names = {*inspect.signature(type(external)).parameters, *include} - {*exclude}
    return {
        name: to_json(getattr(external, name), _object_to_json) for name in sorted(names) if hasattr(external, name)
    }


def _object_to_json(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if callable(getattr(value, "model_dump", None)) and not isinstance(value, type):
        return to_json(value.model_dump(), _object_to_json)
    if isinstance(getattr(value, "instruction", None), str):
        return {"instruction": value.instruction, "examples": to_json(getattr(value, "examples", []), _object_to_json)}
    return getattr(value, "__qualname__", type(value).__qualname__)


async def _run_untraced(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine untraced in an empty context, so that it cannot add to the caller's span or to DeepEval's trace."""

    async def await_untraced() -> T:
        with suppress_tracing():
            return await work()

    return await asyncio.get_running_loop().create_task(await_untraced(), context=Context())


def _translate_error(error: Exception, name: str) -> Exception:
    """Return a JudgeError if the judge failed; otherwise the error itself, because the metric failed."""
    causes = [cause for cause in causes_of(error) if isinstance(cause, Exception)]
    for cause in causes:
        if isinstance(cause, TimeoutError):
            return JudgeTimeout(f"{name}: the judge did not answer in time ({type_name(cause)})")
        translated = judge_error(cause, name)
        if translated.error_type != JudgeError.error_type:  # the provider refused, or was not reached
            return translated
    for cause in causes:
        if any(word in class_name(cls) for cls in bases_of(type(cause)) for word in _UNREADABLE):
            return JudgeUnparseable(f"{name}: the judge's answer could not be read ({type_name(cause)})")
    return error
