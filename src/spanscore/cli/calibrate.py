"""``spanscore calibrate``: measures a judge against human labels, and corrects its pass rate accordingly."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import typer
from rich.text import Text

from spanscore.cli._config_report import valid
from spanscore.cli._options import refuse_overwriting
from spanscore.config.kinds import share_in
from spanscore.core.codecs.annotation_file import needs_scale, passes, read_annotations, select_name
from spanscore.core.codecs.otlp import stored_spans
from spanscore.core.codecs.stored_sample import content_hash
from spanscore.core.codecs.text import json_in
from spanscore.core.printable import TextTable, format_count, names_listed, printable
from spanscore.core.sample import AnnotatedSample, Annotation, HumanValue, JudgeResult
from spanscore.core.score import UNIT_INTERVAL, Scale
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError, writing
from spanscore.metrics.catalog.registry import built_ins, own_name
from spanscore.metrics.kit.tuned_prompts import Paired
from spanscore.monitoring.calibration import (
    LEAST_SHARED,
    NO_ERROR,
    Agreement,
    AnnotatedPair,
    AnnotatorError,
    Calibration,
    Estimated,
    SavedCalibration,
    agreement_of,
)
from spanscore.monitoring.estimates import Moments, interval, mean, moments
from spanscore.report.excerpts import human_labels_of
from spanscore.report.rows import ReportRow, unit_name
from spanscore.report.spans import Spans
from spanscore.semconv import ANNOTATOR_HUMAN
from spanscore.stored.evaluation_result import Row, read_rows, row_key

_DAY_S = 86_400.0
_RowT = TypeVar("_RowT", Row, ReportRow)
_QUALITY_TITLES = {
    "sensitivity": "sensitivity: share that the judge passes, of those humans pass",
    "specificity": "specificity: share that the judge fails, of those humans fail",
    "informedness": "J, sensitivity + specificity − 1",
    "kappa": "Cohen's κ",
}
_RATE_TITLES = {
    "fresh": "estimated from labels of this window (PPI++)",
    "corrected": "corrected by sensitivity and specificity",
    "raw": "raw: the judge's own",
}


def _error_rate_in(text: str) -> float:
    """Return the rate of ``--annotator-error``, [0, .5): a number, or a percentage."""
    try:
        rate = float(share_in(text))
    except ValueError:
        rate = -1.0
    if not 0.0 <= rate < 0.5:  # noqa: PLR2004  (0.5 is the error rate of a coin)
        raise typer.BadParameter(f"{text!r} is not an error rate; allowed is 0 or more, below 0.5, such as 0.05 or 5%")
    return rate


def calibrate(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="LABELS.jsonl|SPANS.jsonl",
            help='Samples with a human verdict, one a line: {"human": true, "user_input": …, "response": …}; the '
            "annotations of ragas; or spans (OTLP-JSON lines) with labels and scores of the same units.",
        ),
    ],
    metric: Annotated[str, typer.Option("--metric", "-m", help="The metric to calibrate, by the name of its scores.")],
    scores: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The judge's verdicts, if the lines have no scores: rows of spanscore evaluate --out, matched by sample; "
            "or spans with scores (OTLP-JSON lines), matched by trace_id and span_id. The printed pass rate is then "
            "that of all rows in this FILE, not only of the labelled ones.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="A spanscore.yaml with the metric's scale; needed if humans gave numbers and it is no built-in."
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(help="Only labels of this name, if the file has several names.")] = None,
    evaluator_version: Annotated[
        str | None, typer.Option(help="Only verdicts of this evaluator version, if there are several versions.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Verdicts of another evaluator version on the same samples, such as without bundle: rows of spanscore "
            "evaluate --out, or spans with scores. The output then shows which of the two versions is right more often.",
        ),
    ] = None,
    annotator_error: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            parser=_error_rate_in,
            help="How often one annotator is wrong, below 0.5. Default: measured on units with labels of two or more "
            f"named annotators, if there are {LEAST_SHARED} such units; otherwise labels count as right.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file to write. Default: calibration-METRIC-VERSION.json in this folder."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Compare a judge with human labels: how often it is right, and the pass rate corrected for its errors.

    [bold]spanscore evaluate labels.jsonl --config spanscore.yaml -m faithfulness --out scores.jsonl[/bold], then
    [bold]spanscore calibrate labels.jsonl -m faithfulness --scores scores.jsonl[/bold]. For live traffic use [bold]--scores
    spans.jsonl[/bold], and labels with trace_id and span_id.

    The file that it writes is for [bold]monitoring: {calibrations: [FILE]}[/bold] and [bold]spanscore report --calibration
    FILE[/bold], which correct the pass rate of that evaluator version only. The command refuses fewer than 5 samples that
    humans passed, fewer than 5 that humans failed, and a judge that hardly separates the two.
    """
    refuse_overwriting(out, file, scores, config, against)
    scale = scale_of(metric, config)
    if holds_spans(file):
        samples, scores = _read_labels_on_spans(file, label), scores or file
    else:
        samples = read_annotations(file, metric=metric, name=label)
    if scores is None:
        verdicts = JudgeVerdicts(tuple(verdict_in_line(sample.judged.get(metric), scale) for sample in samples))
    else:
        verdicts = _read_verdicts(scores, samples, metric)
    verdicts = verdicts.of_version(evaluator_version)
    result = calibrate_judge(file, metric, samples, verdicts, scale, annotator_error)
    if against is not None:
        others = _read_verdicts(against, samples, metric).of_version()
        result = replace(result, compared=_compare(file, samples, verdicts, others, scale))
    path = _write_calibration(result, out)
    if as_json:
        typer.echo(json.dumps(_as_json(result, path), indent=2))
        return
    console = Terminal(highlight=False, markup=False)
    for part in _render_result(result, path):
        console.print(part, soft_wrap=isinstance(part, Text))


