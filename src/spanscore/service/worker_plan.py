"""What ``worker`` would read from and do with a configuration, and what prevents it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Protocol

from spanscore.config.durable import Spool, confluent_config
from spanscore.config.tree import Configuration
from spanscore.errors import ConfigurationError, MissingExtraError
from spanscore.metrics.catalog.configured import per_session

__all__ = ["StreamSource", "is_keyed_by_conversation", "problems", "reads", "spool_of", "told"]

# --- source ---------------------------------------------------------------------------------------------------------

# StreamSource: what ``spanscore worker`` reads spans from that are somewhere else, such as a topic; and until when it does.
#
# A spool is none: its rows are jobs, and the queue of a scorer takes them by itself.


class StreamSource(Protocol):
    """Reads into a scorer. Every method is called on the main thread; threads of its own are its own matter.

    In this order: ``start``, then ``unready`` and ``told`` at any time, ``pause``, the scorer drains, ``commit``.

    Attributes:
        name: for messages: ``"kafka"``.
    """

    name: str

    def start(self, wait_s: float) -> None:
        """Begin to read. Blocks until there is something to read from, or until it is known that there is not.

        Args:
            wait_s: seconds after which what does not answer is gone.

        Raises:
            SourceUnavailable: there is nothing to read from; one line that names it.
        """

    def pause(self) -> None:
        """Read no more, and keep what is being read: the drain begins. Does not block. Called once, also before ``start``."""

    def commit(self) -> None:
        """Tell whoever is read from what is settled, and leave. After the scorer has drained; blocks for seconds at most.

        What the drain had no time for is not settled: who reads it next gets it again.
        """

    def unready(self) -> str:
        """Return why it reads nothing at the moment; empty where it does, or could."""

    def told(self) -> Iterator[str]:
        """Yield what an operator should know of it, a line each: from where it reads, and how far it is."""


# --- worker plan ----------------------------------------------------------------------------------------------------

# Plan: what ``worker`` would do with a configuration, and what keeps it from that. Nothing is opened or contacted.

_NOTHING = (
    "there is nothing for a worker to read. Give it the spool that an application on this machine writes, which says "
    "score_here: false there (spool: {path: /var/lib/spanscore/spool.db}), or the topic into which a Collector writes traces "
    '(kafka: {brokers: ["127.0.0.1:9092"], topic: otlp_spans}), or both'
)

_CUT = (
    "--processes {}: the topic is keyed by trace, so that each process would have a part of each conversation, and a metric "
    "scores whole ones (per: session). Key the topic by conversation and set kafka.key: conversation, or start one process"
)


def reads(settings: Configuration) -> bool:
    """Whether there is anything in a configuration that a worker could read."""
    return settings.kafka is not None or spool_of(settings) is not None


def spool_of(settings: Configuration) -> Spool | None:
    """Return the spool as a worker has it: it scores what it reads."""
    spool = settings.spool
    return None if spool is None else spool.model_copy(update={"score_here": True})


def told(settings: Configuration) -> Iterator[str]:
    """Yield what ``worker`` would do, a line each."""
    if (spool := spool_of(settings)) is not None:
        yield f"scores what is in the spool {spool.path}"
    if (kafka := settings.kafka) is not None:
        where = ", ".join(kafka.brokers)
        yield f"reads the topic {kafka.topic} of {where} ({kafka.security.protocol}), in the group {kafka.group}"
        if kafka.logs_topic is not None:
            yield f"joins the content of log records in the topic {kafka.logs_topic} to their spans"
    if settings.remote_scoring is not None:
        yield "sends nothing to another process: it is the one that scores"


def is_keyed_by_conversation(settings: Configuration) -> bool:
    """Whether one worker reads all turns of a conversation, as the configuration states it."""
    is_keyed = settings.kafka is not None and settings.kafka.key == "conversation"
    return is_keyed or settings.sessions.replicas == "sticky"


def problems(settings: Configuration, processes: int = 1) -> Iterator[ConfigurationError]:
    """Yield what is wrong, or missing here, before anything is read.

    Args:
        settings: the configuration.
        processes: workers that one command starts.
    """
    if not reads(settings):
        yield ConfigurationError(_NOTHING)
    if settings.kafka is None:
        return
    alone = settings.sessions.replicas == "one" and not is_keyed_by_conversation(settings)
    if processes > 1 and alone and any(per_session(settings)):
        yield ConfigurationError(_CUT.format(processes))
    if find_spec("confluent_kafka") is None:
        yield MissingExtraError("confluent-kafka", "kafka")
    try:
        confluent_config(settings.kafka)
    except ConfigurationError as error:
        yield error
