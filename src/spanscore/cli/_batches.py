"""Opens and cancels the batches of ``spanscore evaluate`` and ``replay``: ``--batch`` and ``--batch-cancel``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from spanscore.cli._options import refuse_unwritable
from spanscore.core.printable import format_count
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError
from spanscore.judges.batches.run import BatchRun, batch_run, cancel_batches
from spanscore.judges.jury import members_of
from spanscore.protocols import Judge, Metric


def open_batch_run(metrics: Iterable[Metric], scores: Path | None, option: str, notes: Terminal) -> BatchRun:
    """Return a run by whose batches the judges of metrics are asked from now on, and print its notes.

    The batches are in ``<scores>.batches``; ``option`` names the file ``scores``. Metrics without a judge are scored at once.

    Raises:
        ConfigurationError: no file is named, a judge has no batch endpoint, or another run has the batches.
    """
    metrics = list(metrics)
    file = _batch_file(scores, option)
    refuse_unwritable(file)
    run = batch_run(_judges_of(metrics), file)
    unbatched = [metric.name for metric in metrics if getattr(metric, "_judge_model", "")]
    if unbatched:
        notes.print_line(f"{', '.join(unbatched)} asks its judge itself: at once, and at full price")
    for note in run.notes():
        notes.print_line(note)
    return run


def cancel_open_batches(metrics: Iterable[Metric], scores: Path | None, option: str) -> str:
    """Cancel the open batches of an earlier run; return the result in words. For the arguments see ``open_batch_run``.

    Raises:
        ConfigurationError: no file is named, a judge has no batch endpoint, or a provider refuses.
    """
    file = _batch_file(scores, option)
    cancelled, batches = cancel_batches(_judges_of(metrics), file)
    if not batches:
        return f"{file} has no open batch"
    return (
        f"{cancelled:,} of {format_count(batches, 'batch')} cancelled; the others had ended or are another judge's. Answers "
        "that came before are billed: the command with --batch uses them, and asks the other questions again."
    )


def interrupted_batches(run: BatchRun | None, again: str) -> Iterator[str]:
    """Yield how to continue an interrupted run, by the command ``again``, and how to cancel it; nothing without batches."""
    if run is not None:
        yield (
            f"{format_count(run.open_questions(), 'question')} in open batches, which go on at the provider: {again} fetches "
            "the answers, and with --batch-cancel in place of --batch it cancels them."
        )


def _batch_file(scores: Path | None, option: str) -> Path:
    if scores is None:
        raise ConfigurationError(
            f"--batch needs {option} FILE: a batch may take a day, and its ids are kept in FILE.batches"
        )
    return scores.with_name(f"{scores.name}.batches")


def _judges_of(metrics: Iterable[Metric]) -> list[Judge]:
    judges = [judge for metric in metrics if (judge := getattr(metric, "_judge", None)) is not None]
    return [member for judge in judges for member in members_of(judge)]