# --- verdicts -------------------------------------------------------------------------------------------------------


class JudgeVerdict(NamedTuple):
    """The judge's verdict on one sample.

    Attributes:
        evaluator_version: version of the judge; empty = unknown.
        weight: 1 / the probability with which the sample was chosen for the judge.
    """

    passed: bool
    evaluator_version: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class JudgeVerdicts:
    """The verdicts of a judge, on the labelled samples and on all samples of the same time.

    Attributes:
        labelled: verdict on each labelled sample, in the order of the samples; None = no verdict.
        window: verdicts on all samples of the labels' time, labelled or not; empty = unknown.
    """

    labelled: tuple[JudgeVerdict | None, ...]
    window: tuple[JudgeVerdict, ...] = ()

    def of_version(self, wanted: str | None = None) -> JudgeVerdicts:
        """Return the verdicts of one evaluator version; ``wanted``: None = the only version."""
        version = self._choose_version(wanted)
        labelled = (verdict if verdict and verdict.evaluator_version == version else None for verdict in self.labelled)
        return JudgeVerdicts(tuple(labelled), tuple(own for own in self.window if own.evaluator_version == version))

    def _choose_version(self, wanted: str | None) -> str:
        counts = Counter(verdict.evaluator_version for verdict in self.labelled if verdict is not None)
        listed = ", ".join(f"{printable(version) or 'unknown'} ({count})" for version, count in counts.most_common())
        if wanted is not None and wanted not in counts:
            raise ConfigurationError(
                f"no label has a verdict of evaluator version {wanted!r}; there are: {listed or 'none'}"
            )
        if wanted is None and len(counts) > 1:
            raise ConfigurationError(
                f"the verdicts are of several evaluator versions, choose one with --evaluator-version: {listed}"
            )
        return next(iter(counts), "") if wanted is None else wanted


