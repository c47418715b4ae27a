"""Writes the result of ``evaluate()`` as an HTML page, like that of ``spanscore report`` for live traces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spanscore.core.sample import Sample, Samples
from spanscore.errors import writing
from spanscore.pipeline.jobs import Hooks
from spanscore.protocols import Redactor
from spanscore.report import ReportRow, write_scores
from spanscore.report.rows import name_within
from spanscore.stored.dataset import BadRecord, read_samples
from spanscore.stored.evaluation_result import Result


def write_report(result: Result, path: Path, *, source: str | Path | None, redactor: Redactor | None) -> None:
    """Write one HTML page of a result that needs no network.

    Args:
        result: result of the run.
        path: file to write; an existing file is replaced.
        source: file of the samples, for the page's title and the texts of the worst samples; None, ``-`` or a pipe = no texts.
        redactor: redactor of the run; a sample on which it fails is not shown.

    Raises:
        ConfigurationError: the page cannot be written, or a library is missing.
    """
    can_be_read_again = source is not None and Path(source).is_file()  # not "-", and no pipe
    samples = read_samples(source) if source is not None and can_be_read_again else ()
    hooks = Hooks(redactor)
    texts = {read.line: _redact(hooks, read.sample) for read in samples if not isinstance(read.sample, BadRecord)}
    with writing(path):
        write_scores(_rows(result, texts), path, title=Path(source).name if source else "Scores of a data set")


def _redact(hooks: Hooks, sample: Sample) -> dict[str, Any]:
    """Return the redacted texts of a sample as fields of a ``ReportRow``; empty if the redactor fails on it."""
    redacted = hooks.apply(Samples.of(sample))
    if redacted.multi_turn is not None:
        return {"question": redacted.multi_turn.pretty()}
    if redacted.single_turn is None:
        return {}
    contexts = redacted.single_turn.retrieved_contexts
    return {
        "question": redacted.single_turn.user_input,
        "answer": redacted.single_turn.response,
        "contexts": None if contexts is None else tuple(contexts),
    }


def _rows(result: Result, texts: dict[int, dict[str, Any]]) -> Iterator[ReportRow]:
    for row in result.rows:
        scale = result.scales[row.metric]
        yield ReportRow(
            unit=f"line {row.line}",
            name=f"line {row.line}" if row.id is None else f"{row.id} (line {row.line})",
            metric=name_within(row.metric, row.source),
            outcome=row.outcome.value,
            value=row.value,
            quality=row.quality,
            label=row.label,
            reason=row.reason,
            explanation=row.explanation,
            kind=scale.kind,
            range=scale.range,
            direction=scale.direction,
            categories=scale.categories,
            pass_at=None if scale.range is None else scale.pass_at,
            judge_model=row.judge_model,
            input_tokens=row.input_tokens,
            output_tokens=row.output_tokens,
            cost_usd=row.cost_usd,
            **texts.get(row.line, {}),
        )
