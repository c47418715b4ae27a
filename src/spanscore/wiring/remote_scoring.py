"""Configuration → what hands units over to another process, where that is asked for, and what this one then leaves to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from spanscore.config.tree import ScorerSettings
from spanscore.core.job import JobResult
from spanscore.durable.rows import REMOTE_SCORING
from spanscore.errors import ConfigurationError
from spanscore.outputs.providers import Providers
from spanscore.pipeline.jobs import JobBuilder
from spanscore.pipeline.ledger import Ledger
from spanscore.protocols import DurableQueue, Queue

if TYPE_CHECKING:
    from spanscore.durable.dispatcher import Dispatcher

__all__ = ["handover_of", "left_to_the_other", "rejection_reason_of"]


def left_to_the_other(settings: ScorerSettings) -> ScorerSettings:
    """Return the options of a process that asks no judge: where units are scored, the others are in force.

    Raises:
        ConfigurationError: one of them needs scores or samples in this process.
    """
    if settings.remote_scoring is not None:
        for what, needs in _needs(settings).items():
            if needs:
                raise ConfigurationError(f"{what} cannot stand beside remote_scoring: {needs}")
    elif settings.spool is None or settings.spool.score_here:
        return settings
    elif settings.sampling.feedback:
        raise ConfigurationError(
            "sampling.feedback cannot stand beside spool.score_here: false: what is said of a unit comes here, and nothing is "
            "judged here"
        )
    judge = settings.judge.model_copy(update={"shadows": (), "budget": (), "shadow_budget": None})
    return settings.model_copy(update={"judge": judge, "judge_check": None, "collect": None})


def handover_of(
    settings: ScorerSettings,
    pipeline: JobBuilder,
    queue: Queue,
    providers: Providers,
    ledger: Ledger,
    post: Callable[[JobResult], None],
) -> Dispatcher | None:
    """Return what hands units over; None where they are scored in this process.

    Args:
        pipeline: has the hooks.
        ledger: counts the copies that grow too old in a spool.
        post: as of ``Dispatcher``.
    """
    if settings.remote_scoring is None:
        return None
    from spanscore.wiring.dispatcher import handing_over

    return handing_over(settings.remote_scoring, settings, pipeline, queue, providers, ledger, post)


def rejection_reason_of(queue: Queue, settings: ScorerSettings) -> Callable[[], str | None]:
    """Return a function that gives why the queue rejects units; with remote scoring the reason is always the same."""
    if settings.remote_scoring is not None:
        return lambda: REMOTE_SCORING
    return queue.rejection_reason if isinstance(queue, DurableQueue) else lambda: None


def _needs(settings: ScorerSettings) -> Mapping[str, str]:
    """Return what is asked for → why it takes a process that scores; empty where it is not asked for."""
    screens = [rule.name for rule in settings.sampling.rules if rule.when.score is not None]
    return {
        "sessions.metrics": "a conversation is scored by all its turns, and only those that a metric takes go there"
        if settings.sessions.metrics
        else "",
        "sampling.feedback": "what is said of a unit comes here, and its sample would be there"
        if settings.sampling.feedback
        else "",
        "spool.score_here: false": "the spool's units go to a worker, or those of remote_scoring to a serve; leave out one"
        if settings.spool is not None and not settings.spool.score_here
        else "",
        "limits.job_queue": "units wait to be handed over, and no job is made"
        if settings.limits.job_queue != "memory"
        else "",
        "sampling.rules": f"{screens[0]} looks at a score, which is only known there" if screens else "",
    }