def holds_spans(path: Path) -> bool:
    """Return whether a file holds OTLP-JSON lines; rows and labels do not."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            first = json_in(next((line for line in lines if line.strip()), "null"))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError:
        return False  # CSV rows are not JSON
    return isinstance(first, dict) and "resourceSpans" in first


def _read_labels_on_spans(path: Path, name: str | None) -> list[AnnotatedSample]:
    """Return the labels of units in a file of label spans: the last label of each annotator.

    A label with a quality of 0.5 or more passes. A label without a scale has no quality and is left out.
    """
    with stored_spans(str(path)) as spans:
        labels = [(unit, label) for unit, own in human_labels_of(Spans.read(spans)).items() for label in own]
    samples = []
    for line, (unit, label) in enumerate(labels, 1):
        if label.quality is not None:
            passed, trace = label.quality >= UNIT_INTERVAL.pass_at, unit.partition("/")[0]
            label = replace(label, value=passed)  # noqa: PLW2901
            samples.append(AnnotatedSample(line=line, sample=None, human=passed, judged={}, group=trace, label=label))
    if not samples:
        raise ConfigurationError(f"{path} holds no labels: give a file of labels, and this one as --scores")
    return select_name(samples, name, path)


def verdict_in_line(judged: JudgeResult | None, scale: Callable[[], Scale]) -> JudgeVerdict | None:
    """Return the verdict in a line of a file of labels; None if it has none.

    ``scale`` returns the metric's scale. It is called only for a value without a label, and may raise.
    """
    if judged is None:
        return None
    label = judged.label
    if label is None and judged.value is not None:
        own_scale = scale()
        if own_scale.categories and not own_scale.has_quality:
            raise ConfigurationError(
                "the metric's categories have no quality, so none passes or fails: name the bad ones in bad="
            )
        label = own_scale.label(own_scale.quality(judged.value))
    if label is None:
        return None
    return JudgeVerdict(label == "pass", judged.evaluator_version, 1.0 / (judged.probability or 1.0))


def _read_verdicts(path: Path, samples: Sequence[AnnotatedSample], metric: str) -> JudgeVerdicts:
    read = _read_verdicts_on_spans if holds_spans(path) else _read_verdicts_in_rows
    return read(path, samples, metric)


def _read_verdicts_in_rows(path: Path, samples: Sequence[AnnotatedSample], metric: str) -> JudgeVerdicts:
    """Return the verdicts in rows of ``spanscore evaluate --out``, matched by the content of the samples."""
    rows = _select_verdicts(path, metric, (row for row in read_rows(path) if row.source is None))
    by_key = {row.key: JudgeVerdict(row.label == "pass", row.evaluator_version) for row in rows}
    versions = {row.evaluator_version for row in rows}
    repetitions: Counter[str] = Counter()  # content of a sample → number of earlier samples with it
    labelled: list[JudgeVerdict | None] = []
    for sample in samples:
        if sample.sample is None:
            labelled.append(None)
            continue
        content = content_hash(sample.sample)
        keys = (row_key(content, repetitions[content], metric, version) for version in versions)
        labelled.append(next((by_key[key] for key in keys if key in by_key), None))
        repetitions[content] += 1
    return JudgeVerdicts(tuple(labelled), tuple(by_key.values()))


def _read_verdicts_on_spans(path: Path, samples: Sequence[AnnotatedSample], metric: str) -> JudgeVerdicts:
    """Return the verdicts on spans with scores, matched by ``trace_id`` and ``span_id``."""
    with stored_spans(str(path)) as spans:
        rows = _select_verdicts(path, metric, Spans.read(spans).rows())
    by_unit = {row.unit: JudgeVerdict(row.label == "pass", row.evaluator_version or "", row.weight) for row in rows}
    units = (None if sample.label is None else sample.label.unit for sample in samples)
    labelled = (None if unit is None else by_unit.get(unit_name(unit)) for unit in units)
    return JudgeVerdicts(tuple(labelled), tuple(by_unit.values()))


def _select_verdicts(path: Path, metric: str, rows: Iterable[_RowT]) -> list[_RowT]:
    judged = [row for row in rows if row.label]
    of_metric = [row for row in judged if row.metric == metric]
    if not of_metric:
        names = names_listed(sorted({row.metric for row in judged})) or "none at all"
        raise ConfigurationError(f"{path} holds no verdict of {metric!r}; it has {names}")
    return of_metric


# --- calibration ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AnnotationFacts:
    """Age and annotators of labels.

    Attributes:
        times: time of each label that has one.
        timeless: number of labels without a time.
        unnamed: number of labels without an annotator's name.
        agreement: agreement of named annotators on the same units.
        error: error rate of one annotator; None = unknown, and labels count as right.
        measured: whether ``error`` was computed from the agreement.
    """

    times: tuple[datetime, ...]
    timeless: int
    unnamed: int
    agreement: Agreement
    error: AnnotatorError | None
    measured: bool

    def notes(self) -> Iterator[str]:
        """Yield one sentence each on age, agreement and error."""
        if self.times:
            now, ends = datetime.now(UTC), (min(self.times), max(self.times))
            oldest, newest = (f"{max(0.0, (now - end).total_seconds()) / _DAY_S:,.0f} days old" for end in ends)
            rest = f"; the age of {self.timeless:,} labels is unknown" if self.timeless else ""
            yield f"labels are from {ends[0]:%Y-%m-%d}, {oldest}, to {ends[1]:%Y-%m-%d}, {newest}{rest}"
        else:
            yield "the age of the labels is unknown: no label has a time (when)"
        share, units, error = self.agreement.share, self.agreement.units, self.error
        unnamed = f"; the annotator of {self.unnamed:,} labels is unknown" if self.unnamed else ""
        if share is None:
            yield f"how far annotators agree is unknown: no unit has labels of two named annotators{unnamed}"
        else:
            yield f"annotators agree on {100 * share:.0f} % of the {units:,} units that two or more labelled{unnamed}"
        if error is None:
            yield "how often an annotator is wrong is unknown: labels count as right; --annotator-error RATE corrects for it"
        else:
            source = f"measured on {units:,} units" if self.measured else "as given"
            yield f"one annotator is wrong in {100 * error.rate:.1f} % ({source}): J, κ and pass rates are corrected for it"

    def as_json(self) -> dict[str, Any]:
        """Return the values as JSON types; None = unknown."""
        return {
            "age": {
                "oldest": min(self.times).isoformat() if self.times else None,
                "newest": max(self.times).isoformat() if self.times else None,
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


def _collect_facts(
    labels: Sequence[Annotation | None],
    units: Sequence[object],
    pairs: Sequence[AnnotatedPair],
    error_rate: float | None,
) -> AnnotationFacts:
    """Return age and annotators of labels, for a line each: its annotation, its unit, and both verdicts.

    ``error_rate`` is that of one annotator; None = it is measured, if enough units have several annotators.
    """
    times: list[datetime] = []
    named: defaultdict[object, list[bool]] = defaultdict(list)
    for label, unit, pair in zip(labels, units, pairs, strict=True):
        if label is not None and label.when_ns is not None:
            with suppress(OverflowError, ValueError, OSError):  # not a date
                times.append(datetime.fromtimestamp(label.when_ns / 1e9, UTC))
        if label is not None and label.annotator != ANNOTATOR_HUMAN:  # the default name stands for any person
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


@dataclass(frozen=True, slots=True)
class _VersionComparison:
    """Two evaluator versions on the same labels.

    Attributes:
        evaluator_version: evaluator version of the other verdicts.
        paired: counts of the labels that both versions judged; ``before`` is how many the other version got right.
    """

    evaluator_version: str
    paired: Paired

    @property
    def p(self) -> float:
        """The p of McNemar's exact two-sided test, over the labels on which exactly one of the two versions is right."""
        reverse = self.paired._replace(gained=self.paired.lost, lost=self.paired.gained)
        return min(1.0, 2 * min(self.paired.p, reverse.p))

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON types."""
        return {"evaluator_version": self.evaluator_version, **self.paired._asdict(), "p": self.p}

    def __str__(self) -> str:
        paired = self.paired
        other = printable(self.evaluator_version) or "the other version"
        return (
            f"right on {paired.after} of {paired.labels} labels, and {other} on {paired.before}. "
            f"{paired.gained} labels only this version gets right, {paired.lost} only the other (McNemar, p = {self.p:.2g})"
        )


def _compare(
    file: Path,
    samples: Sequence[AnnotatedSample],
    verdicts: JudgeVerdicts,
    others: JudgeVerdicts,
    scale: Callable[[], Scale],
) -> _VersionComparison:
    """Return how two evaluator versions agree with the labels that both versions judged; a unit counts by its first label."""
    right: dict[object, tuple[bool, bool]] = {}
    for sample, verdict, other in zip(samples, verdicts.labelled, others.labelled, strict=True):
        if verdict is not None and other is not None:
            human = has_passed(file, sample, scale)
            right.setdefault(_labelled_unit(sample), (other.passed == human, verdict.passed == human))
    if not right:
        raise ConfigurationError("no label has a verdict of both evaluator versions: score the same file with both")
    version = next(other.evaluator_version for other in others.labelled if other is not None)
    return _VersionComparison(version, Paired.of(*zip(*right.values(), strict=True)))


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    """The calibration of a judge, from labels and verdicts.

    Attributes:
        evaluator_version: version of the judge; empty = unknown.
        window: sums of all verdicts, 1 = passed; None if only verdicts on labelled samples are known.
        left_out: number of labels without a verdict.
        shared: number of labels on units with several labels; the majority of a unit's annotators counts as one label.
        tied: number of units without a majority, which are left out.
        compared: another evaluator version on the same labels; None = no other version is given.
    """

    metric: str
    evaluator_version: str
    calibration: Calibration
    window: Moments | None
    left_out: int
    shared: int
    tied: int
    facts: AnnotationFacts
    compared: _VersionComparison | None = None

    @property
    def rates(self) -> dict[str, Estimated]:
        """The pass rate of the window by each method, the best method first; empty without a window."""
        if self.window is None:
            return {}
        raw = Estimated(mean(self.window), *interval(self.window))
        calibration = self.calibration
        return {"fresh": calibration.fresh(self.window), "corrected": calibration.corrected(self.window), "raw": raw}

    @property
    def qualities(self) -> dict[str, Estimated]:
        """The judge's qualities by name."""
        return {name: getattr(self.calibration, name) for name in _QUALITY_TITLES}


