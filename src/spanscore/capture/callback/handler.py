"""The callback handler that applications attach to LangChain, and that passes each event to ``RunCapture``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from time import time_ns
from typing import Any, Final, Self
from uuid import UUID, uuid4

from langchain_core.callbacks import BaseCallbackHandler

from spanscore import semconv
from spanscore.capture.callback.capture import RunCapture
from spanscore.capture.callback.langchain_frames import give_back_the_start
from spanscore.capture.callback.runs import Root, Run
from spanscore.core.codecs import snapshot as codec
from spanscore.core.log import log_internal_error, log_once

_HISTORY_STEP: Final = "load_history"
"""Step of RunnableWithMessageHistory that returns the earlier messages, which are otherwise found only in prompts."""
_NO_AGENT: Final = object()

_ids: ContextVar[Mapping[tuple[int, int], int]] = ContextVar("spanscore_run_ids", default={})  # noqa: B039  (never changed)
"""Handler and LangChain's run id → internal id of the handler's root in this context."""


class SpanCallbackHandler(RunCapture, BaseCallbackHandler):
    """Captures the runs of every chain that it is attached to. Get it from ``OnlineScorer.handler``.

    One instance serves any number of concurrent chains, threads and loops. If it is attached twice to a run, the run counts
    once. No method blocks or raises. A copy or deep copy is the handler itself. An unpickled handler records nothing.
    """

    run_inline = True
    raise_error = False
    # Plain attributes, because the properties of the base class cost a call each, eight times per small chain.
    ignore_llm = ignore_chain = ignore_retriever = ignore_chat_model = False
    ignore_agent = False  # tools, too
    ignore_retry = ignore_custom_event = True

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

    def _begin_another(self, run_id: int, *about: Any) -> Root | None:
        if self._is_start(run_id, about[2], about[4]):
            return None
        if not isinstance(self, _ContextRoutedHandler):  # only now, so that other handlers' events do not pay for it
            kind = type(self)
            names = {"__doc__": kind.__doc__, "__module__": kind.__module__}
            self.__class__ = type(
                kind.__name__,
                (_ContextRoutedHandler,) if kind is SpanCallbackHandler else (_ContextRoutedHandler, kind),
                names,
            )
        own_id = uuid4().int
        _ids.set({**_ids.get(), (id(self), run_id): own_id})
        return self._begin(own_id, *about, langchain_id=run_id)

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
