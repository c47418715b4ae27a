"""Threads of ours: all daemons, so that none holds up the application's exit."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

from spanscore.runtime.log import log_once

__all__ = ["start_daemon"]


def start_daemon(work: Callable[..., object], name: str, *arguments: object) -> Thread | None:
    """Start a thread that ends with its work, or with the process.

    Returns:
        The thread. None: no thread can be started now, as the system has no room for one, which is logged, or as the
        interpreter is exiting (from Python 3.12 on). Whoever needs the thread tries again with its next work.
    """
    thread = Thread(target=work, args=arguments, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        if "shutdown" not in str(error):
            log_once(
                "no thread",
                f"the thread {name} cannot be started: is the limit of processes (pids) or of memory reached? It is tried"
                " again with the next unit; units wait meanwhile, and further ones are refused when their room is full",
            )
        return None
    return thread
