"""The callback handler that applications attach to LangChain. It captures runs with little work on the application's thread.

A run costs a look-up of its id, a reading of the clock, a snapshot if its content is needed, and one append to the event queue
at its end. A root has its real ids, head-sampling decision and ambient parent immediately. The span thread creates the spans
later, with their true times. Parents come from ``parent_run_id``; no context is attached.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from time import time_ns
from typing import Any, Final, Self
from uuid import UUID, uuid4
from weakref import ReferenceType

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables.config import var_child_runnable_config
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY  # what every instrumentation honours; no public name

from spanscore import semconv
from spanscore.capture.callback.langchain_frames import give_back_the_start, is_awaited, own_task
from spanscore.capture.callback.runs import Event, Root, Run, RunTable, each_once, thread_or_task
from spanscore.capture.callback.spans import RunSpans, conversation_of, was_stopped
from spanscore.capture.intake import Intake
from spanscore.capture.other_scorers import ScorerIdentity, borrow, handlers
from spanscore.core import context
from spanscore.core.codecs import snapshot as codec
from spanscore.core.codecs.snapshot import estimate_size
from spanscore.core.log import bases_of, class_name, log_internal_error, log_once
from spanscore.core.score import Outcome
from spanscore.core.span import SamplingContext
from spanscore.protocols import Receiver

_HISTORY_STEP: Final = "load_history"
"""Step of RunnableWithMessageHistory that returns the earlier messages, which are otherwise found only in prompts."""
_NO_AGENT: Final = object()

_ids: ContextVar[Mapping[tuple[int, int], int]] = ContextVar("spanscore_run_ids", default={})  # noqa: B039  (never changed)
"""Handler and LangChain's run id → internal id of the handler's root in this context."""

_MOST_KEPT: Final = 100
"""Maximum number of ended runs that wait for the end of their root, because an agent's root may end hours later."""
_RUN_BYTES: Final = 1_500
"""Approximate size of such a waiting run without content: the metadata of its start and the usage of its answer."""
_MOST_KEPT_BYTES: Final = _MOST_KEPT * _RUN_BYTES
"""Limit of the bytes of such runs with content, because the event queue counts them only when it has them."""
_LANGGRAPH: Final = "langgraph.callbacks"
"""Module that LangGraph loads before any graph can run; older versions have no such events."""
_CONTROL_FLOW: Final = "GraphBubbleUp"
"""Class in langgraph.errors: interrupts and hand-overs to a parent graph are raised as exceptions, but are no errors."""
_HAND_OVER: Final = "ParentCommand"


