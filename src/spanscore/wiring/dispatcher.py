"""Handover, put together: only where it is asked for, as it brings OTLP, SQLite and an HTTP client along."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from spanscore.config.durable import RemoteScoring, confluent_config
from spanscore.config.tree import ScorerSettings
from spanscore.core.codecs.job import units_of
from spanscore.core.codecs.otlp_request import taken_apart
from spanscore.core.job import JobResult
from spanscore.core.log import log_internal_error
from spanscore.core.score import Outcome
from spanscore.durable.carriers import OtlpCarrier, SpooledCarrier
from spanscore.durable.confluent_kafka_carrier import KafkaCarrier
from spanscore.durable.dispatcher import Dispatcher, UnitEncoder
from spanscore.durable.rows import Carrier, UnitCopy
from spanscore.outputs.aggregates import checked_dimensions
from spanscore.outputs.providers import Providers
from spanscore.pipeline.jobs import JobBuilder
from spanscore.pipeline.ledger import Ledger
from spanscore.protocols import Queue
from spanscore.wiring.spool import spool_of

__all__ = ["handing_over"]


def handing_over(
    remote_scoring: RemoteScoring,
    settings: ScorerSettings,
    pipeline: JobBuilder,
    queue: Queue,
    providers: Providers,
    ledger: Ledger,
    post: Callable[[JobResult], None],
) -> Dispatcher:
    """Return what hands units over; the arguments are those of ``handover_of``."""
    hooks = pipeline.hooks
    copier = UnitEncoder(
        redactor=hooks.redactor,
        samples=lambda sampled: pipeline.job(sampled).samples,
        filters=hooks.keep is not None,
        dimensions=checked_dimensions(settings.monitoring.dimensions),
        box=pipeline.box,
        resource=providers.resource,
    )
    carrier = _carrier(remote_scoring)
    if (spool := spool_of(queue)) is not None:
        carrier = SpooledCarrier(spool, carrier, lost=partial(_count_lost, ledger))
    return Dispatcher(copier, carrier, queue=queue, post=post, where=remote_scoring.shown)


def _count_lost(ledger: Ledger, copy: UnitCopy, outcome: Outcome) -> None:
    """Count a unit that nobody will score: once more where it has ended as handed over, be it in a life before."""
    for unit, _ in units_of(taken_apart(copy.request).spans, lambda error: log_internal_error("read a copy", error)):
        ledger.enter(unit.key, unit.eligible_metrics)
        ledger.settle_all(unit.key, outcome)


def _carrier(remote_scoring: RemoteScoring) -> Carrier:
    if remote_scoring.kafka is None:
        return OtlpCarrier(remote_scoring)
    return KafkaCarrier(confluent_config(remote_scoring.kafka, "remote_scoring.kafka"), remote_scoring.kafka.topic)
