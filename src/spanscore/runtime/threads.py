"""Threads of ours: all daemons, so that none holds up the application's exit."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

__all__ = ["start_daemon"]


def start_daemon(work: Callable[..., object], name: str, *arguments: object) -> Thread:
    """Start a thread that ends with its work, or with the process.

    Raises:
        RuntimeError: the interpreter is exiting: from Python 3.12 on no thread can be started then.
    """
    thread = Thread(target=work, args=arguments, name=name, daemon=True)
    thread.start()
    return thread
