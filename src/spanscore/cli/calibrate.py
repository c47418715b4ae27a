"""``spanscore calibrate``: annotations and the judge's verdicts → how good the judge is, and the corrected pass rate."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import typer
from rich.text import Text

from spanscore.cli._config_report import valid
from spanscore.config.kinds import share_in
from spanscore.core.codecs.annotation_file import of_name, passes, read_annotations
from spanscore.core.codecs.otlp import stored_spans
from spanscore.core.codecs.stored_sample import content_hash
from spanscore.core.codecs.text import json_in
from spanscore.core.printable import TextTable, names_listed, printable
from spanscore.core.sample import AnnotatedSample, Annotation, JudgeResult
from spanscore.core.score import UNIT_INTERVAL, Scale
from spanscore.core.span import UnitKey
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError, writing
from spanscore.metrics.catalog.registry import built_ins, own_name
from spanscore.monitoring.calibration import (
    KNOWN_ERROR,
    LEAST_SHARED,
    Agreement,
    AnnotatedPair,
    AnnotatorError,
    Calibration,
    Estimated,
    SavedCalibration,
    agreement_of,
)
from spanscore.monitoring.estimates import Moments, interval, mean, moments
from spanscore.report.rows import ReportRow, unit_name
from spanscore.report.spans import Spans
from spanscore.report.story import PersonAnnotation, labels
from spanscore.semconv import ANNOTATOR_HUMAN
from spanscore.stored.evaluation_result import Row, read_rows, row_key

__all__ = [
    "AnnotationFacts",
    "JudgeVerdict",
    "JudgeVerdicts",
    "annotated_on_spans",
    "annotation_facts",
    "calibrate",
    "error_rate_in",
    "holds_spans",
    "verdicts_in_lines",
    "verdicts_in_scores",
]

# --- annotation facts -----------------------------------------------------------------------------------------------

# Labels of one metric → how old they are, how far their annotators agree, and how often one of them is wrong.

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class AnnotationFacts:
    """What labels tell besides their verdicts.

    Attributes:
        times: when labels were given; labels without a time are left out.
        timeless: labels without a time.
        unnamed: labels without the name of an annotator.
        agreement: of named annotators on the same units.
        error: of one annotator; None = not known, and labels count as right.
        measured: whether ``error`` comes from the agreement.
    """

    times: tuple[datetime, ...]
    timeless: int
    unnamed: int
    agreement: Agreement
    error: AnnotatorError | None
    measured: bool

    def error_of(self, balances: Iterable[int]) -> AnnotatorError:
        """Return the error of labels that are majorities: votes for a pass less those against it; ties are left out."""
        decided = [abs(balance) for balance in balances if balance]
        return KNOWN_ERROR if self.error is None or not decided else self.error.of_majorities(decided)

    def notes(self, now: datetime | None = None) -> Iterator[str]:
        """Yield a sentence for each; ``now``: the time from which ages count, None = the present."""
        yield self._age(now or datetime.now(UTC))
        of, error = self.agreement, self.error
        unnamed = f"; the annotator of {self.unnamed:,} labels is unknown" if self.unnamed else ""
        if of.share is None:
            yield f"how far annotators agree is unknown: no unit has labels of two named annotators{unnamed}"
        else:
            yield f"annotators agree on {100 * of.share:.0f} % of the {of.units:,} units that two or more labelled{unnamed}"
        if error is None:
            yield "how often an annotator is wrong is unknown: labels count as right; --annotator-error RATE corrects for it"
        else:
            source = f"measured on {of.units:,} units" if self.measured else "as given"
            yield f"one annotator is wrong in {100 * error.rate:.1f} % ({source}): J, κ and pass rates are corrected for it"

    def _age(self, now: datetime) -> str:
        if not self.times:
            return "the age of the labels is unknown: none has a time (when)"
        ends = min(self.times), max(self.times)
        oldest, newest = (f"{max(0.0, (now - end).total_seconds()) / _DAY_S:,.0f} days old" for end in ends)
        rest = f"; the age of {self.timeless:,} labels is unknown" if self.timeless else ""
        return f"labels are from {ends[0]:%Y-%m-%d}, {oldest}, to {ends[1]:%Y-%m-%d}, {newest}{rest}"

    def as_json(self) -> dict[str, Any]:
        """Return the values; None = unknown."""
        times = self.times
        return {
            "age": {
                "oldest": min(times).isoformat() if times else None,
                "newest": max(times).isoformat() if times else None,
                "unknown": self.timeless,
            },
            "annotators": {
                "units": self.agreement.units,
                "agreement": self.agreement.share,
                "unknown": self.unnamed,
                "error": None if self.error is None else self.error.rate,
                "measured": self.measured,
            },
        }


def annotation_facts(
    labels: Sequence[Annotation | None],
    units: Sequence[object],
    pairs: Sequence[AnnotatedPair],
    error_rate: float | None,
) -> AnnotationFacts:
    """Return what labels tell.

    Args:
        labels: one per line; None = the line has none of these facts.
        units: the unit of each label.
        pairs: what each label says.
        error_rate: how often one annotator is wrong; None = it is measured, if enough units have several annotators.

    Raises:
        ConfigurationError: it is to be measured, and annotators disagree as often as coins do.
    """
    times = [time for label in labels if (time := _time_of(label)) is not None]
    named: defaultdict[object, list[bool]] = defaultdict(list)
    for label, unit, pair in zip(labels, units, pairs, strict=True):
        if label is not None and label.annotator != ANNOTATOR_HUMAN:  # any person
            named[unit].append(pair.human)
    agreement = agreement_of(named.values())
    error = agreement.error() if error_rate is None else AnnotatorError(error_rate)
    return AnnotationFacts(
        times=tuple(times),
        timeless=len(labels) - len(times),
        unnamed=len(labels) - sum(map(len, named.values())),
        agreement=agreement,
        error=error,
        measured=error_rate is None and error is not None,
    )


def _time_of(label: Annotation | None) -> datetime | None:
    """Return when a label was given; None if that is not known, or no date."""
    if label is None or label.when_ns is None:
        return None
    try:
        return datetime.fromtimestamp(label.when_ns / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def error_rate_in(text: str) -> float:
    """Return the rate of ``--annotator-error``, [0, .5): a number, or per cent."""
    try:
        rate = float(share_in(text))
    except ValueError:
        rate = -1.0
    if not 0.0 <= rate < 0.5:  # noqa: PLR2004  (a coin)
        raise typer.BadParameter(f"{text!r} is no error rate; allowed is 0 or more, below 0.5, such as 0.05 or 5%")
    return rate


# --- verdicts -------------------------------------------------------------------------------------------------------

# What people and a judge said of the same samples, wherever it stands: in lines of labels, in rows of ``score``, on spans.

_R = TypeVar("_R", Row, ReportRow)


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


# --- calibrate ------------------------------------------------------------------------------------------------------

# ``spanscore calibrate``: labels and what the judge said → how good the judge is, and what its pass rate really is.


def calibrate(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="LABELS.jsonl|SPANS.jsonl",
            help='Samples with what a human said, a line each: {"human": true, "user_input": …, "response": …}; the '
            "annotations of ragas; or spans (OTLP-JSON lines) with labels, beside the scores of the same units.",
        ),
    ],
    metric: Annotated[str, typer.Option("--metric", "-m", help="Whose judge, by the name that its scores have.")],
    scores: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What the judge said, where the lines have no scores: rows of spanscore evaluate --out, found by their "
            "sample; or spans with scores (OTLP-JSON lines), found by trace_id and span_id. All of it is the window that "
            "is told of.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="A spanscore.yaml: the metric's scale, where humans gave numbers and it is no built-in."),
    ] = None,
    label: Annotated[str | None, typer.Option(help="Only labels of this name, where the file has several.")] = None,
    evaluator_version: Annotated[
        str | None, typer.Option(help="Only verdicts of this evaluator version, where there are several.")
    ] = None,
    annotator_error: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            parser=error_rate_in,
            help="How often one annotator is wrong, below 0.5. If not given, it is measured on the units that two or more "
            f"named annotators labelled, {LEAST_SHARED} units or more; else labels count as right.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file to write; calibration-METRIC-VERSION.json here if not given."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Hold a judge against human labels: how often it is right, and what its pass rate is when that is taken into account.

    [bold]spanscore evaluate labels.jsonl --config spanscore.yaml -m faithfulness --out scores.jsonl[/bold], then
    [bold]spanscore calibrate labels.jsonl -m faithfulness --scores scores.jsonl[/bold]. Of live traffic [bold]--scores
    spans.jsonl[/bold], and labels with trace_id and span_id.

    The file that it writes is for [bold]monitoring: {calibrations: [FILE]}[/bold] and [bold]spanscore report --calibration
    FILE[/bold]: they correct the pass rate of that evaluator version, and of no other. Refused are fewer than 5 labels of what
    humans passed or failed, and a judge that tells the two hardly apart.
    """
    scale = _scale_of(metric, config)
    if holds_spans(file):
        samples, scores = annotated_on_spans(file, label), scores or file
    else:
        samples = read_annotations(file, metric=metric, name=label)
    verdicts = (
        verdicts_in_lines(samples, metric, scale) if scores is None else verdicts_in_scores(scores, samples, metric)
    )
    run = _calibrate(
        file, metric, samples, verdicts.of(_evaluator_versions(verdicts, evaluator_version)), scale, annotator_error
    )
    path = _write_calibration(run, out)
    if as_json:
        typer.echo(json.dumps(_as_json(run, path), indent=2))
        return
    console = Terminal(highlight=False, markup=False)
    for part in _parts(run, path):
        console.print(part, soft_wrap=isinstance(part, Text))


