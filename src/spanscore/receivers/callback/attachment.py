"""Attachment: what hangs on an application's chains, made when somebody first asks for it, as it needs ``langchain_core``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import ref

from opentelemetry.trace import Tracer

from spanscore.protocols import Receiver, Redactor, RejectionCounter, Sampler, UnitListener
from spanscore.receivers.beside import Identity
from spanscore.receivers.callback.handler import SpanCallbackHandler
from spanscore.receivers.callback.install import Installation
from spanscore.receivers.callback.memory import RunMemory
from spanscore.receivers.callback.model_metrics import ModelMetrics
from spanscore.receivers.callback.neighbours import announce, neighbours
from spanscore.receivers.callback.recorder import Recorder
from spanscore.runtime.event_queue import EventQueue
from spanscore.runtime.timebox import Timebox
from spanscore.units.session_ids import SessionIds

__all__ = ["Attachment"]


class Attachment:
    """The callback's parts, made for each other.

    Args:
        captures: whether runs are recorded at all.
        models: counts the application's model runs; None = nobody does.
        ready: called before the first root; the rest is what handler and recorder take.
        holder: kept alive by the handler.
        identity: what other scorers are to know of this one.
        replaced: called with the name of a scorer that was installed in place of this one, and with the runs of this one.

    Attributes:
        handler: what an application attaches.
        recorder: reads its events.
        installation: attaches it to every chain.
    """

    def __init__(
        self,
        event_queue: EventQueue[Receiver],
        port: UnitListener,
        sampler: Sampler,
        admission: RejectionCounter,
        *,
        tracer: Callable[[], Tracer],
        ready: Callable[[], None],
        holder: object,
        identity: Identity,
        replaced: Callable[[str, RunMemory], None],
        captures: bool,
        content: bool,
        metadata: Sequence[str],
        steps: bool,
        attaches_tools: bool,
        turns: SessionIds | None,
        models: ModelMetrics | None,
        redactor: Redactor | None,
        box: Timebox,
        scores: int,
    ) -> None:
        self._captures = captures

        def begin() -> None:
            ready()
            if captures:
                announce(neighbours())

        self.handler = SpanCallbackHandler(
            event_queue, sampler, admission, tracer=tracer, ready=begin, content=content, steps=steps, turns=turns
        )
        self.handler.attaches_tools = attaches_tools
        self.handler.holder, self.handler.identity = holder, identity
        if not captures:
            self.handler.close()
        self.recorder = Recorder(
            self.handler, port, redactor=redactor, box=box, models=models, scores=scores, metadata=metadata
        )
        memory = self.handler.memory
        self.installation = Installation(self.handler, identity.name, lambda successor: replaced(successor, memory))
        self.handler.is_installed = _state_of(self.installation)

    def notes(self) -> list[str]:
        """Return why no further run is recorded, for ``status()``."""
        why_closed = self.handler.memory.why_closed
        return [why_closed] if why_closed else []


def _state_of(installation: Installation) -> Callable[[], bool]:
    """Return what finds out whether a handler is installed; the installation refers to the handler, and not back."""
    reference = ref(installation)
    return lambda: (installed := reference()) is not None and installed.on
