"""The context of a judge's call: its score, the marks that keep tracers away, and requests that several scores share."""

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

_PLAIN_KEY = "suppress_instrumentation"


def suppress_tracing() -> AbstractContextManager[None]:
    """Mark the block as a judge's call: no instrumentation traces it. Enter and leave it in one task.

    Each of its four marks stops a tracer that the other marks do not stop. OpenTelemetry instrumentations honour the context
    key, some the plain string. LangSmith honours only its own switch. Handlers of a configure hook, such as spanscore's,
    honour a context variable. The LangChain judge adds a fifth mark, ``callbacks=[]``.
    """
    return nullcontext() if is_judging() else _mark_context()


@contextmanager
def _mark_context() -> Iterator[None]:
    marked = context.set_value(_PLAIN_KEY, True, context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
    token = context.attach(marked)
    try:
        with judging(), _without_langsmith():
            yield
    finally:
        context.detach(token)


def suppressed_context() -> Context:
    """Return a copy of the caller's context with the marks of ``suppress_tracing``, for as long as the copy exists."""
    if is_judging():
        return copy_context()
    with suppress_tracing():
        return copy_context()


def _without_langsmith() -> AbstractContextManager[None]:
    """Switch LangSmith off if it is loaded: importing it costs half a second, and without the import it cannot trace."""
    if "langsmith" not in sys.modules and "langchain_core" not in sys.modules:
        return nullcontext()
    # The context has no parent: a search for the present run would take longer than all other steps, for untraced calls.
    return _langsmith_context()(enabled=False, parent=False)


@cache
def _langsmith_context() -> Callable[..., AbstractContextManager[None]]:
    """Return LangSmith's switch. Cached: the package looks each name up anew, which takes 10 µs."""
    from langsmith import tracing_context

    return tracing_context


K = TypeVar("K")
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class ScoreContext:
    """One metric's work on one sample, with the clock of the score, for its judge's middleware. Call on the loop thread.

    The engine opens this context around each metric that it begins; a metric that is scored by hand has none. The score's
    clock runs while the metric computes or a judge works. The clock stops while all open questions wait for a place, a rate or
    a breaker.

    Attributes:
        metric: name of the metric; an account's queue goes round robin by it.
        taken_s: time at which this process received the unit, by the loop's clock; ``queue_timeout`` counts from it.
        held_until_s: time until which the unit's spans wait for its scores, by the loop's clock; such units are asked first.
        budget_ledger: the budgets that pay for its questions; None = no budget is set.
        transcribes: whether each of its calls has a transcript (``judges/records.py``).
        quotes: whether a transcript holds question and answer, which are content.
        images: images of the sample, in the order of their numbers.
        first_field: the sample's field with which most of its questions begin; empty if they have no common field.
        questions_alike: number of the unit's questions to the same account that begin with that field, its own included. If it
            is above 1, they share the beginning that the provider caches.
        on_change: called when ``is_waiting`` has changed.
        asking: open questions: sent, or waiting to be sent.
        waiting: open questions that wait to be sent.
        chosen: id of a ``FallingBack`` → the judge that it chose for all questions of the score.
        contradictions: number of its judge's verdicts that contradict their own reason.
        source: the score's source, if another judge than the configured judge gave it; None = the configured judge.
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
    """Return the score of the present question; an empty one if a metric is scored by hand."""
    return _current_score.get() or ScoreContext()


def ask_for(score: ScoreContext) -> None:
    """Ask all questions of this context, which ends with its task, for this score."""
    _current_score.set(score)


def asked_by(score: ScoreContext) -> AbstractContextManager[None]:
    """Ask all questions inside the block, and in tasks started there, for this score."""
    return set_inside(_current_score, score)


@dataclass(slots=True, eq=False)
class SharedWait(Generic[T]):
    """One caller's wait for an answer that several callers share. Call on the loop thread.

    Attributes:
        answer: future of the answer.
        score: the caller's score. The score's clock follows the request's clock.
        context: the caller's context.
    """

    answer: asyncio.Future[T] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    score: ScoreContext = field(default_factory=current_score)
    context: Context = field(default_factory=copy_context)
    _waits: ExitStack = field(default_factory=ExitStack, init=False)
    _is_waiting: bool = field(default=False, init=False)

    def fail(self, error: BaseException, *, pays: bool) -> None:
        """End the wait with an error. Only the caller that pays for the request is charged for it."""
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
        score: the score in whose name the request is sent: a copy of the first caller's, whose clock all callers follow.
    """

    def __init__(self) -> None:
        self.waits: dict[K, SharedWait[T]] = {}
        self.score = ScoreContext()
        self._request: asyncio.Task[None] | None = None

    def join(self, key: K) -> SharedWait[T]:
        """Add a caller, which awaits the answer of the returned wait, and then calls ``leave``."""
        wait = self.waits[key] = SharedWait()
        return wait

    async def leave(self, key: K) -> None:
        """Remove a caller. If it is the last, the request is cancelled, unless it has ended, and awaited."""
        self.waits.pop(key).set_waiting(False)
        if not self.waits and self._request is not None and not self._request.done():
            self._request.cancel()
            await asyncio.wait({self._request})

    def pending(self) -> list[SharedWait[T]]:
        """Return the waits without an answer."""
        return [wait for wait in self.waits.values() if not wait.answer.done()]

    def begin(self, first: SharedWait[T], work: Coroutine[Any, Any, None]) -> None:
        """Send the request in the name and the context of a caller."""
        self.score = replace(first.score, on_change=self._set_clocks)
        self._request = first.context.run(asyncio.ensure_future, work)

    def fail(self, error: BaseException) -> None:
        """End all waits with an error. The first one is charged for the request."""
        for position, wait in enumerate(self.pending()):
            wait.fail(error, pays=not position)

    def _set_clocks(self) -> None:
        for wait in self.waits.values():
            wait.set_waiting(self.score.is_waiting)