@dataclass(frozen=True, slots=True)
class _CalibrateRun:
    """What labels and verdicts say.

    Attributes:
        evaluator_version: empty where the verdicts tell none.
        window: the sums of all verdicts, 1 = passed; None where only those of labels are known.
        left_out: labels without a verdict.
        shared: labels of units that have several; what most of a unit's annotators say is one label.
        tied: units of which as many say the one as the other, which say nothing.
        facts: how old the labels are, and how far annotators agree.
    """

    metric: str
    evaluator_version: str
    calibration: Calibration
    window: Moments | None
    left_out: int
    shared: int
    tied: int
    facts: AnnotationFacts

    @property
    def rates(self) -> dict[str, Estimated]:
        """The pass rate of the window in each way that it can be told, the best one first; none where it is not known."""
        if self.window is None:
            return {}
        of = self.calibration
        raw = Estimated(mean(self.window), *interval(self.window))
        return {"fresh": of.fresh(self.window), "corrected": of.corrected(self.window), "raw": raw}


def _calibrate(
    file: Path,
    metric: str,
    samples: Sequence[AnnotatedSample],
    verdicts: JudgeVerdicts,
    scale: Callable[[], Scale],
    error_rate: float | None,
) -> _CalibrateRun:
    judged = [
        (sample, verdict) for sample, verdict in zip(samples, verdicts.labelled, strict=True) if verdict is not None
    ]
    if not judged:
        raise ConfigurationError(_how_to_judge(file, metric, samples))
    pairs = [
        AnnotatedPair(_has_passed(file, sample, scale), verdict.passed, sample.probability, verdict.weight)
        for sample, verdict in judged
    ]
    units = [_unit_of(sample) for sample, _ in judged]
    by_unit: defaultdict[object, list[AnnotatedPair]] = defaultdict(list)
    for unit, pair in zip(units, pairs, strict=True):
        by_unit[unit].append(pair)
    agreed = [*map(_most, by_unit.values())]
    facts = annotation_facts([sample.label for sample, _ in judged], units, pairs, error_rate)
    window = moments((float(verdict.passed), 1.0 / verdict.weight) for verdict in verdicts.window)
    return _CalibrateRun(
        metric=metric,
        evaluator_version=judged[0][1].evaluator_version,
        calibration=Calibration.of(filter(None, agreed), facts.error_of(map(_balance, by_unit.values()))),
        window=window if window.n > len(agreed) else None,  # of the labels alone it is what their humans say
        left_out=len(samples) - len(judged),
        shared=sum(size for size in map(len, by_unit.values()) if size > 1),
        tied=agreed.count(None),
        facts=facts,
    )


