"""The context of a judge's call: its score, the marks by which tracers ignore it, and requests that several scores share."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf
from typing import Any, Generic, TypeVar

from opentelemetry import context
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY

from spanscore.core.context import is_judging, judging, set_inside
from spanscore.core.sample import Image
from spanscore.errors import JudgeError
from spanscore.judges.effects.budget_ledger import BudgetLedger

_OLDER_KEY = "suppress_instrumentation"
"""The key of OpenTelemetry's context that some instrumentations read in place of ``_SUPPRESS_INSTRUMENTATION_KEY``."""


def suppress_tracing() -> AbstractContextManager[None]:
    """Mark the block as a judge's call: no instrumentation traces it. Enter and leave it in one task.

    Four marks are set, each for other tracers:

    - two keys of OpenTelemetry's context, for its instrumentations
    - LangSmith's own switch
    - a context variable, for handlers that LangChain adds by a configure hook, such as spanscore's

    The LangChain judge adds a fifth mark, ``callbacks=[]``.
    """
    return nullcontext() if is_judging() else _mark_context()


@contextmanager
def _mark_context() -> Iterator[None]:
    marked = context.set_value(_OLDER_KEY, True, context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
    # Importing LangSmith costs half a second, and without the import it cannot trace. ``parent=False``: its search for the
    # current run would take longer than all other steps.
    is_loaded = "langsmith" in sys.modules or "langchain_core" in sys.modules
    langsmith = _langsmith_context()(enabled=False, parent=False) if is_loaded else nullcontext()
    token = context.attach(marked)
    try:
        with judging(), langsmith:
            yield
    finally:
        context.detach(token)


def suppressed_context() -> Context:
    """Return a copy of the caller's context with the marks of ``suppress_tracing``."""
    if is_judging():
        return copy_context()
    with suppress_tracing():
        return copy_context()


@cache
def _langsmith_context() -> Callable[..., AbstractContextManager[None]]:
    """Return LangSmith's switch. Cached: each import of a name of the package takes 10 µs."""
    from langsmith import tracing_context

    return tracing_context


K = TypeVar("K")
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class ScoreContext:
    """One metric's work on one sample, with the clock of the score, for its judge's middleware. Call on the loop thread.

    The engine sets this context for each metric that it begins; a metric that is called directly has none. The score's clock,
    which the metric's timeout uses, runs while the metric computes or a judge works. It stops while all open questions wait for
    a place, a rate or a breaker.

    Attributes:
        metric: name of the metric; the metrics of an account take turns in its queue.
        taken_s: time at which this process received the unit, by the loop's clock; ``queue_timeout`` counts from it.
        held_until_s: time until which the unit's spans wait for its scores, by the loop's clock. Questions of such units come
            first.
        budget_ledger: the budgets that pay for its questions; None = no budget is set.
        transcribes: whether each of its calls has a transcript (``judges/records.py``).
        quotes: whether a transcript has the texts of question and answer.
        images: images of the sample, in the order of their numbers.
        first_field: the sample's field with which most of its questions begin; empty if they have no common field.
        questions_alike: number of the unit's questions to the same account that begin with that field, this metric's included.
            If it is above 1, they share the beginning that the provider caches.
        on_change: called when ``is_waiting`` has changed.
        asking: number of open questions: sent, or waiting to be sent.
        waiting: number of open questions that wait to be sent.
        chosen: id of a ``FallingBack`` → the judge that it chose for all questions of the score.
        contradictions: number of its judge's verdicts that contradict their own reason.
        source: ``fallback`` if a fallback answered; None = the configured judge.
    """

    metric: str = ""
    taken_s: float | None = None
    held_until_s: float = -inf
    budget_ledger: BudgetLedger | None = None
    transcribes: bool = False
    quotes: bool = False
    images: Sequence[Image] = ()
    first_field: str = ""
    questions_alike: int = 0
    on_change: Callable[[], None] | None = None
    asking: int = field(default=0, init=False)
    waiting: int = field(default=0, init=False)
    chosen: dict[int, Any] = field(default_factory=dict, init=False)
    source: str | None = field(default=None, init=False)
    contradictions: int = field(default=0, init=False)

    @property
    def is_waiting(self) -> bool:
        """Whether all its open questions wait."""
        return 0 < self.asking == self.waiting

    @contextmanager
    def asks(self) -> Iterator[None]:
        """Count a question as open inside the block."""
        self._count(asking=1)
        try:
            yield
        finally:
            self._count(asking=-1)

    @contextmanager
    def waits(self) -> Iterator[None]:
        """Count the open question as waiting inside the block."""
        self._count(waiting=1)
        try:
            yield
        finally:
            self._count(waiting=-1)

    def _count(self, *, asking: int = 0, waiting: int = 0) -> None:
        before = self.is_waiting
        self.asking += asking
        self.waiting += waiting
        if self.on_change is not None and self.is_waiting != before:
            self.on_change()


_current_score: ContextVar[ScoreContext | None] = ContextVar("spanscore_current_score", default=None)


def current_score() -> ScoreContext:
    """Return the context of the score that this task works for; a new empty one if a metric is called directly."""
    return _current_score.get() or ScoreContext()


def ask_for(score: ScoreContext) -> None:
    """Assign all questions of this task, and of tasks that it starts, to a score."""
    _current_score.set(score)


def asked_by(score: ScoreContext) -> AbstractContextManager[None]:
    """Assign all questions inside the block, and in tasks started there, to a score."""
    return set_inside(_current_score, score)


@dataclass(slots=True, eq=False)
class SharedWait(Generic[T]):
    """One caller's wait for an answer that several callers share. Call on the loop thread.

    Attributes:
        score: the caller's score. Its clock stops while the request waits to be sent.
    """

    answer: asyncio.Future[T] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    score: ScoreContext = field(default_factory=current_score)
    context: Context = field(default_factory=copy_context)
    _waits: ExitStack = field(default_factory=ExitStack, init=False)
    _is_waiting: bool = field(default=False, init=False)

    def fail(self, error: BaseException, *, pays: bool) -> None:
        """End the wait with an error. ``pays`` is whether the request is charged to this caller."""
        self.answer.set_exception(error if pays or not isinstance(error, JudgeError) else error.without_request())

    def set_waiting(self, waiting: bool) -> None:
        """Stop the caller's clock while the request waits to be sent; let it run while a judge works."""
        if waiting and not self._is_waiting:
            self._waits.enter_context(self.score.waits())
        elif not waiting:
            self._waits.close()
        self._is_waiting = waiting


class SharedRequest(Generic[K, T]):
    """One request whose answer several callers wait for. Call on the loop thread.

    Attributes:
        waits: key of a caller → its wait, in the order of joining.
        score: the score to which the request is assigned: a copy of one caller's. The clocks of all callers follow its clock.
    """

    def __init__(self) -> None:
        self.waits: dict[K, SharedWait[T]] = {}
        self.score = ScoreContext()
        self._request: asyncio.Task[None] | None = None

    def join(self, key: K) -> SharedWait[T]:
        """Add a caller. The caller awaits ``answer`` of the returned wait, and then calls ``leave``."""
        wait = self.waits[key] = SharedWait()
        return wait

    @property
    def has_ended(self) -> bool:
        """Whether the request has ended, or is cancelled because all callers have left."""
        return self._request is not None and (self._request.done() or self._request.cancelling() > 0)

    async def leave(self, key: K) -> None:
        """Remove a caller, and wait for the end of the request if it is cancelled."""
        if (cancelled := self.drop(key)) is not None:
            await asyncio.wait({cancelled})

    def drop(self, key: K) -> asyncio.Task[None] | None:
        """Remove a caller. If it is the last, cancel the request, unless it has ended, and return it; otherwise None."""
        self.waits.pop(key).set_waiting(False)
        if self.waits or self._request is None or self._request.done():
            return None
        self._request.cancel()
        return self._request

    def pending(self) -> list[SharedWait[T]]:
        """Return the waits without an answer."""
        return [wait for wait in self.waits.values() if not wait.answer.done()]

    def begin(self, first: SharedWait[T], work: Coroutine[Any, Any, None]) -> None:
        """Start the request in a caller's context, assigned to a copy of the caller's score."""
        self.score = replace(first.score, on_change=self._set_clocks)
        self._request = first.context.run(asyncio.ensure_future, work)

    def fail(self, error: BaseException) -> None:
        """End all waits with an error. The request is charged to the first caller."""
        for position, wait in enumerate(self.pending()):
            wait.fail(error, pays=not position)

    def _set_clocks(self) -> None:
        for wait in self.waits.values():
            wait.set_waiting(self.score.is_waiting)