def _refuse_chosen_labels(file: Path, samples: Sequence[AnnotatedSample]) -> None:
    if chosen := sum(not sample.representative for sample in samples):
        labels = f"{format_count(chosen, 'label')} of {file} {'is' if chosen == 1 else 'are'}"
        raise ConfigurationError(
            f'{labels} of cases that were chosen for their verdicts ("representative": false), '
            "so the file estimates no pass rate: label cases of --pick random or informative"
        )


def calibrate_judge(
    file: Path,
    metric: str,
    samples: Sequence[AnnotatedSample],
    verdicts: JudgeVerdicts,
    scale: Callable[[], Scale],
    error_rate: float | None,
) -> CalibrationResult:
    """Return the calibration of a judge from labels.

    Args:
        file: file of the labels, for error messages.
        verdicts: verdicts of one evaluator version.
        error_rate: as in ``_collect_facts``.

    Raises:
        ConfigurationError: no label has a verdict, the labels are too few for a correction, or some are of samples that were
            chosen for their verdicts.
    """
    _refuse_chosen_labels(file, samples)
    judged = [(sample, verdict) for sample, verdict in zip(samples, verdicts.labelled, strict=True) if verdict]
    if not judged:
        raise ConfigurationError(_explain_no_verdict(file, metric, samples))
    pairs, units = [], []
    by_unit: defaultdict[object, list[AnnotatedPair]] = defaultdict(list)
    for sample, verdict in judged:
        human = has_passed(file, sample, scale)
        pairs.append(AnnotatedPair(human, verdict.passed, sample.probability, verdict.weight))
        units.append(_labelled_unit(sample))
        by_unit[units[-1]].append(pairs[-1])
    facts = _collect_facts([sample.label for sample, _ in judged], units, pairs, error_rate)
    agreed, error = _majorities(by_unit.values(), facts.error)
    window = moments((float(verdict.passed), 1.0 / verdict.weight) for verdict in verdicts.window)
    return CalibrationResult(
        metric=metric,
        evaluator_version=judged[0][1].evaluator_version,
        calibration=Calibration.of(agreed, error),
        window=window if window.n > len(by_unit) else None,  # with a label on each unit there is nothing to estimate
        left_out=len(samples) - len(judged),
        shared=sum(len(of_unit) for of_unit in by_unit.values() if len(of_unit) > 1),
        tied=len(by_unit) - len(agreed),
        facts=facts,
    )