def _unit_of(sample: AnnotatedSample) -> object:
    """Return what the labels of several annotators share; each line's own where nothing tells the unit."""
    label = sample.label
    return sample.line if label is None or (label.unit is None and label.key is None) else (label.unit, label.key)


def _most(pairs: Sequence[AnnotatedPair]) -> AnnotatedPair | None:
    """Return what most annotators of a unit say; None of a tie. As labels of their own they would be told as more units."""
    balance = _balance(pairs)
    return pairs[0]._replace(human=balance > 0) if balance else None


def _balance(pairs: Sequence[AnnotatedPair]) -> int:
    return sum(1 if pair.human else -1 for pair in pairs)


def _scale_of(metric: str, config: Path | None) -> Callable[[], Scale]:
    """Return what tells a metric's scale when it is needed: true, false and labels pass and fail need none."""

    def scale() -> Scale:
        if config is not None:
            named = {metric.name: metric.scale for metric in valid(config).metrics}
        else:
            named = {name: kind.scale for name, kind in built_ins().items() if isinstance(kind.scale, Scale)}
        scale = named.get(metric) or named.get(own_name(metric))
        if scale is None:
            raise ConfigurationError(
                f"the scale of {metric!r} is not known: say --config spanscore.yaml, or write true and false"
            )
        return scale

    return scale


