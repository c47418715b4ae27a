"""Which queues there are, by name. A new one is a file here, and a line in this one."""

from spanscore.core.plugins import Registry
from spanscore.protocols import Queue

__all__ = ["QUEUES"]

_BUILT_IN = {"memory": "spanscore.scoring.memory_queue:MemoryQueue"}
QUEUES = Registry(
    kind="queue", protocol=Queue, outside="my_pkg.queues:MyQueue", built_in=_BUILT_IN, offers=("capacity", "max_bytes")
)
