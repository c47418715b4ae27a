"""Sources of ``spanscore worker`` and errors of its configuration, as ``check`` prints them. No source is opened."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from spanscore.config.durable import Spool, confluent_config
from spanscore.config.tree import Configuration
from spanscore.errors import ConfigurationError, MissingExtraError
from spanscore.metrics.catalog.configured import per_session

_NO_SOURCE = (
    "there is nothing for a worker to read. Name the spool that an application on this machine writes with score_here: "
    "false (spool: {path: /var/lib/spanscore/spool.db}), or the topic into which a Collector writes traces "
    '(kafka: {brokers: ["127.0.0.1:9092"], topic: otlp_spans}), or both'
)

_CONVERSATIONS_SPLIT = (
    "--processes {}: the topic is keyed by trace, so each process would get a part of each conversation, but a metric "
    "scores whole ones (per: session). Key the topic by conversation and set kafka.key: conversation, or start one process"
)


def reads(settings: Configuration) -> bool:
    """Return whether a configuration has a spool or a topic that a worker can read."""
    return settings.kafka is not None or spool_of(settings) is not None


def spool_of(settings: Configuration) -> Spool | None:
    """Return the spool of a worker, which scores its units; None = no spool."""
    spool = settings.spool
    return None if spool is None else spool.model_copy(update={"score_here": True})


def describe_sources(settings: Configuration) -> Iterator[str]:
    """Yield lines on the sources of ``worker``."""
    if (spool := spool_of(settings)) is not None:
        yield f"scores the units in the spool {spool.path}"
    if (kafka := settings.kafka) is not None:
        where = ", ".join(kafka.brokers)
        yield f"reads the topic {kafka.topic} of {where} ({kafka.security.protocol}), in the group {kafka.group}"
        if kafka.logs_topic is not None:
            yield f"joins the content of log records in the topic {kafka.logs_topic} to their spans"
    if settings.remote_scoring is not None:
        yield "ignores remote_scoring: this process scores"


def is_keyed_by_conversation(settings: Configuration) -> bool:
    """Return whether one worker reads all turns of a conversation, by the configuration."""
    is_keyed = settings.kafka is not None and settings.kafka.key == "conversation"
    return is_keyed or settings.sessions.replicas == "sticky"


def problems(settings: Configuration, processes: int = 1) -> Iterator[ConfigurationError]:
    """Yield the errors of a configuration, and parts that this environment lacks, for the workers that one command starts."""
    if not reads(settings):
        yield ConfigurationError(_NO_SOURCE)
    if settings.kafka is None:
        return
    # ``one`` (the default) assumes a single process; with ``any`` conversations may be split.
    may_split = settings.sessions.replicas == "one" and not is_keyed_by_conversation(settings)
    if processes > 1 and may_split and any(per_session(settings)):
        yield ConfigurationError(_CONVERSATIONS_SPLIT.format(processes))
    if find_spec("confluent_kafka") is None:
        yield MissingExtraError("confluent-kafka", "kafka")
    try:
        confluent_config(settings.kafka)
    except ConfigurationError as error:
        yield error