def _has_passed(file: Path, sample: AnnotatedSample, scale: Callable[[], Scale]) -> bool:
    try:
        return passes(sample.human, UNIT_INTERVAL if isinstance(sample.human, bool | str) else scale())
    except ConfigurationError as error:
        raise ConfigurationError(f"{file}: line {sample.line}: {error}") from error


def _evaluator_versions(verdicts: JudgeVerdicts, wanted: str | None) -> str:
    """Return the one evaluator version of which verdicts are taken.

    Raises:
        ConfigurationError: there are several, and none was asked for; or none of it.
    """
    counts = Counter(verdict.evaluator_version for verdict in verdicts.labelled if verdict is not None)
    if wanted is not None and wanted not in counts:
        raise ConfigurationError(
            f"no label has a verdict of evaluator version {wanted!r}; there are: {_format_counts(counts)}"
        )
    if wanted is None and len(counts) > 1:
        raise ConfigurationError(
            f"the verdicts are of several evaluator versions, choose one with --evaluator-version: {_format_counts(counts)}"
        )
    return next(iter(counts), "") if wanted is None else wanted


def _format_counts(counts: Counter[str]) -> str:
    return (
        ", ".join(
            f"{printable(evaluator_version) or 'not known'} ({count})"
            for evaluator_version, count in counts.most_common()
        )
        or "none"
    )


def _how_to_judge(file: Path, metric: str, samples: Sequence[AnnotatedSample]) -> str:
    message = f"none of the {len(samples)} labels has a verdict of {metric!r}. "
    if not any(sample.sample is not None for sample in samples):
        return message + (
            "Give the spans that carry its scores, and trace_id and span_id in each line: "
            f"spanscore calibrate {file} --metric {metric} --scores spans.jsonl"
        )
    return message + (
        f"Let the judge say it:\nspanscore evaluate {file} --config spanscore.yaml --metrics {metric} --out scores.jsonl\n"
        f"spanscore calibrate {file} --metric {metric} --scores scores.jsonl"
    )


