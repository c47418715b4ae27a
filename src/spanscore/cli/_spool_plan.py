"""A spool → what keeps it from being written, and what is done with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from spanscore.config.kinds import duration
from spanscore.config.tree import Configuration, ScorerSettings
from spanscore.core.files import check_disk
from spanscore.errors import ConfigurationError, NotReadyError

__all__ = ["spool_lines", "spool_problems"]

_MB: Final = 1e6


def spool_problems(settings: Configuration) -> Iterator[ConfigurationError]:
    """Yield what keeps a spool from being written; a folder that is not here may be where the scorer will run."""
    spool = settings.spool
    if spool is None:
        return
    if settings.limits.job_queue != "memory":
        yield ConfigurationError(
            "spool and limits.job_queue are both given: units wait in one place; leave out one of them"
        )
    if not spool.score_here and settings.sampling.feedback is not None:
        yield ConfigurationError(
            "sampling.feedback cannot stand beside spool.score_here: false: nothing is judged there"
        )
    path = Path(spool.path).expanduser().absolute()
    if not path.parent.is_dir():
        yield NotReadyError(f"there is no folder {path.parent}; spool.path needs it")
    elif not spool.allow_network_disk:
        try:
            check_disk(path)
        except ConfigurationError as error:
            yield error


def spool_lines(settings: ScorerSettings) -> Iterator[str]:
    """Yield what a spool without a problem does."""
    spool = settings.spool
    if spool is None:
        return
    who = "scored in this process, or in any that shares it" if spool.score_here else "scored by spanscore worker"
    yield f"spool: {spool.path}, up to {spool.max_bytes / _MB:,.0f} MB and {duration(spool.max_age)}; {who}"
    survives = "the loss of power" if spool.sync == "full" else "kill -9, not the loss of power"
    yield f"  it holds prompts and answers, as the redactor leaves them; what is in it survives {survives}"
