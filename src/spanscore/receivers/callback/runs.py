"""Run and Root: what the handler remembers of a run between its start and its end.

A run that gets no span (a prompt, a parser, a lambda) has no Run of its own: its id maps to the nearest recorded
ancestor, so that a child finds its span's parent in one look-up and the span thread never hears of the step.
"""

from __future__ import annotations

import contextvars
from asyncio import Task
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import ReferenceType

from opentelemetry.context import Context
from opentelemetry.trace import Span

from spanscore import semconv
from spanscore.core.span import UnitKey

__all__ = ["CLIENTS", "Event", "Root", "Run", "each_once"]

CLIENTS: Final = frozenset({semconv.CHAT, semconv.TEXT_COMPLETION, semconv.RETRIEVAL})
"""Operations that ask another process: their spans are of kind client."""


@dataclass(slots=True, eq=False)
class Run:
    """One recorded run.

    Attributes:
        id: of the LangChain run.
        operation: ``gen_ai.operation.name``; None for a step.
        parent: the nearest recorded run above it; None for a root.
        input: snapshot of the input, None when content is not wanted.
        details: metadata and parameters of the start event, by reference: the library builds them anew per run.
        first_ns: when the first chunk of a stream came.
        ended: its end has been told, and is not heard twice. The run is remembered as a parent until its unit closes.
        closed: its span has been closed; an end that comes after that changes nothing.
        span: made on first need, by the span thread (``RunSpans``).
    """

    id: int
    operation: str | None
    name: str
    start_ns: int
    parent: Run | None = None
    root: Root = field(init=False)
    input: Any = None
    details: Any = None
    first_ns: int = 0
    span_id: int = 0
    tool_context: Any = None
    span: Span | None = None
    ended: bool = False
    closed: bool = False

    def __post_init__(self) -> None:
        """Take the root of the parent."""
        if self.parent is not None:
            self.root = self.parent.root


@dataclass(slots=True, eq=False)
class Root(Run):
    """The top-most run.

    Attributes:
        key: None while ``ignored``.
        context: the caller's OpenTelemetry context: children start in it.
        carrier: a copy of all the caller's context variables, until the span is made in it.
        sampling: the head sampler's decision, until the span is made by it.
        may: whether any metric could still take the unit; None where the sampler has not said.
        opened_ns: when the span thread heard of it, by its own clock.
        record_content: whether content is snapshotted: it may be scored, or content is exported.
        given: metadata and input of the start event, by reference, with its thread or task, until the end of the run. Another
            start under the same id has others.
        expected: references given by ``spanscore.references``.
        asked: the last human message of the first state that a step was given; None while none was; () if nobody looks for it.
        history: what a store of messages gave to the run; None where none was asked.
        history_step: id of the step that asks it.
        open: id → run of every descendant whose end the span thread has not read; None for a step that has not ended.
        ids: of every descendant, to forget them by.
        told: events of ended descendants that leave with it, as nobody looks at them before; None where each goes its own way.
        told_bytes: of their content, roughly.
        heard: the span thread knows of it.
        ignored: judged, refused or head-sampled away: it and its children are remembered so that no child becomes a root.
        shared: of a root whose spans another scorer makes: the metrics that both have; None = its spans are made here.
        interrupted: a ``GraphInterrupt`` passed through.
        broken: an event of it was dropped.
        failed_inside: a step that gets no span ended in error, handled or not.
        counted_texts: ids of its long texts that the event queue has counted; None where there are none.
        session: id of the conversation, where ``spanscore.session`` gives one; else metadata may.
        detached: the scorer was shut down meanwhile, and the span has left: what comes of it later is not recorded.
        task: the one whose end is the root's, where no end is told (``tasks.own_task``); None where there is none.
    """

    key: UnitKey | None = None
    context: Context | None = None
    carrier: contextvars.Context | None = None
    sampling: Any = None
    may: bool | None = None
    opened_ns: int = 0
    record_content: bool = False
    session: str | None = None
    expected: Mapping[str, Any] | None = None
    asked: Any = ()
    history: Any = None
    history_step: int = 0
    open: dict[int, Run | None] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)
    told: list[Event] | None = None
    told_bytes: int = 0
    heard: bool = False
    ignored: bool = False
    interrupted: bool = False
    broken: bool = False
    failed_inside: bool = False
    detached: bool = False
    task: ReferenceType[Task[Any]] | None = None
    is_trace_root: bool = False
    trace_state: str = ""
    given: tuple[Any, Any, int] | None = None
    shared: Set[str] | None = None
    counted_texts: set[int] | None = None

    def __post_init__(self) -> None:
        """Be the root of itself."""
        self.root = self


Event = tuple[Run, int, Any, BaseException | None]
"""(run, end in ns or 0 for a root's start, snapshot of the output, error)."""


def each_once(told: list[Event]) -> Iterator[Event]:
    """Take events from a list, oldest first, each once, however many threads take of it."""
    with suppress(IndexError):
        while True:
            yield told.pop(0)
