"""The callback handler that applications attach to LangChain. It captures runs with little work on the application's thread.

A run costs a look-up of its id, a reading of the clock, a snapshot if its content is needed, and one append to the event queue
at its end. A root gets its ids, its parent from OpenTelemetry's context and its head-sampling decision immediately. The span
thread (``Recorder``) creates the spans later, with their true times. The parent of any other run is the run of
``parent_run_id``.
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
from spanscore.capture.callback.langchain_frames import is_awaited, own_task, pass_on_start
from spanscore.capture.callback.runs import Event, Root, Run, RunTable, take_each, thread_or_task
from spanscore.capture.callback.spans import RunSpans, conversation_of, is_stop
from spanscore.capture.intake import Intake
from spanscore.capture.other_scorers import ScorerIdentity, find_shared_root, handlers
from spanscore.core import context
from spanscore.core.codecs import snapshot as codec
from spanscore.core.codecs.snapshot import estimate_size
from spanscore.core.log import bases_of, class_name, log_internal_error, log_once
from spanscore.core.score import Outcome
from spanscore.core.span import SamplingContext
from spanscore.protocols import Receiver

_HISTORY_STEP: Final = "load_history"
"""Step of RunnableWithMessageHistory that returns the earlier messages, which otherwise only prompts contain."""
_NO_AGENT: Final = object()

_internal_ids: ContextVar[Mapping[tuple[int, int], int]] = ContextVar("spanscore_run_ids", default={})  # noqa: B039  (never changed)
"""(``id`` of the handler, LangChain's run id) → internal id of the handler's root in this context."""

_MOST_KEPT: Final = 100
"""Maximum number of end events that are kept until the end of their root, because an agent may run for hours."""
_RUN_BYTES: Final = 1_500
"""Approximate size of a kept event without content: the metadata of its run's start and the usage of its answer."""
_MOST_KEPT_BYTES: Final = _MOST_KEPT * _RUN_BYTES
"""Maximum size of a root's kept events. The limit is needed because the event queue does not count them."""
_LANGGRAPH: Final = "langgraph.callbacks"
"""Module of LangGraph's handler class, which is loaded before any graph can run; older versions have none."""
_CONTROL_FLOW: Final = "GraphBubbleUp"
"""Base class in langgraph.errors of exceptions that are no errors: interrupts, and commands for a parent graph."""
_HAND_OVER: Final = "ParentCommand"
"""Its subclass for commands for a parent graph."""


class SpanCallbackHandler(BaseCallbackHandler):
    """Captures the runs of every chain that it is attached to. Get it from ``OnlineScorer.handler``.

    One instance serves any number of concurrent chains, threads and loops. If it is attached twice to a run, the run counts
    once. No method blocks or raises. A copy or deep copy is the handler itself. An unpickled handler records nothing.

    Args:
        intake: the intake to use first; ``connect`` replaces it.
        tracer: function that returns the tracer of the capture scope; called once, before the first root.
        ready: called before the first root of each process; it starts the span thread.
        content: whether content is exported, and therefore needed for every unit.
        steps: whether prompts, parsers and lambdas also get spans.

    Attributes:
        receiver: the ``Recorder`` of the events; it is created from this handler, and sets this attribute.
        identity: identity of the scorer, for other scorers in the process.
        others: handlers of other scorers.
        is_installed: function that returns whether LangChain attaches this handler to every chain.
        installed_ns: time at which this handler was last installed on every chain; 0 = never.
        attaches_tools: whether the span of a tool is the current one while the tool runs.
        holder: object to which this handler and the scorer refer. After it is deleted, no further run can come.
        max_roots: maximum number of running roots; above it, the oldest is abandoned.
        memory: table of the runs, to which the span thread refers.
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
        handlers.add(self)

    def connect(self, intake: Intake) -> None:
        """Use this intake from now on, and forget all runs. In a forked child, the runs of the parent process never end."""
        self._intake, self._event_queue, self._sampler = intake, intake.event_queue, intake.sampler
        self.ledger, self._session_ids = intake.ledger, intake.session_ids
        self.memory = RunTable(self.memory.closed, self.memory.why_closed)
        self._runs, self._roots = self.memory.runs, self.memory.roots
        self.forget = self.memory.forget

    def forget_drawn_ids(self) -> None:
        """Forget the ids that were drawn ahead, because a sampler that is no longer in force decided on them."""
        if self.memory.spans is not None:
            self.memory.spans.use_sampler(self._sampler.could_sample_trace)

    @property
    def is_recording(self) -> bool:
        """Whether the handler records runs: it has recorded one, or is installed, and was not closed."""
        return not self.memory.closed and (self.memory.units > 0 or self.is_installed())

    def trace_id(self, run_id: UUID) -> int | None:
        """Return the trace of a recent root run; None if it is unknown or forgotten."""
        key = self.memory.unit_of_root(self.id_in_context(run_id))
        return None if key is None else key.trace_id

    def id_in_context(self, run_id: UUID) -> int:
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
            parent = self._runs.get(parent_run_id.int) if parent_run_id is not None else self._running_parent()
            if parent is not None and (name == _HISTORY_STEP or parent.root.human_message is None):
                _record_step(parent.root, run_id.int, name, inputs)
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
        run = self._runs.get(self.id_in_context(run_id)) if run_id is not None else None
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
        pass_on_start(SpanCallbackHandler)
        self._model_start(semconv.TEXT_COMPLETION, serialized, prompts, run_id, parent_run_id, kwargs)

    def _model_start(
        self, operation: str, serialized: Any, prompts: Any, run_id: UUID, parent_run_id: UUID | None, arguments: Any
    ) -> None:
        try:
            take = codec.snapshot_messages if operation is semconv.CHAT else codec.snapshot
            name = arguments.get("name") or (serialized or {}).get("name") or "model"
            metadata = arguments.get("metadata")
            run = self._open(run_id.int, parent_run_id, operation, name, metadata, take, prompts)
            if run is not None:
                run.details = (metadata, arguments.get("invocation_params"))
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
                    self.memory.spans.make_current(run)
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
        """Open a root or a child. ``take`` makes a snapshot of ``input_``."""
        parent = self._runs.get(parent_run_id.int) if parent_run_id is not None else self._running_parent()
        if parent is None:
            return self._begin(run_id, operation, name, metadata, take, input_)
        return self._child(run_id, parent, operation, name, metadata, take, input_)

    def _running_parent(self) -> Run | None:
        """Return the running run in whose context a run without a parent starts; None outside of any run."""
        # ``RunnableWithFallbacks`` passes on its own configuration, not its child's. Without this look-up, each model that a
        # fallback tries would be a unit besides the fallback.
        config = var_child_runnable_config.get()
        parent_run_id = getattr(config.get("callbacks"), "parent_run_id", None) if config else None
        parent = self._runs.get(self.id_in_context(parent_run_id)) if parent_run_id is not None else None
        return None if parent is None or parent.root.ended or context.is_judging() else parent

    def _begin(
        self, run_id: int, operation: str, name: str, metadata: Any, take: Any, input_: Any, *, langchain_id: int = 0
    ) -> Root | None:
        """Open a root, and read everything that only the caller's context provides."""
        # ``langchain_id`` is LangChain's id of the run, if ``run_id`` is an internal id; 0 = ``run_id`` is LangChain's id.
        if run_id in self._roots and (
            self._is_repeated_start(run_id, metadata, input_) or not self._free_run_id(run_id)
        ):
            return self._begin_another(run_id, operation, name, metadata, take, input_)
        now_ns = time_ns()
        if len(self._roots) >= self.max_roots:
            self._abandon_oldest(now_ns)
        if not self._observes_graphs and _LANGGRAPH in sys.modules:
            self._observes_graphs = True
            _observe_graphs(self)
        root = Root(run_id, operation, name, now_ns)
        self._runs[run_id] = self._roots[run_id] = root
        root.details = metadata
        root.start_event = metadata, input_, thread_or_task()
        root.session = context.current_session()
        root.ignored = True  # in case code of the application raises in the next line
        root.ignored = not self._admit(root, langchain_id)
        if root.ignored or root.key is None:
            return None
        if root.may_be_scored is None:
            root.may_be_scored = self._sampler.could_sample(self._facts(root, metadata))
        root.record_content = root.may_be_scored or self.content
        if root.record_content:
            root.input = take(input_)
            root.human_message = None
            root.expected = context.current_expectation()
        root.task = own_task()
        self.memory.units += 1
        self._send_start(root)
        return root

    def _begin_another(
        self, run_id: int, operation: str, name: str, metadata: Any, take: Any, input_: Any
    ) -> Root | None:
        """Open a root under an internal id, unless this start event has already opened a root."""
        if self._is_repeated_start(run_id, metadata, input_):
            return None
        if not isinstance(self, _ContextRoutedHandler):  # only now, because the routing costs time at each event
            _subclass(self, _ContextRoutedHandler, type(self))
        internal_id = uuid4().int
        _internal_ids.set({**_internal_ids.get(), (id(self), run_id): internal_id})
        return self._begin(internal_id, operation, name, metadata, take, input_, langchain_id=run_id)

    def _is_repeated_start(self, run_id: int, metadata: Any, input_: Any) -> bool:
        """Return whether a start event is the root's own once more: LangChain calls a handler twice if it is attached twice."""
        root = self._roots.get(run_id)
        event = None if root is None else root.start_event
        return event is not None and event[0] is metadata and event[1] is input_

    def _free_run_id(self, run_id: int) -> bool:
        """Abandon the root of this id if the same thread or task began it, as it can no longer end; return False if it runs."""
        root = self._roots.get(run_id)
        if root is None or root.start_event is None:
            return True
        if root.start_event[2] != thread_or_task():
            return False
        self._roots.pop(run_id, None)
        self._abandon(root, time_ns())
        return True

    def _send_start(self, root: Root) -> None:
        """Send a root's start to the span thread. If no span processor observes starts, only the root's end is sent."""
        spans = self.memory.spans
        if self._session_ids is not None or spans is None or root.shared is not None or not spans.starts_are_unobserved:
            self._event_queue.put(self.receiver, (root, 0, None, None), never_drop=True)
        else:
            root.kept_events = []
            self._event_queue.wake_sleeper()  # so that the span thread ends the root even if LangChain reports no end

    def _facts(self, root: Root, metadata: Mapping[str, Any] | None) -> SamplingContext:
        """Return the sampling facts of a root that begins, and record the start of a turn of its conversation."""
        assert root.key is not None
        facts = SamplingContext(
            root.key, root.is_trace_root, root.trace_state, root.name, root.operation, None, None, metadata or {}
        )
        if self._session_ids is None:
            return facts
        conversation = conversation_of(root) or ""
        if conversation:
            self._session_ids.record_start(conversation, root.start_ns, root.shared or frozenset())
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
        own_metrics = find_shared_root(self, root, langchain_id) if self.others else None
        if own_metrics is not None and not own_metrics:  # other scorers score all metrics
            return False
        spans = self.memory.spans
        if spans is None:
            self._ready()
            spans = self.memory.spans = RunSpans(self._tracer(), self._sampler.could_sample_trace)
        if own_metrics is None and not spans.decide(root, ambient):
            self._intake.reject(Outcome.TRACE_NOT_SAMPLED, self._conversation(root))
            return False
        return True

    def _conversation(self, root: Root) -> str | None:
        return None if self._session_ids is None else conversation_of(root)

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
            fault: BaseException | None = error
            names = {class_name(cls) for cls in bases_of(type(error))}
            if _CONTROL_FLOW in names:  # no error; an interrupt is recorded, because the turn is not over
                fault = None
                run.root.interrupted = run.root.interrupted or _HAND_OVER not in names
            if run.id != run_id and fault is not None and not is_stop(fault):
                run.root.failed_inside = True
            self._end(run_id, codec.snapshot_generation, response, fault, inputs)

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
            if take is codec.snapshot_generation:  # its usage is needed even without content
                snapshot = take(output, content=root.record_content)
            elif root.record_content:
                snapshot = take(output)
        if inputs is not None and root.record_content:
            run.input = codec.snapshot(inputs)
        if run is not root:
            self._send_child(run, snapshot, error)
        else:
            self._send_root(root, snapshot, error, streamed=inputs is not None)

    def _send_root(self, root: Root, snapshot: Any, error: BaseException | None, *, streamed: bool) -> None:
        if root.detached:
            self.forget(root)
            return
        self._roots.pop(root.id, None)
        root.start_event = None
        has_open_runs = streamed and any(run is None or not run.ended for run in list(root.open.values()))
        if error is None and has_open_runs and not is_awaited():
            error = GeneratorExit()  # a sync stream that its reader left ends before its steps
        if self._event_queue.is_full():  # events of the root may have been dropped, so its unit will not be scored
            root.incomplete, root.input, snapshot = True, None, None
            if root.record_content:
                root.kept_events, root.kept_bytes = None, 0
        size_bytes = root.kept_bytes + _size_bytes(root, snapshot)
        self._event_queue.put(self.receiver, (root, time_ns(), snapshot, error), size_bytes, never_drop=True)

    def _send_child(self, run: Run, snapshot: Any, error: BaseException | None) -> None:
        root, event = run.root, (run, time_ns(), snapshot, error)
        if run.tool_context is not None:
            run.tool_context.end()
        if root.kept_events is not None:
            self._keep(root, root.kept_events, event)
        elif not root.detached:
            self._send(event, _size_bytes(run, snapshot))

    def _keep(self, root: Root, events: list[Event], event: Event) -> None:
        """Keep the end of a run until the end of its root. Above a limit, send all kept ends."""
        # There is no lock: the span thread first removes the list from the root, and this method checks for that after it has
        # appended an event, so that no event is lost.
        run, _, snapshot, _ = event
        root.kept_bytes += _size_bytes(run, snapshot) if root.record_content else _RUN_BYTES
        events.append(event)
        if root.kept_events is not None and not root.ended:
            root.open.pop(run.id, None)
            if len(events) < _MOST_KEPT and root.kept_bytes < _MOST_KEPT_BYTES:
                return
            root.kept_events = None
        for kept in take_each(events):
            size_bytes, root.kept_bytes = root.kept_bytes, 0  # the first event counts for all
            self._send(kept, size_bytes)

    def _send(self, event: Event, size_bytes: int) -> None:
        run = event[0]
        if not self._event_queue.put(self.receiver, event, size_bytes):
            run.root.incomplete, run.input = True, None
            run.root.open.pop(run.id, None)  # its end is lost

    def _abandon_oldest(self, now_ns: int) -> None:
        try:
            _, oldest = self._roots.popitem(last=False)
        except KeyError:  # another thread removed it
            return
        self._abandon(oldest, now_ns)

    def _abandon(self, root: Root, now_ns: int) -> None:
        self.forget(root)
        root.ended = True
        if not root.ignored:
            root.incomplete = True
            # The root ends like a stream that its reader left.
            self._event_queue.put(self.receiver, (root, now_ns, None, GeneratorExit()), never_drop=True)


class _ContextRoutedHandler(SpanCallbackHandler):
    """The class of a handler that got several concurrent roots with one run id: it finds the root of an event by the context.

    LangChain's events identify a run only by its id. From the second such root on, each root has an internal id, in a context
    variable. The variable is set at the root's start; the root's children and its end run in that context or in a copy.
    """

    def id_in_context(self, run_id: UUID) -> int:
        """Return the internal id of a run that has this id in the current context."""
        return self._internal_id(run_id.int)

    def _internal_id(self, run_id: int) -> int:
        internal_id = _internal_ids.get().get((id(self), run_id))
        return internal_id if internal_id is not None and internal_id in self._runs else run_id

    def _internal_uuid(self, run_id: UUID | None) -> UUID | None:
        return None if run_id is None else UUID(int=self._internal_id(run_id.int))

    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Open a root, or record a step."""
        super().on_chain_start(
            serialized, inputs, run_id=run_id, parent_run_id=self._internal_uuid(parent_run_id), **kwargs
        )

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """End a root; the true input of a stream arrives only here."""
        super().on_chain_end(outputs, run_id=UUID(int=self._internal_id(run_id.int)), **kwargs)

    def on_llm_new_token(self, token: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Record the time of the first chunk."""
        super().on_llm_new_token(token, run_id=UUID(int=self._internal_id(run_id.int)), **kwargs)

    def _open(self, run_id: int, parent_run_id: UUID | None, *arguments: Any) -> Run | None:
        return super()._open(run_id, self._internal_uuid(parent_run_id), *arguments)

    def _begin(
        self, run_id: int, operation: str, name: str, metadata: Any, take: Any, input_: Any, *, langchain_id: int = 0
    ) -> Root | None:
        ids, key = _internal_ids.get(), (id(self), run_id)
        if key in ids:
            if self._is_repeated_start(ids[key], metadata, input_):
                return None
            if not self._free_run_id(ids[key]):
                return self._begin_another(run_id, operation, name, metadata, take, input_)
            _internal_ids.set({other: internal_id for other, internal_id in ids.items() if other != key})
        return super()._begin(run_id, operation, name, metadata, take, input_, langchain_id=langchain_id)

    def _end(self, run_id: int, *arguments: Any) -> None:
        super()._end(self._internal_id(run_id), *arguments)

    def _fail(self, run_id: int, *arguments: Any) -> None:
        super()._fail(self._internal_id(run_id), *arguments)


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


def _record_step(root: Root, run_id: int, name: str | None, inputs: Any) -> None:
    """Record the step that reads a message store, and the user's message in the first state: steps have no spans."""
    if name == _HISTORY_STEP:
        root.history_step = run_id
    if root.human_message is None:
        root.human_message = codec.last_human(inputs)


def _observe_graphs(handler: SpanCallbackHandler) -> None:
    """Make the handler one of LangGraph's handlers, too, so that LangGraph calls ``on_interrupt`` and ``on_resume``."""
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
