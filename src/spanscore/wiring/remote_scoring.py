"""Remote scoring: makes the dispatcher that sends units to the process that scores them, and removes local judge options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from spanscore.config.durable import RemoteScoring, confluent_config
from spanscore.config.tree import ScorerSettings
from spanscore.core.job import JobResult
from spanscore.core.log import log_internal_error
from spanscore.core.score import Outcome
from spanscore.durable.rows import REMOTE_SCORING, Carrier, UnitCopy
from spanscore.errors import ConfigurationError
from spanscore.outputs.aggregates import checked_dimensions
from spanscore.outputs.providers import Providers
from spanscore.pipeline.jobs import JobBuilder
from spanscore.pipeline.ledger import Ledger
from spanscore.protocols import DurableQueue, Queue
from spanscore.wiring.spool import spool_of

if TYPE_CHECKING:
    from spanscore.durable.dispatcher import Dispatcher


def without_local_scoring(settings: ScorerSettings) -> ScorerSettings:
    """Return the settings without options of judges, if another process scores the units; otherwise unchanged.

    Raises:
        ConfigurationError: an option needs scores or samples in this process.
    """
    if settings.remote_scoring is not None:
        for what, is_set, needs in _local_options(settings):
            if is_set:
                raise ConfigurationError(f"{what} cannot be combined with remote_scoring: {needs}")
    elif settings.spool is None or settings.spool.score_here:
        return settings
    elif settings.sampling.feedback:
        raise ConfigurationError(
            "sampling.feedback cannot be combined with spool.score_here: false: human labels arrive here, but this process "
            "does not judge"
        )
    judge = settings.judge.model_copy(update={"shadows": (), "budget": (), "shadow_budget": None})
    return settings.model_copy(update={"judge": judge, "judge_check": None, "collect": None})


def dispatcher_of(
    settings: ScorerSettings,
    builder: JobBuilder,
    queue: Queue,
    providers: Providers,
    ledger: Ledger,
    post: Callable[[JobResult], None],
) -> Dispatcher | None:
    """Return the dispatcher of a scorer; None if units are scored in this process.

    ``ledger`` counts the units whose copies expire in a spool, and ``post`` posts the end of a unit to the span thread.
    """
    if (remote_scoring := settings.remote_scoring) is None:
        return None
    from spanscore.durable.carriers import SpooledCarrier  # imports OTLP, SQLite and an HTTP client
    from spanscore.durable.dispatcher import Dispatcher, UnitEncoder

    hooks = builder.hooks
    encoder = UnitEncoder(
        redactor=hooks.redactor,
        samples=lambda sampled: builder.job(sampled).samples,
        filters=hooks.keep is not None,
        dimensions=checked_dimensions(settings.monitoring.dimensions),
        images=builder.images.max_bytes > 0,
        box=builder.box,
        resource=providers.resource,
    )
    carrier = _carrier(remote_scoring)
    if (spool := spool_of(queue)) is not None:
        carrier = SpooledCarrier(spool, carrier, lost=partial(_count_lost, ledger))
    return Dispatcher(encoder, carrier, queue=queue, post=post, where=remote_scoring.shown)


def _carrier(remote_scoring: RemoteScoring) -> Carrier:
    if remote_scoring.kafka is None:
        from spanscore.durable.carriers import OtlpCarrier

        return OtlpCarrier(remote_scoring)
    from spanscore.durable.confluent_kafka_carrier import KafkaCarrier

    return KafkaCarrier(confluent_config(remote_scoring.kafka, "remote_scoring.kafka"), remote_scoring.kafka.topic)


def _count_lost(ledger: Ledger, copy: UnitCopy, outcome: Outcome) -> None:
    """Count a unit whose copy is lost. It was counted before as ``delegated``, perhaps by an earlier process."""
    from spanscore.core.codecs.job import units_of
    from spanscore.core.codecs.otlp_request import parse_request

    for unit, _ in units_of(parse_request(copy.request).spans, lambda error: log_internal_error("read a copy", error)):
        ledger.enter(unit.key, unit.eligible_metrics)
        ledger.settle_all(unit.key, outcome)


def rejection_reason_of(queue: Queue, settings: ScorerSettings) -> Callable[[], str | None]:
    """Return a function that returns why the queue rejects units; None = no reason to add."""
    if settings.remote_scoring is not None:
        return lambda: REMOTE_SCORING
    return queue.rejection_reason if isinstance(queue, DurableQueue) else lambda: None


def _local_options(settings: ScorerSettings) -> Iterator[tuple[str, bool, str]]:
    """Yield each option that needs samples or scores in this process, whether it is set, and the reason."""
    labels = "human labels arrive here, and the unit's sample would be there"
    inner = "the copy of a unit brings no inner units to the process that scores it; score here, or through a spool"
    spool = "the spool's units go to a worker, or those of remote_scoring to a serve; leave out one"
    turns = "a conversation is scored by all its turns, and only sampled turns are sent there"
    yield "sessions.metrics", bool(settings.sessions.metrics), turns
    yield "sampling.feedback", settings.sampling.feedback is not None, labels
    yield "units.also", bool(settings.units.also), inner
    yield "spool.score_here: false", settings.spool is not None and not settings.spool.score_here, spool
    is_other = settings.limits.job_queue != "memory"
    yield "limits.job_queue", is_other, "units wait to be sent, and no job is made"
    for rule in settings.sampling.rules:
        if rule.when.score is not None:
            yield "sampling.rules", True, f"{rule.name} reads a score, which only the other process has"