def _majorities(
    units: Iterable[Sequence[AnnotatedPair]], error: AnnotatorError | None
) -> tuple[list[AnnotatedPair], AnnotatorError]:
    """Return one label per unit, by the majority of its annotators, and the error rate of these majorities.

    A unit with a tie gets no label. If each label counted, the number of units would be overstated.
    """
    agreed, majorities = [], []
    for pairs in units:
        balance = sum(1 if pair.human else -1 for pair in pairs)
        if balance:
            agreed.append(pairs[0]._replace(human=balance > 0))
            majorities.append(abs(balance))
    return agreed, NO_ERROR if error is None or not majorities else error.of_majorities(majorities)


def _labelled_unit(sample: AnnotatedSample) -> object:
    """Return the unit of a label, which several annotators may share; without a unit, the line number."""
    label = sample.label
    return sample.line if label is None or (label.unit is None and label.key is None) else (label.unit, label.key)


def scale_of(metric: str, config: Path | None) -> Callable[[], Scale]:
    """Return a function that looks up a metric's scale. true, false and the labels pass and fail need no scale."""

    @cache
    def scale() -> Scale:
        scale = getattr(look_up_metric(metric, config), "scale", None)
        if not isinstance(scale, Scale):
            raise ConfigurationError(
                f"the scale of {metric!r} is not known: add --config spanscore.yaml, or write true and false"
            )
        return scale

    return scale


