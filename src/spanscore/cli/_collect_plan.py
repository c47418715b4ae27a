"""What a scorer collects → what keeps it from the file, and whose content stands there in which form."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from spanscore.config.collect import Collect
from spanscore.config.tree import Configuration, ScorerSettings
from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.outputs.spans_file import MAX_BYTES
from spanscore.protocols import Metric
from spanscore.wiring.outputs import check_conditions, exports_content

__all__ = ["collect_lines", "collect_problems", "file_problems", "spans_file_lines"]

_MB: Final = 1e6


def collect_problems(settings: Configuration, metrics: Sequence[Metric]) -> Iterator[ConfigurationError]:
    """Yield what keeps cases from being collected; a folder that is not here may be where the scorer will run."""
    collect = settings.collect
    if collect is None:
        return
    try:
        check_conditions(collect, {metric.name: metric for metric in metrics})
    except ConfigurationError as error:
        yield error
    yield from file_problems("collect.out", collect.path)


def file_problems(key: str, path: Path) -> Iterator[ConfigurationError]:
    """Yield what keeps a scorer from writing the file that a key names."""
    if not path.parent.is_dir():
        yield NotReadyError(f"there is no folder {path.parent}; {key} needs it")
    elif path.exists() and not path.is_file():
        yield ConfigurationError(f"{key}: {path} is there, and is no file")
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        yield NotReadyError(f"{path} cannot be written by this user; {key} needs it")


def collect_lines(settings: ScorerSettings) -> Iterator[str]:
    """Yield what a scorer without a problem collects: that content goes to a file is to be known before it does."""
    collect = settings.collect
    if collect is None:
        return
    if settings.remote_scoring is not None or (settings.spool is not None and not settings.spool.score_here):
        yield "collect: cases are written where units are scored, and not by this process"
        return
    yield f"collect: content is written to {collect.path}, of units of which {' or '.join(collect.when)} holds"
    redacted = "as the redactor leaves it" if settings.redactor is not None else "as it is, as there is no redactor"
    yield f"  {redacted}; readable by its owner alone; with the file before (.1) up to {collect.max_bytes / _MB:,g} MB"
    yield from _mode_notes(collect)


def spans_file_lines(settings: ScorerSettings) -> Iterator[str]:
    """Yield which spans ``spans_to`` writes, and whether content is in them."""
    if settings.outputs.spans_to is not None:
        content = "with prompts and answers" if exports_content(settings.capture.content) else "without content"
        path = Path(settings.outputs.spans_to).resolve()
        yield f"spans_to: spans are written to {path}, {content}; with the file before (.1) up to {MAX_BYTES / _MB:,g} MB"


def _mode_notes(collect: Collect) -> Iterator[str]:
    mode = stat.S_IMODE(collect.path.stat().st_mode) if collect.path.exists() else 0
    if mode & 0o077:
        yield f"  others can read {collect.path} now (mode {mode:04o}): the first case makes it its owner's alone (0600)"
