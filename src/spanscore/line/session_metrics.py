"""Metrics that score sessions: which can, and what a session is to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from spanscore.config.units import Sessions
from spanscore.core.codecs.text import safe_text
from spanscore.core.timebox import Timebox
from spanscore.errors import ConfigurationError
from spanscore.metrics.catalog.registry import by_name
from spanscore.pipeline.sessions import SessionBounds
from spanscore.protocols import Metric, Redactor
from spanscore.samples.redaction import redacted

__all__ = ["bounds_of", "checked_session_metrics", "shown_id"]

_MULTI_TURN = "multi_turn"


def checked_session_metrics(
    metrics: Sequence[Metric], of_units: Collection[str], shadows: Iterable[Any]
) -> Mapping[str, Metric]:
    """Return the metrics that score sessions, by name.

    Args:
        of_units: names of those that score units.

    Raises:
        ConfigurationError: one scores units, too, takes no conversation, or has a second judge.
    """
    named = by_name(metrics)
    beside = {getattr(shadow, "name", None) for shadow in shadows}  # what is no metric is refused elsewhere
    for name, metric in named.items():
        if name in of_units:
            raise ConfigurationError(
                f"{name!r} is among metrics and sessions.metrics: it scores units or sessions; give one of them another name="
            )
        if _MULTI_TURN not in metric.requires:
            raise ConfigurationError(
                f"{name!r} cannot score sessions: it takes no conversation (multi_turn), but {_kinds(metric)}"
            )
        if name in beside:
            raise ConfigurationError(
                f"shadows has {name!r}, which scores sessions; second judges are asked about units alone"
            )
    return named


def bounds_of(sessions: Sessions) -> SessionBounds:
    """Return what a session is."""
    bounds = sessions.model_dump(exclude={"metrics", "idle_timeout"})
    return SessionBounds(idle_ns=int(sessions.idle_timeout * 1e9), **bounds)


def shown_id(session_id: str, redactor: Redactor | None, box: Timebox) -> str | None:
    """Return what may leave of a conversation's id, as applications name one by its user's address. Fails closed: None."""
    if redactor is None:
        return safe_text(session_id)
    try:
        return safe_text(box.run(lambda: redacted(session_id, redactor)))
    except BaseException:  # noqa: BLE001  (SystemExit, too)
        return None


def _kinds(metric: Metric) -> str:
    return " and ".join(sorted(metric.requires))
