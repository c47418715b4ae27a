"""``spanscore calibrate``: labels and what the judge said → how good the judge is, and what its pass rate really is."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from spanscore.cli._annotation_facts import AnnotationFacts, annotation_facts, error_rate_in
from spanscore.cli._config_report import valid
from spanscore.cli._verdicts import (
    JudgeVerdicts,
    annotated_on_spans,
    holds_spans,
    verdicts_in_lines,
    verdicts_in_scores,
)
from spanscore.core.codecs.annotation_file import passes, read_annotations
from spanscore.core.printable import Fitting, printable
from spanscore.core.sample import AnnotatedSample
from spanscore.core.score import UNIT_INTERVAL, Scale
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError, writing
from spanscore.metrics.catalog.registry import built_ins, own_name
from spanscore.monitoring.calibration import LEAST_SHARED, AnnotatedPair, Calibration, Estimated, SavedCalibration
from spanscore.monitoring.estimates import Moments, interval, mean, moments

__all__ = ["calibrate"]


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


def _parts(run: _CalibrateRun, path: Path | None) -> Iterator[Fitting | Text]:
    of = run.calibration
    yield Text(f"{run.metric}: {of.labels:,} labels, humans passed {of.human_passed:,} and failed {of.human_failed:,}")
    counts = [
        ("judge passed", f"{of.true_pass.n:,}", f"{of.false_pass.n:,}"),
        ("judge failed", f"{of.false_fail.n:,}", f"{of.true_fail.n:,}"),
    ]
    yield Fitting(("", "humans passed", "humans failed"), counts)
    rows = [
        (_QUALITIES[name], f"{interval.value:.2f}", f"{interval.low:.2f} to {interval.high:.2f}")
        for name, interval in _qualities(of).items()
    ]
    yield Fitting(("the judge", "", "95 % interval"), rows)
    if run.window is not None:
        rows = [
            (_RATES[name], f"{interval.value:.3f}", f"{interval.low:.3f} to {interval.high:.3f}")
            for name, interval in run.rates.items()
        ]
        yield Fitting(("", "pass rate", "95 % interval"), rows, title=f"the {run.window.n:,.0f} units that it judged")
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
