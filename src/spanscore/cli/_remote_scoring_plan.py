"""``remote_scoring`` → what is wrong with it, and what goes where. Nobody is contacted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from ipaddress import ip_address
from urllib.parse import urlsplit

from spanscore.cli._session_plan import session_metrics_in
from spanscore.config.credentials import token_in_file
from spanscore.config.durable import RemoteScoring, confluent_config
from spanscore.config.tree import Configuration
from spanscore.errors import ConfigurationError
from spanscore.protocols import Metric
from spanscore.wiring.remote_scoring import left_to_the_other

__all__ = ["remote_scoring_lines", "remote_scoring_problems"]


def remote_scoring_problems(settings: Configuration, made: Sequence[Metric]) -> Iterator[ConfigurationError]:
    """Yield what keeps units from being handed over; a file that is not here may be where the application will run.

    Args:
        made: the metrics of the configuration, in its order; of those where one could not be made, nothing is said here.
    """
    where = settings.remote_scoring
    if where is None:
        return
    sessions = settings.sessions.model_copy(update={"metrics": tuple(_of_sessions(settings, made))})
    whole = settings.model_copy(update={"sessions": sessions})
    checks: list[Callable[[], object]] = [partial(left_to_the_other, whole), partial(_secrets, where)]
    for check in checks:
        try:
            check()
        except ConfigurationError as error:
            yield error


def remote_scoring_lines(where: RemoteScoring | None) -> Iterator[str]:
    """Yield what a process does that hands its units over."""
    if where is None:
        return
    yield f"units go to {where.shown} to be scored, with their content, after the redactor"
    if where.endpoint is not None and not _is_private(where.endpoint):
        yield "remote_scoring.endpoint is no https: content and token travel as plain text"


def _of_sessions(settings: Configuration, made: Sequence[Metric]) -> Sequence[Metric]:
    try:
        return session_metrics_in(settings, made)
    except (ConfigurationError, ValueError):  # told as a problem of theirs; or not all are there: which is which?
        return ()


def _secrets(where: RemoteScoring) -> object:
    if where.kafka is not None:
        return confluent_config(where.kafka, "remote_scoring.kafka")
    return token_in_file(where.token_file or "", "remote_scoring.token_file")


def _is_private(endpoint: str) -> bool:
    """Whether nobody else can read what is sent there: by TLS, or as it stays on the machine."""
    parts = urlsplit(endpoint)
    try:
        return parts.scheme == "https" or parts.hostname == "localhost" or ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False
