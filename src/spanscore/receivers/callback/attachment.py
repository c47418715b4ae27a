"""Attachment: what hangs on an application's chains, made when somebody first asks for it, as it needs ``langchain_core``."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import ref

from spanscore.receivers.callback.handler import SpanCallbackHandler
from spanscore.receivers.callback.install import Installation
from spanscore.receivers.callback.recorder import Recorder

__all__ = ["Attachment"]


@dataclass(slots=True)
class Attachment:
    """The callback's parts, made for each other.

    Attributes:
        handler: what an application attaches.
        recorder: reads its events.
        installation: attaches it to every chain.
    """

    handler: SpanCallbackHandler
    recorder: Recorder
    installation: Installation

    def __post_init__(self) -> None:
        installation = ref(self.installation)  # which refers to the handler, and not back
        self.handler.is_installed = lambda: (current := installation()) is not None and current.on

    def notes(self) -> list[str]:
        """Return why no further run is recorded, for ``status()``."""
        why_closed = self.handler.memory.why_closed
        return [why_closed] if why_closed else []