def _write_calibration(run: _CalibrateRun, out: Path | None) -> Path | None:
    """Write the file, and return where; None where no evaluator version is known, of which alone it would hold."""
    if not run.evaluator_version:
        if out is not None:
            raise ConfigurationError(
                "the verdicts tell no evaluator version, of which alone a file would hold: give --scores, or "
                "an evaluator_version with each score"
            )
        return None
    saved = SavedCalibration(run.metric, run.evaluator_version, run.calibration)
    path = out or Path(saved.file_name)
    with writing(path):
        path.write_text(saved.text, encoding="utf-8")
    return path


def _parts(run: _CalibrateRun, path: Path | None) -> Iterator[TextTable | Text]:
    of = run.calibration
    yield Text(f"{run.metric}: {of.labels:,} labels, humans passed {of.human_passed:,} and failed {of.human_failed:,}")
    counts = [
        ("judge passed", f"{of.true_pass.n:,}", f"{of.false_pass.n:,}"),
        ("judge failed", f"{of.false_fail.n:,}", f"{of.true_fail.n:,}"),
    ]
    yield TextTable(("", "humans passed", "humans failed"), counts)
    rows = [
        (_QUALITIES[name], f"{interval.value:.2f}", f"{interval.low:.2f} to {interval.high:.2f}")
        for name, interval in _qualities(of).items()
    ]
    yield TextTable(("the judge", "", "95 % interval"), rows)
    if run.window is not None:
        rows = [
            (_RATES[name], f"{interval.value:.3f}", f"{interval.low:.3f} to {interval.high:.3f}")
            for name, interval in run.rates.items()
        ]
        yield TextTable(("", "pass rate", "95 % interval"), rows, title=f"the {run.window.n:,.0f} units that it judged")
    for note in _notes(run):
        yield Text(f"– {note}")
    if path is not None:
        yield Text(f"\nwritten to {path}; for the configuration:\nmonitoring: {{calibrations: [{path}]}}")


_QUALITIES = {
    "sensitivity": "sensitivity: of what humans pass, it passes",
    "specificity": "specificity: of what humans fail, it fails",
    "informedness": "J, sensitivity + specificity − 1",
    "kappa": "Cohen's κ",
}
_RATES = {
    "fresh": "by the labels, which are of this window (PPI++)",
    "corrected": "corrected by sensitivity and specificity",
    "raw": "raw: as the judge says",
}


def _qualities(of: Calibration) -> dict[str, Estimated]:
    return {name: getattr(of, name) for name in _QUALITIES}


def _notes(run: _CalibrateRun) -> Iterator[str]:
    of = run.calibration
    if of.assumed_random:
        yield "no label tells with which probability it was drawn: they are assumed to be a random part of what was judged"
    else:
        yield "each label counts by the probability with which it was drawn"
    yield from run.facts.notes()
    if run.left_out:
        yield f"{run.left_out} labels have no verdict of the judge and are left out"
    if run.shared:
        ties = f"; {run.tied} such units are a tie and left out" if run.tied else ""
        yield f"{run.shared} labels are of units that have several: what most say of a unit is one label{ties}"
    yield f"a true drop of the pass rate shows as {of.informedness.value:.2f} × the drop"
    if not run.evaluator_version:
        yield "the verdicts tell no evaluator version, of which alone a file would hold: none is written"


def _as_json(run: _CalibrateRun, path: Path | None) -> dict[str, Any]:
    of = run.calibration
    return {
        "metric": run.metric,
        "evaluator_version": run.evaluator_version or None,
        "labels": {
            "passed": of.human_passed,
            "failed": of.human_failed,
            "left_out": run.left_out,
            "tied": run.tied,
        },
        **run.facts.as_json(),
        "counts": {name: getattr(of, name).n for name in ("true_pass", "false_fail", "false_pass", "true_fail")},
        "assumed_random": of.assumed_random,
        **{name: interval._asdict() for name, interval in _qualities(of).items()},
        "window": None
        if run.window is None
        else {"units": run.window.n, **{name: interval._asdict() for name, interval in run.rates.items()}},
        "file": None if path is None else str(path),
    }