def look_up_metric(metric: str, config: Path | None) -> Any:
    """Return the metric of a configuration, without one the class of a built-in metric; None if there is no such metric."""
    metrics: Mapping[str, Any] = built_ins() if config is None else valid(config).by_name
    return metrics.get(metric) or metrics.get(own_name(metric))


def has_passed(file: Path, sample: AnnotatedSample, scale: Callable[[], Scale]) -> bool:
    """Return whether the human passed a sample; a value that is not on the metric's scale is an error with its line."""
    try:
        return passes(sample.human, _scale_for(sample.human, scale))
    except ConfigurationError as error:
        raise ConfigurationError(f"{file}: line {sample.line}: {error}") from error


def _scale_for(human: HumanValue, scale: Callable[[], Scale]) -> Scale:
    """Return the scale on which a human's value passes; the words pass and fail need no known scale."""
    if isinstance(human, bool):
        return UNIT_INTERVAL
    try:
        return scale()
    except ConfigurationError:
        if needs_scale(human):
            raise
        return UNIT_INTERVAL


def _explain_no_verdict(file: Path, metric: str, samples: Sequence[AnnotatedSample]) -> str:
    message = f"none of the {len(samples)} labels has a verdict of {metric!r}. "
    if not any(sample.sample is not None for sample in samples):
        return message + (
            "Give the spans that carry its scores, and trace_id and span_id in each line: "
            f"spanscore calibrate {file} --metric {metric} --scores spans.jsonl"
        )
    return message + (
        f"Let the judge score them:\nspanscore evaluate {file} --config spanscore.yaml --metrics {metric} --out scores.jsonl\n"
        f"spanscore calibrate {file} --metric {metric} --scores scores.jsonl"
    )


