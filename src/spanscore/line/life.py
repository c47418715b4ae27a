"""Life: a scorer's parts from the first unit to the end.

``OnlineScorer`` and its handler refer to it, and nothing of it refers to them. When the application refers to neither, no unit
can come any more, and a thread ends the parts (``Life.end_when_idle``).
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any, Final

from spanscore.core.log import log_once
from spanscore.core.threads import reset_in_child, start_daemon
from spanscore.line.build import Line
from spanscore.line.closing import Closing
from spanscore.line.drain import drain
from spanscore.line.exit import EXIT_TIMEOUT_S, exit_hook
from spanscore.line.metrics_page import MetricsPage
from spanscore.outputs.providers import Providers

__all__ = ["Holder", "Life"]

_LONGEST_S: Final = 600.0
"""How long a scorer that takes no further run waits for those under way, and then for their scores."""
_LOOK_S: Final = 0.05
_UNREFERENCED: Final = (
    "an OnlineScorer that the application no longer refers to was shut down, after its units were scored: make one scorer per"
    " process and keep it, not one per request"
)


class Holder:
    """What a scorer and its handler refer to: its end is the end of all ways by which units come."""


class Life:
    """Starts the parts of a scorer with its first unit, and ends them. Any thread.

    Attributes:
        closing: the one end.
        page: what ``serve_metrics`` serves.
    """

    def __init__(self, line: Line, providers: Providers) -> None:
        self._line = line
        self._providers = providers
        self.closing = Closing()
        self.page = MetricsPage(line, self.closing)
        self._at_exit = exit_hook(self.shutdown)
        self._is_ready = self._is_ending = False
        self._lock = threading.RLock()  # a signal handler that shuts down may interrupt its holder
        reset_in_child(self, Life.reset)

    def ready(self, span: Any = None) -> None:
        """Before each root: choose the providers, register the exit hook after theirs, start the span thread.

        Args:
            span: one of the provider by which the unit's spans leave; None = not known.
        """
        if not self._is_ready:
            with self._lock:
                if not self._is_ready:
                    self._providers.resolve(beside=span)
                    if self._line.telemetry is not None:
                        self._providers.mention_lacking_metrics(self.page.endpoint)
                    self._line.watch_for_shutdown()
                    atexit.register(self._at_exit)
                    if self._line.delivery is not None:
                        self._line.engine.begin()
                    self._is_ready = True
        self._line.span_thread.ensure()

    def flush(self, timeout: float) -> bool:
        """Do as ``OnlineScorer.flush``."""
        if self.closing.begun:
            return self.closing.wait(timeout)
        until = monotonic() + timeout
        out = self._line.span_thread.flush(timeout)
        if out and self._line.handover is not None:
            out = self._line.handover.flush(max(0.0, until - monotonic()))
        if self._providers.spans_file is not None:  # before the exporters, which are needed if it fails
            self._providers.spans_file.flush(max(0.0, until - monotonic()))
        if out and self._providers.is_own:
            out = self._providers.force_flush(max(0.0, until - monotonic()))
        if self._line.collector is not None:
            self._line.collector.flush(max(0.0, until - monotonic()))
        return out

    def shutdown(self, timeout: float = EXIT_TIMEOUT_S) -> bool:
        """Do as ``OnlineScorer.shutdown``."""
        until = monotonic() + timeout
        return self.closing.once(lambda: self._end(until), timeout)

    def end_when_idle(self, runs: Callable[[], object] | None = None) -> None:
        """Let nothing further in, and shut down on another thread when all that was let in is scored. Does not block.

        Args:
            runs: whether runs are under way, to be recorded to their end; None: the application refers to nothing any more.
        """
        if self.closing.begun or self._is_ending:
            return
        self._is_ending = True
        if runs is None and self._is_ready:
            log_once("unreferenced scorer", _UNREFERENCED)
        self._line.close_receivers()
        self.page.close()
        start_daemon(self._end_when_idle, "spanscore-end", runs or _nothing)  # where none can be started, at the exit

    def reset(self) -> None:
        """Be as new: in a forked child. What was shut down before the fork, or is being, stays so."""
        self._lock = threading.RLock()
        self.closing.reset()
        if self.closing.begun:
            self._line.close_receivers()
        self.page.reset()
        self._line.reset()

    def _end_when_idle(self, runs: Callable[[], object]) -> None:
        until = monotonic() + _LONGEST_S
        while runs() and not self.closing.begun and monotonic() < until:
            sleep(_LOOK_S)
        self.flush(_LONGEST_S)
        self.shutdown()

    def _end(self, until: float) -> bool:
        self._line.close_receivers()
        self._line.over = True
        whole = drain(self._line, (until - monotonic()) * 0.6)
        self._line.close()
        self.page.close()
        delivered = self._providers.shutdown(max(0.1, until - monotonic()))
        atexit.unregister(self._at_exit)
        return delivered and whole


def _nothing() -> bool:
    return False
