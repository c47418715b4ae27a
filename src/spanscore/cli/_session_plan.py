"""Metrics that score sessions → what is wrong with them, and what a person must know of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from spanscore.config.kinds import duration
from spanscore.config.tree import Configuration, ScorerSettings
from spanscore.config.units import Replicas, Sessions
from spanscore.errors import ConfigurationError
from spanscore.metrics.catalog.configured import per_session
from spanscore.protocols import Metric
from spanscore.wiring.metrics import checked_session_metrics

__all__ = ["session_lines", "session_metrics_in", "session_problems"]

_PRESUMES: Final[dict[Replicas, str]] = {
    "one": "every turn of a conversation reaches this one process; of several, each would end a part of it as the whole: set "
    "sticky where all turns of one reach the same, else any",
    "sticky": "all turns of a conversation reach the same process; one that moves is scored in parts",
    "any": "any process may have any turn: only scorer.end_session() and max_turns end a conversation, on a turn that brought "
    "the whole history along; else it is incomplete",
}


def session_problems(settings: Configuration, made: Sequence[Metric]) -> Iterator[ConfigurationError]:
    """Yield why a configuration's metrics cannot score sessions; all of them could be made."""
    try:
        sessions = checked_session_metrics(session_metrics_in(settings, made), (), ())
    except ConfigurationError as error:
        yield error
        return
    for rule in settings.sampling.rules:
        if rule.when.score is not None and rule.when.score.metric in sessions:
            yield ConfigurationError(
                f"sampling.rules: one looks at the score of {rule.when.score.metric}, which scores sessions; rules are of units"
            )


def session_metrics_in(settings: Configuration, metrics: Sequence[Metric]) -> list[Metric]:
    """Return those that score sessions of a configuration's metrics, which are in its order.

    Raises:
        ConfigurationError: what one scores is neither.
    """
    return [metric for metric, is_one in zip(metrics, per_session(settings), strict=True) if is_one]


def session_lines(metrics: Sequence[Metric], settings: ScorerSettings) -> Iterator[str]:
    """Yield when conversations end, and what that presumes; nothing where no metric scores them."""
    if not metrics:
        return
    names = ", ".join(metric.name for metric in metrics)
    yield (
        f"{names}: one score per conversation, when it has ended; rates and alerts are of conversations, not of requests, and "
        "what a day costs hangs on how many there are: it is in no sum here"
    )
    yield f"a conversation ends {_ends(settings.sessions)}"
    yield f"sessions.replicas: {settings.sessions.replicas} presumes that {_PRESUMES[settings.sessions.replicas]}"
    if settings.sampling.rules:
        yield f"sampling rules are of units: none raises the rate of {names}"


def _ends(sessions: Sessions) -> str:
    if sessions.replicas == "any":
        return f"by scorer.end_session() or with its turn {sessions.max_turns:,}"
    idle = duration(sessions.idle_timeout)
    ends = f"by scorer.end_session(), after {idle} without a turn, with its turn {sessions.max_turns:,}"
    return f"{ends}, or when {sessions.max_open:,} others are open"