def _write_calibration(result: CalibrationResult, out: Path | None) -> Path | None:
    """Write the calibration and return its path; None without an evaluator version, which a file must have."""
    if not result.evaluator_version:
        if out is not None:
            raise ConfigurationError(
                "the verdicts have no evaluator version, which the file needs: give --scores, or "
                "an evaluator_version with each score"
            )
        return None
    saved = SavedCalibration(result.metric, result.evaluator_version, result.calibration)
    path = out or Path(saved.file_name)
    with writing(path):
        path.write_text(saved.text, encoding="utf-8")
    return path


def _render_result(result: CalibrationResult, path: Path | None) -> Iterator[TextTable | Text]:
    calibration = result.calibration
    passed, failed = f"humans passed {calibration.human_passed:,}", f"failed {calibration.human_failed:,}"
    yield Text(f"{result.metric}: {calibration.labels:,} labels, {passed} and {failed}")
    counts = [
        ("judge passed", f"{calibration.true_pass.n:,}", f"{calibration.false_pass.n:,}"),
        ("judge failed", f"{calibration.false_fail.n:,}", f"{calibration.true_fail.n:,}"),
    ]
    yield TextTable(("", "humans passed", "humans failed"), counts)
    rows = [
        (_QUALITY_TITLES[name], f"{interval.value:.2f}", f"{interval.low:.2f} to {interval.high:.2f}")
        for name, interval in result.qualities.items()
    ]
    yield TextTable(("the judge", "", "95 % interval"), rows)
    if result.compared is not None:
        yield Text(f"{printable(result.evaluator_version) or 'this version'} is {result.compared}")
    if result.window is not None:
        rows = [
            (_RATE_TITLES[name], f"{interval.value:.3f}", f"{interval.low:.3f} to {interval.high:.3f}")
            for name, interval in result.rates.items()
        ]
        yield TextTable(
            ("", "pass rate", "95 % interval"), rows, title=f"the {result.window.n:,.0f} units that it judged"
        )
    for note in _result_notes(result):
        yield Text(f"– {note}")
    if path is not None:
        yield Text(f"\nwritten to {path}; for the configuration:\nmonitoring: {{calibrations: [{path}]}}")


def _result_notes(result: CalibrationResult) -> Iterator[str]:
    calibration = result.calibration
    if calibration.assumed_random:
        yield "no label has its sampling probability: labels are assumed to be a random part of the judged units"
    else:
        yield "each label counts by its sampling probability"
    yield from result.facts.notes()
    if result.left_out:
        yield f"{result.left_out} labels have no verdict of the judge and are left out"
    if result.shared:
        ties = f"; {result.tied} such units are a tie and left out" if result.tied else ""
        yield f"{result.shared} labels share units with others: the majority of a unit counts as one label{ties}"
    yield f"a true drop of the pass rate shows as {calibration.informedness.value:.2f} × the drop"
    if not result.evaluator_version:
        yield "the verdicts have no evaluator version, which a file needs: no file is written"


def _as_json(result: CalibrationResult, path: Path | None) -> dict[str, Any]:
    calibration = result.calibration
    return {
        "metric": result.metric,
        "evaluator_version": result.evaluator_version or None,
        "labels": {
            "passed": calibration.human_passed,
            "failed": calibration.human_failed,
            "left_out": result.left_out,
            "tied": result.tied,
        },
        **result.facts.as_json(),
        "counts": {
            name: getattr(calibration, name).n for name in ("true_pass", "false_fail", "false_pass", "true_fail")
        },
        "assumed_random": calibration.assumed_random,
        **{name: interval._asdict() for name, interval in result.qualities.items()},
        "window": None
        if result.window is None
        else {"units": result.window.n, **{name: interval._asdict() for name, interval in result.rates.items()}},
        "against": None if result.compared is None else result.compared.as_json(),
        "file": None if path is None else str(path),
    }
