"""Which queues there are, by name. A new one is a file here, and a line in this one."""

from __future__ import annotations

from types import MappingProxyType

from spanscore.protocols import Queue
from spanscore.runtime.plugins import Registry

__all__ = ["QUEUES"]

QUEUES = Registry(
    kind="queue",
    protocol=Queue,
    outside="my_pkg.queues:MyQueue",
    built_in=MappingProxyType({"memory": "spanscore.scoring.memory_queue:MemoryQueue"}),
)