class SpanCallbackHandler(BaseCallbackHandler):
    """Captures the runs of every chain that it is attached to. Get it from ``OnlineScorer.handler``.

    One instance serves any number of concurrent chains, threads and loops. If it is attached twice to a run, the run counts
    once. No method blocks or raises. A copy or deep copy is the handler itself. An unpickled handler records nothing.

    Args:
        intake: the intake to use first; ``connect`` replaces it.
        tracer: function that returns the tracer of the capture scope; called once, before the first root.
        ready: called before the first root (of each process): starts the span thread.
        content: whether content is exported, and therefore needed for every unit.
        steps: whether prompts, parsers and lambdas also get spans.

    Attributes:
        receiver: reader of the events, created from this handler, which it sets here.
        identity: identity of the scorer, for other scorers in the process.
        others: handlers of other scorers.
        is_installed: function that returns whether LangChain attaches this handler to every chain.
        installed_ns: time at which this handler was last installed on every chain; 0 = never.
        attaches_tools: whether the span of a tool is the current one while the tool runs.
        holder: object that this handler and the scorer keep alive; when it dies, no run can come any more.
        max_roots: number of remembered roots; above it, the oldest is abandoned.
        memory: the runs. The span thread refers to this only, so that it does not keep the handler alive.
    """

    run_inline = True
    raise_error = False
    # Plain attributes, because the properties of the base class cost a call each, eight times per small chain.
    ignore_llm = ignore_chain = ignore_retriever = ignore_chat_model = False
    ignore_agent = False  # tools, too
    ignore_retry = ignore_custom_event = True

    receiver: Receiver
    attaches_tools = False
    holder: object = None
    installed_ns = 0
    max_roots = 10_000
    others: tuple[ReferenceType[SpanCallbackHandler], ...] = ()

    def __init__(
        self,
        intake: Intake,
        *,
        tracer: Callable[[], trace.Tracer],
        ready: Callable[[], None],
        content: bool = False,
        steps: bool = False,
    ) -> None:
        self._tracer = tracer
        self._ready = ready
        self.content = content
        self._steps = steps
        self._observes_graphs = False
        self.memory = RunTable()
        self.connect(intake)
        self.identity = ScorerIdentity()
        self.is_installed: Callable[[], bool] = lambda: False
        handlers.join(self)

    def connect(self, intake: Intake) -> None:
        """Use this intake from now on, without a run: roots that are open at a fork never end in the child."""
        self._intake, self._event_queue, self._sampler = intake, intake.event_queue, intake.sampler
        self.admission, self._turns = intake.admission, intake.turns
        self.memory = RunTable(self.memory.closed, self.memory.why_closed)
        self._runs, self._roots = self.memory.runs, self.memory.roots
        self.forget = self.memory.forget

    def forget_previews(self) -> None:
        """Decide on the next roots by the sampler in force, because another sampler decided on ids that were drawn ahead."""
        if self.memory.spans is not None:
            self.memory.spans.preview_by(self._sampler.preview_trace)

    @property
    def is_at_work(self) -> bool:
        """Whether runs are recorded, or will be."""
        return not self.memory.closed and (self.memory.units > 0 or self.is_installed())

    def trace_id(self, run_id: UUID) -> int | None:
        """Return the trace of a recent root run; None if it is unknown or forgotten."""
        key = self.memory.root_unit(self.id_here(run_id))
        return None if key is None else key.trace_id

    def id_here(self, run_id: UUID) -> int:
        """Return the internal id of a run that has this id in the current context."""
        return run_id.int

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __reduce__(self) -> Any:
        return _unpickled, ()

    # --- chains ------------------------------------------------------------------------------------------------

    def on_chain_start(
        self,
        serialized: Any,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Open a root, or record a step."""
        try:
            parent = self._runs.get(parent_run_id.int) if parent_run_id is not None else self._around()
            if parent is not None and (name == _HISTORY_STEP or parent.root.asked is None):
                _note_step(parent.root, run_id.int, name, inputs)
            agent = metadata is not None and metadata.get("lc_agent_name", _NO_AGENT) == name
            if parent is not None and not agent and not self._steps:  # most runs are this
                if run_id.int not in self._runs:
                    self._runs[run_id.int] = parent
                    root = parent.root
                    root.open[run_id.int] = None
                    root.ids.append(run_id.int)
                return
            self._open_chain(run_id.int, parent, name or "chain", metadata, inputs, agent=agent)
        except Exception as fault:  # noqa: BLE001
            log_internal_error("record a run in on_chain_start", fault)

    def _open_chain(
        self, run_id: int, parent: Run | None, name: str, metadata: dict[str, Any] | None, inputs: Any, *, agent: bool
    ) -> None:
        if parent is not None:
            nested = semconv.INVOKE_AGENT if agent else None
            self._child(run_id, parent, nested, name, metadata, codec.snapshot, inputs)
            return
        nameless = metadata is not None and metadata.get("ls_integration") == "langchain_create_agent"
        operation = semconv.INVOKE_AGENT if agent or nameless else semconv.INVOKE_WORKFLOW
        self._begin(run_id, operation, name, metadata, codec.snapshot, inputs)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, inputs: Any = None, **kwargs: Any) -> None:
        """End a root; the true input of a stream arrives only here."""
        try:
            run = self._runs.get(run_id.int)
            if run is not None and run.root.history_step == run_id.int and run.root.record_content:
                run.root.history = codec.snapshot(outputs)
            if run is not None and run.id != run_id.int:  # a step
                run.root.open.pop(run_id.int, None)
                return
            self._end(run_id.int, codec.snapshot, outputs, None, inputs)
        except Exception as fault:  # noqa: BLE001
            log_internal_error("record a run in on_chain_end", fault)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """End a run that raised, was cancelled, abandoned or interrupted; a model's run keeps its partial answer."""
        try:
            self._fail(run_id.int, error, kwargs.get("response"), kwargs.get("inputs"))
        except Exception as fault:  # noqa: BLE001
            log_internal_error("record a failed run", fault)

    on_llm_error = on_retriever_error = on_tool_error = on_chain_error

    def on_interrupt(self, event: Any) -> None:
        """Record that a graph waits for a person. This event of LangGraph is the only sign of a breakpoint."""
        self._mark_interrupted(event, True)

    def on_resume(self, event: Any) -> None:
        """Record that a graph continues: the turn is not over if the graph was interrupted within the same run."""
        self._mark_interrupted(event, False)

    def _mark_interrupted(self, event: Any, interrupted: bool) -> None:
        run_id = getattr(event, "run_id", None)
        run = self._runs.get(self.id_here(run_id)) if run_id is not None else None
        if run is not None:
            run.root.interrupted = interrupted

    # --- models ------------------------------------------------------------------------------------------------

    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Record a model's start."""
        self._model_start(semconv.CHAT, serialized, messages, run_id, parent_run_id, kwargs)

    def on_llm_start(
        self, serialized: Any, prompts: list[str], *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Record a text model's start, and make sure that other handlers also get it."""
        give_back_the_start(SpanCallbackHandler)
        self._model_start(semconv.TEXT_COMPLETION, serialized, prompts, run_id, parent_run_id, kwargs)

    def _model_start(
        self, operation: str, serialized: Any, prompts: Any, run_id: UUID, parent_run_id: UUID | None, about: Any
    ) -> None:
        try:
            take = codec.snapshot_messages if operation is semconv.CHAT else codec.snapshot
            name = about.get("name") or (serialized or {}).get("name") or "model"
            metadata = about.get("metadata")
            run = self._open(run_id.int, parent_run_id, operation, name, metadata, take, prompts)
            if run is not None:
                run.details = (metadata, about.get("invocation_params"))
        except Exception as fault:  # noqa: BLE001
            log_internal_error("record a run in on_llm_start", fault)

    def on_llm_new_token(self, token: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Record the time of the first chunk."""
        run = self._runs.get(run_id.int)
        if run is not None and not run.first_ns and run.id == run_id.int:
            run.first_ns = time_ns()

    def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """End a model's run with its answer and its usage."""
        try:
            self._end(run_id.int, codec.snapshot_generation, response, None)
        except Exception as fault:  # noqa: BLE001
            log_internal_error("record a run in on_llm_end", fault)

    # --- retrievers and tools ----------------------------------------------------------------------------------

    def on_retriever_start(
        self, serialized: Any, query: str, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Record a retriever's start."""
        try:
            name, metadata = kwargs.get("name") or "retriever", kwargs.get("metadata")
            self._open(run_id.int, parent_run_id, semconv.RETRIEVAL, name, metadata, codec.snapshot, query)
        except Exception as fault:  # noqa: BLE001
            log_internal_error("record a run in on_retriever_start", fault)

    def on_retriever_end(self, documents: Sequence[Any], *, run_id: UUID, **kwargs: Any) -> None:
        """End a retriever's run with its documents."""
        try:
            self._end(run_id.int, codec.snapshot, documents, None)
        except Exception as fault:  # noqa: BLE001
            log_internal_error("record a run in on_retriever_end", fault)

    def on_tool_start(
        self, serialized: Any, input_str: str, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Record a tool's start."""
        try:
            name = kwargs.get("name") or (serialized or {}).get("name") or "tool"
            metadata, inputs = kwargs.get("metadata"), kwargs.get("inputs")
            input_ = input_str if inputs is None else inputs
            run = self._open(run_id.int, parent_run_id, semconv.EXECUTE_TOOL, name, metadata, codec.snapshot, input_)
            if run is not None:
                run.details = kwargs.get("tool_call_id")
                if self.attaches_tools and run is not run.root and self.memory.spans is not None:
                    self.memory.spans.attach(run)
        except Exception as fault:  # noqa: BLE001
            log_internal_error("record a run in on_tool_start", fault)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """End a tool's run with its output."""
        try:
            self._end(run_id.int, codec.snapshot_tool_output, output, None)
        except Exception as fault:  # noqa: BLE001
            log_internal_error("record a run in on_tool_end", fault)

    # --- roots and runs ----------------------------------------------------------------------------------------

    def _open(
        self, run_id: int, parent_run_id: UUID | None, operation: str, name: str, metadata: Any, take: Any, input_: Any
    ) -> Run | None:
        parent = self._runs.get(parent_run_id.int) if parent_run_id is not None else self._around()
        if parent is None:
            return self._begin(run_id, operation, name, metadata, take, input_)
        return self._child(run_id, parent, operation, name, metadata, take, input_)

    def _around(self) -> Run | None:
        """Return the running run in whose context a run without a parent starts; None at the top.

        ``RunnableWithFallbacks`` passes on its own configuration, not its child's. Without this look-up, a fallback that is
        called alone would be a unit, and so would each model that it tries.
        """
        config = var_child_runnable_config.get()
        parent_run_id = getattr(config.get("callbacks"), "parent_run_id", None) if config else None
        parent = self._runs.get(self.id_here(parent_run_id)) if parent_run_id is not None else None
        return None if parent is None or parent.root.ended or context.is_judging() else parent

    def _begin(
        self, run_id: int, operation: str, name: str, metadata: Any, take: Any, input_: Any, *, langchain_id: int = 0
    ) -> Root | None:
        """Open a root, and read everything that only the caller's context provides.

        ``langchain_id`` is LangChain's id of the run, if ``run_id`` is an internal id; 0 = ``run_id`` is LangChain's id.
        """
        if run_id in self._roots and (self._is_start(run_id, metadata, input_) or not self._is_left(run_id)):
            return self._begin_another(run_id, operation, name, metadata, take, input_)
        now = time_ns()
        if len(self._roots) >= self.max_roots:
            self._give_up_oldest(now)
        if not self._observes_graphs and _LANGGRAPH in sys.modules:
            self._observes_graphs = True
            _observe_graphs(self)
        root = Root(run_id, operation, name, now)
        self._runs[run_id] = self._roots[run_id] = root
        root.details = metadata
        root.given = metadata, input_, thread_or_task()
        root.session = context.current_session()
        root.ignored = True  # stays if a processor of the application raises in the next line
        root.ignored = not self._admit(root, langchain_id)
        if root.ignored or root.key is None:
            return None
        if root.may_be_scored is None:
            root.may_be_scored = self._sampler.could_sample(self._facts(root, metadata))
        root.record_content = root.may_be_scored or self.content
        if root.record_content:
            root.input = take(input_)
            root.asked = None
            root.expected = context.current_expectation()
        root.task = own_task()
        self.memory.units += 1
        self._announce(root)
        return root

    def _begin_another(self, run_id: int, *about: Any) -> Root | None:
        """Open a root under an internal id, unless this start event has already opened a root."""
        if self._is_start(run_id, about[2], about[4]):
            return None
        if not isinstance(self, _ContextRoutedHandler):  # only now, so that other handlers' events do not pay for it
            _subclass(self, _ContextRoutedHandler, type(self))
        own_id = uuid4().int
        _ids.set({**_ids.get(), (id(self), run_id): own_id})
        return self._begin(own_id, *about, langchain_id=run_id)

    def _is_start(self, run_id: int, metadata: Any, input_: Any) -> bool:
        """Return whether a start event repeats the root's own: LangChain calls a handler twice that is attached twice."""
        root = self._roots.get(run_id)
        inputs = None if root is None else root.given
        return inputs is not None and inputs[0] is metadata and inputs[1] is input_

    def _is_left(self, run_id: int) -> bool:
        """Return whether this id has no running root. A root of the same thread or task never ended: it is abandoned."""
        root = self._roots.get(run_id)
        if root is None or root.given is None:
            return True
        if root.given[2] != thread_or_task():
            return False
        self._roots.pop(run_id, None)
        self._give_up(root, time_ns())
        return True

    def _announce(self, root: Root) -> None:
        """Send a root's start to the span thread; if no processor observes starts, the end of the root is sent only."""
        spans = self.memory.spans
        if self._turns is not None or spans is None or root.shared is not None or not spans.unseen:
            self._event_queue.put(self.receiver, (root, 0, None, None), never_drop=True)
        else:
            root.kept_events = []
            self._event_queue.wake_sleeper()  # so that the root is closed even if its end never comes

    def _facts(self, root: Root, metadata: Mapping[str, Any] | None) -> SamplingContext:
        """Return the sampling facts of a root that begins, and announce its conversation."""
        assert root.key is not None
        facts = SamplingContext(
            root.key, root.is_trace_root, root.trace_state, root.name, root.operation, None, None, metadata or {}
        )
        if self._turns is None:
            return facts
        conversation = conversation_of(root) or ""
        if conversation:
            self._turns.record_start(conversation, root.start_ns, root.shared or frozenset())
        return facts._replace(conversation_id=conversation)

    def _admit(self, root: Root, langchain_id: int) -> bool:
        """Set the root's ids. Return False if the root is not recorded; the reason is counted."""
        ambient = otel_context.get_current()
        if self.memory.closed:
            if self.memory.why_closed:
                log_once("replaced scorer", self.memory.why_closed)
            return False
        if context.is_judging() or ambient.get(_SUPPRESS_INSTRUMENTATION_KEY):
            return False
        if not self._event_queue.admits():
            self._intake.reject(Outcome.EVENT_QUEUE_FULL, self._conversation(root))
            return False
        left = borrow(self, root, langchain_id) if self.others else None
        if left is not None and not left:
            return False
        spans = self.memory.spans
        if spans is None:
            self._ready()
            spans = self.memory.spans = RunSpans(self._tracer(), self._sampler.preview_trace)
        if left is None and not spans.decide(root, ambient):
            self._intake.reject(Outcome.TRACE_NOT_SAMPLED, self._conversation(root))
            return False
        return True

    def _conversation(self, root: Root) -> str | None:
        return None if self._turns is None else conversation_of(root)

    def _child(
        self, run_id: int, parent: Run, operation: str | None, name: str, metadata: Any, take: Any, input_: Any
    ) -> Run | None:
        if run_id in self._runs:
            return None
        root = parent.root
        if root.ignored or root.detached:
            self._runs[run_id] = parent
            root.open[run_id] = None
            root.ids.append(run_id)
            return None
        run = Run(run_id, operation, name, time_ns(), parent)
        if root.record_content:
            run.input = take(input_)
        run.details = metadata
        self._runs[run_id] = root.open[run_id] = run
        root.ids.append(run_id)
        return run

    def _fail(self, run_id: int, error: BaseException, response: Any, inputs: Any) -> None:
        run = self._runs.get(run_id)
        if run is not None:
            real = _error_of(run.root, error)
            if run.id != run_id and real is not None and not was_stopped(real):
                run.root.failed_inside = True
            self._end(run_id, codec.snapshot_generation, response, real, inputs)

    def _end(self, run_id: int, take: Any, output: Any, error: BaseException | None, inputs: Any = None) -> None:
        run = self._runs.get(run_id)
        if run is None:
            return
        root = run.root
        if run.id != run_id or root.ignored:
            root.open.pop(run_id, None)
            if self._roots.get(run_id) is run:
                self.forget(root)
            return
        if run.ended:  # the handler is attached twice, or the run was abandoned
            return
        run.ended = True
        snapshot = None
        if output is not None:
            if take is codec.snapshot_generation:  # without content, only its usage
                snapshot = take(output, content=root.record_content)
            elif root.record_content:
                snapshot = take(output)
        if inputs is not None and root.record_content:
            run.input = codec.snapshot(inputs)
        if run is not root:
            self._put_child(run, snapshot, error)
        else:
            self._put_root(root, snapshot, error, streamed=inputs is not None)

    def _put_root(self, root: Root, snapshot: Any, error: BaseException | None, *, streamed: bool) -> None:
        if root.detached:
            self.forget(root)
            return
        self._roots.pop(root.id, None)
        root.given = None
        runs_on = streamed and any(run is None or not run.ended for run in list(root.open.values()))
        if error is None and runs_on and not is_awaited():
            error = GeneratorExit()  # a sync stream that its reader left ends before its steps
        if self._event_queue.is_full():  # events of the root may have been dropped, so its unit will not be scored
            root.broken, root.input, snapshot = True, None, None
            if root.record_content:  # drop its kept events, too
                root.kept_events, root.kept_bytes = None, 0
        size_bytes = root.kept_bytes + _size_bytes(root, snapshot)
        self._event_queue.put(self.receiver, (root, time_ns(), snapshot, error), size_bytes, never_drop=True)

    def _put_child(self, run: Run, snapshot: Any, error: BaseException | None) -> None:
        root, event = run.root, (run, time_ns(), snapshot, error)
        if run.tool_context is not None:
            run.tool_context.end()
        if root.kept_events is not None:
            self._keep(root, root.kept_events, event)
        elif not root.detached:
            self._put(event, _size_bytes(run, snapshot))

    def _keep(self, root: Root, events: list[Event], event: Event) -> None:
        """Keep the end of a run until the end of its root, within limits.

        There is no lock. A reader first removes the list from the root, and this method checks for that after it has kept an
        event, so that no event is lost.
        """
        run, _, snapshot, _ = event
        root.kept_bytes += _size_bytes(run, snapshot) if root.record_content else _RUN_BYTES
        events.append(event)
        if root.kept_events is not None and not root.ended:
            root.open.pop(run.id, None)
            if len(events) < _MOST_KEPT and root.kept_bytes < _MOST_KEPT_BYTES:
                return
            root.kept_events = None
        for kept in each_once(events):
            size_bytes, root.kept_bytes = root.kept_bytes, 0  # the first event counts the size of all
            self._put(kept, size_bytes)

    def _put(self, event: Event, size_bytes: int) -> None:
        run = event[0]
        if not self._event_queue.put(self.receiver, event, size_bytes):
            run.root.broken, run.input = True, None
            run.root.open.pop(run.id, None)  # its end is lost

    def _give_up_oldest(self, now_ns: int) -> None:
        try:
            _, oldest = self._roots.popitem(last=False)
        except KeyError:  # another thread removed it
            return
        self._give_up(oldest, now_ns)

    def _give_up(self, root: Root, now_ns: int) -> None:
        self.forget(root)
        root.ended = True
        if not root.ignored:
            root.broken = True
            # Ends like a stream whose reader has left.
            self._event_queue.put(self.receiver, (root, now_ns, None, GeneratorExit()), never_drop=True)


class _ContextRoutedHandler(SpanCallbackHandler):
    """Routes each event to the root of its context, for several concurrent roots with one run id.

    LangChain's events identify a run only by its id. From the second such root on, each root has an internal id, in a context
    variable. The variable is set at the root's start; the root's children and its end run in that context or in a copy.
    """

    def id_here(self, run_id: UUID) -> int:
        """Return the internal id of a run that has this id in the current context."""
        return self._id_of(run_id.int)

    def _id_of(self, run_id: int) -> int:
        own_id = _ids.get().get((id(self), run_id))
        return own_id if own_id is not None and own_id in self._runs else run_id

    def _uuid_of(self, run_id: UUID | None) -> UUID | None:
        return None if run_id is None else UUID(int=self._id_of(run_id.int))

    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Open a root, or record a step."""
        super().on_chain_start(serialized, inputs, run_id=run_id, parent_run_id=self._uuid_of(parent_run_id), **kwargs)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """End a root; the true input of a stream arrives only here."""
        super().on_chain_end(outputs, run_id=UUID(int=self._id_of(run_id.int)), **kwargs)

    def on_llm_new_token(self, token: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Record the time of the first chunk."""
        super().on_llm_new_token(token, run_id=UUID(int=self._id_of(run_id.int)), **kwargs)

    def _open(self, run_id: int, parent_run_id: UUID | None, *about: Any) -> Run | None:
        return super()._open(run_id, self._uuid_of(parent_run_id), *about)

    def _begin(self, run_id: int, *about: Any, langchain_id: int = 0) -> Root | None:
        ids, here = _ids.get(), (id(self), run_id)
        if here in ids:
            if self._is_start(ids[here], about[2], about[4]):
                return None
            if not self._is_left(ids[here]):
                return self._begin_another(run_id, *about)
            _ids.set({of: own_id for of, own_id in ids.items() if of != here})
        return super()._begin(run_id, *about, langchain_id=langchain_id)

    def _end(self, run_id: int, *what: Any) -> None:
        super()._end(self._id_of(run_id), *what)

    def _fail(self, run_id: int, *what: Any) -> None:
        super()._fail(self._id_of(run_id), *what)


class _Unpickled(BaseCallbackHandler):
    """A handler that records nothing. It replaces the handler of another process's scorer in an unpickled chain."""

    ignore_llm = ignore_chain = ignore_retriever = ignore_chat_model = ignore_agent = True
    ignore_retry = ignore_custom_event = True


def _unpickled() -> _Unpickled:
    log_once(
        "unpickled handler",
        "an unpickled chain has the handler of an OnlineScorer: this copy records nothing. Create a scorer in this"
        " process, and call scorer.install() or run the chain with callbacks=[scorer.handler]",
    )
    return _Unpickled()


def _note_step(root: Root, run_id: int, name: str | None, inputs: Any) -> None:
    """Keep facts of steps that have no spans: the step that reads a message store, and the user's message in a state."""
    if name == _HISTORY_STEP:
        root.history_step = run_id
    if root.asked is None:
        root.asked = codec.last_human(inputs)


def _observe_graphs(handler: SpanCallbackHandler) -> None:
    """Make the handler's class a subclass of LangGraph's handler, so that LangGraph calls ``on_interrupt`` and ``on_resume``.

    A breakpoint (``interrupt_before``, ``interrupt_after``) ends a turn without an error; only these events report it.
    """
    base = getattr(sys.modules[_LANGGRAPH], "GraphCallbackHandler", None)
    if base is not None and not isinstance(handler, base):
        _subclass(handler, type(handler), base)


def _subclass(handler: SpanCallbackHandler, *bases: type) -> None:
    """Give a handler a class of the same name with these base classes."""
    kind = type(handler)
    handler.__class__ = type(kind.__name__, bases, {"__doc__": kind.__doc__, "__module__": kind.__module__})


def _size_bytes(run: Run, snapshot: Any) -> int:
    root = run.root
    if not root.record_content:
        return 0
    counted = root.counted_texts or set()
    size_bytes = estimate_size(run.input, counted) + estimate_size(snapshot, counted)
    root.counted_texts = counted or None  # most roots have no long text, and an empty set takes 216 bytes
    return size_bytes


def _error_of(root: Root, error: BaseException) -> BaseException | None:
    """Return the error; None if the error is control flow. An interrupt is recorded, because the turn is not over."""
    names = {class_name(cls) for cls in bases_of(type(error))}
    if _CONTROL_FLOW not in names:
        return error
    root.interrupted = root.interrupted or _HAND_OVER not in names
    return None
