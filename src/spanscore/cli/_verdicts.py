"""What people and a judge said of the same samples, wherever it stands: in lines of labels, in rows of ``score``, on spans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from spanscore.core.codecs.annotation_file import of_name
from spanscore.core.codecs.otlp import stored_spans
from spanscore.core.codecs.stored_sample import content_hash
from spanscore.core.codecs.text import json_in
from spanscore.core.printable import names_listed
from spanscore.core.sample import AnnotatedSample, Annotation, JudgeResult
from spanscore.core.score import UNIT_INTERVAL, Scale
from spanscore.core.span import UnitKey
from spanscore.errors import ConfigurationError
from spanscore.report.rows import ReportRow, unit_name
from spanscore.report.spans import Spans
from spanscore.report.story import PersonAnnotation, labels
from spanscore.stored.evaluation_result import Row, read_rows, row_key

_R = TypeVar("_R", Row, ReportRow)

__all__ = [
    "JudgeVerdict",
    "JudgeVerdicts",
    "annotated_on_spans",
    "holds_spans",
    "verdicts_in_lines",
    "verdicts_in_scores",
]


class JudgeVerdict(NamedTuple):
    """What a judge said of one sample.

    Attributes:
        evaluator_version: empty where nobody knows.
        weight: 1 / probability with which it was chosen to be judged.
    """

    passed: bool
    evaluator_version: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class JudgeVerdicts:
    """What a judge said.

    Attributes:
        labelled: one per labelled sample, in their order; None = it said nothing of it.
        window: everything that it was asked in the window from which the labels are, these among it; empty = not known.
    """

    labelled: tuple[JudgeVerdict | None, ...]
    window: tuple[JudgeVerdict, ...] = ()

    def of(self, evaluator_version: str) -> JudgeVerdicts:
        """Return those of one evaluator version."""
        labelled = (
            verdict if verdict is not None and verdict.evaluator_version == evaluator_version else None
            for verdict in self.labelled
        )
        return JudgeVerdicts(
            tuple(labelled), tuple(verdict for verdict in self.window if verdict.evaluator_version == evaluator_version)
        )


def holds_spans(path: Path) -> bool:
    """Return whether a file holds OTLP-JSON lines; neither rows nor labels do.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            first = json_in(next((line for line in lines if line.strip()), "null"))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError:
        return False  # rows may be cells
    return isinstance(first, dict) and "resourceSpans" in first


def annotated_on_spans(path: Path, name: str | None) -> list[AnnotatedSample]:
    """Return what people said of units, as the label spans of a file tell: the last word of each annotator.

    A label whose quality is at least .5 is a pass; one that is on no scale is left out.

    Args:
        name: of the labels; None = they are all of one.

    Raises:
        ConfigurationError: there are none, or of several names.
    """
    with stored_spans(str(path)) as spans:
        annotations = [
            (unit, annotation) for unit, of_unit in labels(Spans.read(spans)).items() for annotation in of_unit
        ]
    samples = [
        _build_sample(place, unit, annotation)
        for place, (unit, annotation) in enumerate(annotations, 1)
        if annotation.quality is not None
    ]
    if not samples:
        raise ConfigurationError(f"{path} holds no labels: give a file of them, and this one as --scores")
    return of_name(samples, name, path)


def _build_sample(place: int, unit: str, annotation: PersonAnnotation) -> AnnotatedSample:
    trace, span = unit.split("/")
    key, passed = UnitKey(int(trace, 16), int(span, 16)), (annotation.quality or 0.0) >= UNIT_INTERVAL.pass_at
    label = Annotation(
        name=annotation.name, value=passed, annotator=annotation.annotator, when_ns=annotation.when_ns, unit=key
    )
    return AnnotatedSample(line=place, sample=None, human=passed, judged={}, group=trace, label=label)


def verdicts_in_lines(samples: Iterable[AnnotatedSample], metric: str, scale: Callable[[], Scale]) -> JudgeVerdicts:
    """Return what ``scores`` of the lines say; ``scale`` is asked where a value has no label.

    Raises:
        ConfigurationError: the scale is not known, or open.
    """
    return JudgeVerdicts(tuple(_of_line(sample.judged.get(metric), scale) for sample in samples))


def verdicts_in_scores(path: Path, samples: Sequence[AnnotatedSample], metric: str) -> JudgeVerdicts:
    """Return what a file of rows of ``spanscore evaluate --out``, or of spans with scores, says.

    Rows are found by what is in the samples, spans by ``trace_id`` and ``span_id``.

    Raises:
        ConfigurationError: it cannot be read, or holds no verdict of the metric.
    """
    return _on_spans(path, samples, metric) if holds_spans(path) else _in_rows(path, samples, metric)


def _of_line(judged: JudgeResult | None, scale: Callable[[], Scale]) -> JudgeVerdict | None:
    if judged is None:
        return None
    label = judged.label
    if label is None and judged.value is not None:
        own_scale = scale()
        label = own_scale.label(own_scale.quality(judged.value))
    return None if label is None else JudgeVerdict(label == "pass", judged.evaluator_version)


def _of_metric(path: Path, metric: str, rows: Iterable[_R]) -> list[_R]:
    judged = [row for row in rows if row.label]
    of_metric = [row for row in judged if row.metric == metric]
    if not of_metric:
        names = names_listed(sorted({row.metric for row in judged})) or "none at all"
        raise ConfigurationError(f"{path} holds no verdict of {metric!r}; it has {names}")
    return of_metric


def _in_rows(path: Path, samples: Sequence[AnnotatedSample], metric: str) -> JudgeVerdicts:
    rows = _of_metric(path, metric, (row for row in read_rows(path) if row.source is None))
    by_key = {row.key: _of_row(row) for row in rows}
    every_evaluator_versions = {row.evaluator_version for row in rows}
    seen: Counter[str] = Counter()
    labelled: list[JudgeVerdict | None] = []
    for sample in samples:
        if sample.sample is None:
            labelled.append(None)
            continue
        content = content_hash(sample.sample)
        keys = (
            row_key(content, seen[content], metric, evaluator_version) for evaluator_version in every_evaluator_versions
        )
        labelled.append(next((by_key[key] for key in keys if key in by_key), None))
        seen[content] += 1
    return JudgeVerdicts(tuple(labelled), tuple(by_key.values()))


def _of_row(row: Row) -> JudgeVerdict:
    return JudgeVerdict(row.label == "pass", row.evaluator_version)


def _on_spans(path: Path, samples: Sequence[AnnotatedSample], metric: str) -> JudgeVerdicts:
    with stored_spans(str(path)) as spans:
        rows = _of_metric(path, metric, Spans.read(spans).rows())
    by_unit = {row.unit: _of_unit(row) for row in rows}
    labelled = (
        None if sample.label is None or sample.label.unit is None else by_unit.get(unit_name(sample.label.unit))
        for sample in samples
    )
    return JudgeVerdicts(tuple(labelled), tuple(by_unit.values()))


def _of_unit(row: ReportRow) -> JudgeVerdict:
    return JudgeVerdict(row.label == "pass", row.evaluator_version or "", row.weight)
