"""Run and Root: what the handler remembers of a run between its start and its end.

A run that gets no span (a prompt, a parser, a lambda) has no Run of its own: its id maps to the nearest recorded
ancestor, so that a child finds its span's parent in one look-up and the span thread never hears of the step.
"""

from __future__ import annotations

import contextvars
from asyncio import Task
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from typing import Any, Final
from weakref import ReferenceType

from opentelemetry.context import Context
from opentelemetry.trace import Span

from spanscore import semconv
from spanscore.model.span import UnitKey

__all__ = ["CLIENTS", "Event", "Root", "Run", "each_once"]

CLIENTS: Final = frozenset({semconv.CHAT, semconv.TEXT_COMPLETION, semconv.RETRIEVAL})
"""Operations that ask another process: their spans are of kind client."""


class Run:
    """One recorded run.

    Attributes:
        id: of the LangChain run.
        operation: ``gen_ai.operation.name``; None for a step.
        input: snapshot of the input, None when content is not wanted.
        details: metadata and parameters of the start event, by reference: the library builds them anew per run.
        first_ns: when the first chunk of a stream came.
        ended: its end has been told, and is not heard twice. The run is remembered as a parent until its unit closes.
        closed: its span has been closed; an end that comes after that changes nothing.
        span: made on first need, by the span thread (``RunSpans``).
    """

    __slots__ = (
        "closed",
        "details",
        "ended",
        "first_ns",
        "id",
        "input",
        "name",
        "operation",
        "parent",
        "root",
        "span",
        "span_id",
        "start_ns",
        "tool_context",
    )

    def __init__(self, run_id: int, parent: Run | None, operation: str | None, name: str, start_ns: int) -> None:
        self.id = run_id
        self.parent = parent
        self.operation = operation
        self.name = name
        self.start_ns = start_ns
        self.input: Any = None
        self.details: Any = None
        self.first_ns = self.span_id = 0
        self.tool_context: Any = None
        self.span: Span | None = None
        self.ended = self.closed = False
        if parent is not None:
            self.root: Root = parent.root


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

    __slots__ = (
        "asked",
        "broken",
        "carrier",
        "context",
        "counted_texts",
        "detached",
        "expected",
        "failed_inside",
        "given",
        "heard",
        "history",
        "history_step",
        "ids",
        "ignored",
        "interrupted",
        "is_trace_root",
        "key",
        "may",
        "open",
        "opened_ns",
        "record_content",
        "sampling",
        "session",
        "shared",
        "task",
        "told",
        "told_bytes",
        "trace_state",
    )

    def __init__(self, run_id: int, operation: str, name: str, start_ns: int) -> None:
        self.id = run_id  # written out: one call less per root, on the application's thread
        self.parent = None
        self.operation = operation
        self.name = name
        self.start_ns = start_ns
        self.input = self.details = self.span = None
        self.first_ns = self.span_id = 0
        self.tool_context = None
        self.ended = self.closed = False
        self.root = self
        self.key: UnitKey | None = None
        self.context: Context | None = None
        self.carrier: contextvars.Context | None = None
        self.sampling: Any = None
        self.may: bool | None = None
        self.opened_ns = 0
        self.record_content = False
        self.session: str | None = None
        self.expected: Mapping[str, Any] | None = None
        self.asked: Any = ()
        self.history: Any = None
        self.history_step = 0
        self.open: dict[int, Run | None] = {}
        self.ids: list[int] = []
        self.told: list[Event] | None = None
        self.told_bytes = 0
        self.heard = self.ignored = False
        self.interrupted = False
        self.broken = self.failed_inside = False
        self.detached = False
        self.task: ReferenceType[Task[Any]] | None = None
        self.is_trace_root = False
        self.trace_state = ""
        self.given: tuple[Any, Any, int] | None = None
        self.shared: Set[str] | None = None
        self.counted_texts: set[int] | None = None


Event = tuple[Run, int, Any, BaseException | None]
"""(run, end in ns or 0 for a root's start, snapshot of the output, error)."""


def each_once(told: list[Event]) -> Iterator[Event]:
    """Take events from a list, oldest first, each once, however many threads take of it."""
    with suppress(IndexError):
        while True:
            yield told.pop(0)
