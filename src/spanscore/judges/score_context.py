"""The context of a judge's call: the score that it is for, and that no instrumentation traces it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Any

from opentelemetry import context
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY

from spanscore.core.context import is_judging, judging
from spanscore.judges.effects.budget_ledger import BudgetLedger

__all__ = ["ScoreContext", "SharedWait", "ask_for", "asked_by", "asker", "suppress_tracing", "suppressed_context"]

# --- suppress -------------------------------------------------------------------------------------------------------

# The evaluator never evaluates itself: inside ``suppress_tracing()`` no instrumentation traces what a judge does.
#
# Each of the four marks stops a tracer that the others do not: OpenTelemetry instrumentations honour the context key (some
# the plain string), LangSmith only its own switch, and handlers of a configure hook, ours among them, only a context
# variable. ``callbacks=[]`` is the fifth, in the LangChain judge.

_PLAIN_KEY = "suppress_instrumentation"


def suppress_tracing() -> AbstractContextManager[None]:
    """Mark the block as a judge's call: no instrumentation traces it. Enter and leave it in one task."""
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
    """Return a copy of the caller's context in which everything is marked so, for good: there is no block to leave."""
    if is_judging():
        return copy_context()
    with suppress_tracing():
        return copy_context()


def _without_langsmith() -> AbstractContextManager[None]:
    """Switch LangSmith off, if it is loaded at all: importing it costs half a second, and unloaded it traces nothing."""
    if "langsmith" not in sys.modules and "langchain_core" not in sys.modules:
        return nullcontext()
    # No parent: looking for the run we are in takes longer than all the rest, and nothing in here is traced.
    return _langsmith_context()(enabled=False, parent=False)


@cache
def _langsmith_context() -> Callable[..., AbstractContextManager[None]]:
    """Return LangSmith's switch. Once: its package looks each name up anew, which takes 10 µs."""
    from langsmith import tracing_context

    return tracing_context


# --- asker ----------------------------------------------------------------------------------------------------------

# ScoreContext: for which score a question is asked. What a judge's effects need to know of it, and the clock of the score.
#
# The engine opens one around each metric that it begins; a metric that is scored by hand has none.
#
#     asking    a question of the score is out with its judge, or waits to be sent
#     waiting   it waits: for a place, a rate, an open breaker. That is no time in which a judge works
#
# The score's time runs while it computes or a judge works for it; it stands still while all its open questions wait.


@dataclass(slots=True, eq=False)
class ScoreContext:
    """One metric at work on one sample. Loop thread.

    Attributes:
        metric: its name: the places of an account go round by it.
        taken_s: when this process took the unit; the loop's clock, as all times here. ``queue_timeout`` counts from it.
        held_until_s: until when the unit's spans wait for its scores: such a unit goes before one whose spans have left.
        purse: from which its questions are paid; None = no budget is set.
        transcribes: whether its calls are told one by one (``judges/records.py``).
        quotes: and with what was asked and said, which is content.
        on_change: called when ``is_waiting`` has changed.
        asking: questions that are open.
        waiting: of them, those that wait.
        chosen: whom of several judges all questions of the score are asked; by the id of what chose (``effects/fallback.py``).
        contradictions: verdicts of its judge that its own reason speaks against.
        source: of what the score is a part, where it is none of the judge that was configured; None = the population.
    """

    metric: str = ""
    taken_s: float | None = None
    held_until_s: float = -inf
    purse: BudgetLedger | None = None
    transcribes: bool = False
    quotes: bool = False
    on_change: Callable[[], None] | None = None
    asking: int = field(default=0, init=False)
    waiting: int = field(default=0, init=False)
    chosen: dict[int, Any] = field(default_factory=dict, init=False)
    source: str | None = field(default=None, init=False)
    contradictions: int = field(default=0, init=False)

    @property
    def is_waiting(self) -> bool:
        """Whether nobody works for it: all its open questions wait."""
        return 0 < self.asking == self.waiting

    @contextmanager
    def asks(self) -> Iterator[None]:
        """Have a question open inside the block."""
        self._count(asking=1)
        try:
            yield
        finally:
            self._count(asking=-1)

    @contextmanager
    def waits(self) -> Iterator[None]:
        """Have the question that is open wait inside the block."""
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


_asker: ContextVar[ScoreContext | None] = ContextVar("spanscore_asker", default=None)


def asker() -> ScoreContext:
    """Return for which score a question is asked; one that knows nothing, where a metric is scored by hand."""
    return _asker.get() or ScoreContext()


def ask_for(one: ScoreContext) -> None:
    """Have all questions of this context, which has no end but its task's, asked for this score."""
    _asker.set(one)


@contextmanager
def asked_by(one: ScoreContext) -> Iterator[None]:
    """Have all questions inside the block, and in tasks started there, asked for this score."""
    token = _asker.set(one)
    try:
        yield
    finally:
        _asker.reset(token)


@dataclass(slots=True, eq=False)
class SharedWait:
    """Who waits for an answer that is asked for in another's name, and whose clock goes as that one's. Loop thread."""

    asker: ScoreContext = field(default_factory=asker)
    _waits: ExitStack = field(default_factory=ExitStack, init=False)
    _is_waiting: bool = field(default=False, init=False)

    def stand(self, waiting: bool) -> None:
        """Have the clock stand still while the request waits to be sent, and run while a judge works."""
        if waiting and not self._is_waiting:
            self._waits.enter_context(self.asker.waits())
        elif not waiting:
            self._waits.close()
        self._is_waiting = waiting
