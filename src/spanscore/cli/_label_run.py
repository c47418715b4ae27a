"""Run of ``spanscore annotations label``: reads the cases, draws some, serves the page and prints a summary of the labels."""

from __future__ import annotations

import json
import re
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any

import typer

from spanscore.cli._options import refuse_overwriting, refuse_unwritable
from spanscore.cli._stored_traces import read_stored_cases
from spanscore.cli.calibrate import (
    JudgeVerdict,
    JudgeVerdicts,
    calibrate_judge,
    has_passed,
    holds_spans,
    look_up_metric,
    scale_of,
    verdict_in_line,
)
from spanscore.core.printable import format_count, names_listed, printable
from spanscore.core.sample import AnnotatedSample
from spanscore.core.score import UNIT_INTERVAL, Scale
from spanscore.core.terminal import Terminal
from spanscore.errors import ConfigurationError
from spanscore.metrics.catalog.registry import metric_doc_of
from spanscore.monitoring.calibration import labels_needed
from spanscore.report import jinja2_page
from spanscore.service.label_page import LabelPage
from spanscore.stored.label_cases import LabelCase, LabelDraw, draw_labels, read_cases
from spanscore.stored.labelling import LabelFile, LabelSession, case_key, choices_of
from spanscore.stored.trace_stores import TraceSource
from spanscore.stored.unit_reading import CaseCounts, reading_settings

if TYPE_CHECKING:
    from spanscore.cli.annotations import AnnotationsOptions

_REVIEW = "review"
"""Name of labels without a metric, and the ending of their name with a metric."""


@dataclass(frozen=True, slots=True)
class LabelRun:
    """One run of ``spanscore annotations label``."""

    options: AnnotationsOptions

    def run(self) -> None:
        """Serve the page until the person finishes, or Ctrl-C; then print the summary of the labels."""
        terminal = Terminal(stderr=True, highlight=False, markup=False)
        cases, notes = self._read()
        metric = self.options.metric or _metric_of_scores(self.options.file, cases)
        scale, scale_notes = self._scale(metric)
        judged, case_notes = _select_cases(cases, metric, scale)
        name = f"{metric}_{_REVIEW}" if metric else _REVIEW
        pick = self.options.pick
        stem = (metric or _REVIEW) + ("" if pick.is_representative else f"-{pick.value}")
        out = self.options.out or Path(f"labels-{re.sub(r'[^A-Za-z0-9_.-]+', '-', stem)}.jsonl")
        refuse_unwritable(out)
        refuse_overwriting(out, self.options.file)
        draw = draw_labels(judged, pick, metric=metric, number=self.options.count, seed=self.options.seed)
        label_file = LabelFile(out, name, self.options.annotator, time_ns)
        target = self.options.target
        labels = LabelSummary(file=label_file, metric=metric, scale=scale, draw=draw, judged=judged, target=target)
        session = LabelSession(draw, label_file, choices_of(scale), metric=metric, summarize=lambda: [*labels.lines()])
        page = LabelPage(session, self._renderer(metric, out), self.options.port)
        for note in (*notes, *scale_notes, *case_notes):
            terminal.print_line(note)
        terminal.print_line(
            f"{format_count(len(draw.cases), 'case')} to label; Ctrl-C or 'finish' on the page ends the command"
        )
        typer.echo(page.url)
        if self.options.browser:
            webbrowser.open(page.url)
        try:
            page.serve()
        except KeyboardInterrupt:
            terminal.print_line("")
        lines = session.finish()
        if self.options.as_json:
            typer.echo(json.dumps(labels.as_json(), indent=2))
            return
        for line in lines:
            Terminal(highlight=False, markup=False).print_line(line)

    def _read(self) -> tuple[list[LabelCase], list[str]]:
        """Return the cases of the file, and notes on its unusable parts."""
        if self.options.file.is_dir() or holds_spans(self.options.file):
            source, counts = TraceSource.of(str(self.options.file), "", ""), CaseCounts()
            collected = read_stored_cases(source, reading_settings(self.options.config), (), counts)
            cases = [LabelCase.of(case.record(), case.sample, case.id) for case in collected]
            reasons = (counts.without_content + counts.unusable).items()
            notes = [f"{format_count(units, 'unit')} cannot be labelled: {reason}" for reason, units in reasons]
            notes += source.describe_unread()
            empty = "; ".join(notes) or source.describe_emptiness()
        else:
            cases, bad = read_cases(self.options.file)
            notes = (
                [f"{self.options.file}: {format_count(len(bad), 'line')} without a sample, the first is {bad[0]}"]
                if bad
                else []
            )
            empty = (
                f"{self.options.file} has no cases: make some with 'spanscore collect SOURCE --out {self.options.file}'"
            )
        if not cases:
            raise ConfigurationError(empty)
        return cases, notes

    def _scale(self, metric: str) -> tuple[Scale, list[str]]:
        """Return the metric's scale, and a note if it is unknown."""
        if not metric:
            return UNIT_INTERVAL, []
        try:
            return scale_of(metric, self.options.config)(), []
        except ConfigurationError:
            if self.options.config is not None:
                raise
            note = f"the scale of {printable(metric)} is unknown: choose pass or fail, or give it with --config FILE"
            return UNIT_INTERVAL, [note]

    def _renderer(self, metric: str, out: Path) -> Callable[[str], str]:
        values = {
            "title": metric or _REVIEW,
            "annotator": self.options.annotator,
            "headline": f"Does it pass {metric}?" if metric else "Is the answer good?",
            "definition": [*_describe_metric(metric, self.options.config)] if metric else [],
            "file": str(out),
        }
        jinja2_page.render("label.html.j2", nonce="", **values)  # a missing extra is an error before the page opens
        return lambda nonce: jinja2_page.render("label.html.j2", nonce=nonce, **values)


def _describe_metric(metric: str, config: Path | None) -> Iterator[str]:
    """Yield the definition or the question of a metric, then the meaning of each category or grade. Empty if it is unknown."""
    described = look_up_metric(metric, config)
    if described is None:
        return
    own = (getattr(described, name, None) for name in ("definition", "question"))
    question = metric_doc_of(described).question.replace("``", "")
    yield next((text for text in own if isinstance(text, str) and text), question)
    for name in ("categories", "rubrics"):
        meanings = getattr(described, name, None)
        if isinstance(meanings, Mapping):
            yield from (f"{word}: {meaning}" for word, meaning in meanings.items())


def _metric_of_scores(file: Path, cases: Sequence[LabelCase]) -> str:
    """Return the metric of the cases' scores; empty without scores."""
    metrics = sorted({metric for case in cases for metric in case.scores})
    if len(metrics) > 1:
        raise ConfigurationError(
            f"{file} has scores of several metrics, choose one with --metric: {names_listed(metrics)}"
        )
    return metrics[0] if metrics else ""


def _select_cases(cases: Sequence[LabelCase], metric: str, scale: Scale) -> tuple[list[LabelCase], list[str]]:
    """Return the cases with a verdict, each once, or all cases if no case has one; and notes on cases that are left out."""
    cases = [case.with_verdict(metric, scale) for case in cases]
    judged = [case for case in cases if case.passed is not None]
    notes = []
    if not judged:
        notes.append(
            f"no case has a verdict{f' of {printable(metric)}' if metric else ''}: no judge is compared with the labels"
        )
    elif left_out := len(cases) - len(judged):
        notes.append(f"{format_count(left_out, 'case')} without a verdict of {printable(metric)}: left out")
    by_key = {case.key: case for case in judged or cases}
    if repeated := len(judged or cases) - len(by_key):
        notes.append(f"{format_count(repeated, 'case')} with the ids or the content of a later case: left out")
    return [*by_key.values()], notes


# --- summary --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSummary:
    """Summary of the labels of a file, compared with the judge.

    Attributes:
        metric: metric of the judge; empty = no judge.
        judged: the cases with a verdict of the judge, drawn or not; all cases if none has a verdict.
        target: wanted half width of the interval of the corrected pass rate.
    """

    file: LabelFile
    metric: str
    scale: Scale
    draw: LabelDraw
    judged: Sequence[LabelCase]
    target: float

    def lines(self) -> Iterator[str]:
        """Yield the facts about the labels, a line each."""
        facts, out = self.as_json(), self.file.path
        people = format_count(len(facts["annotators"]), "annotator")
        yield f"{facts['cases']:,} of {len(self.draw.cases):,} drawn cases have a label, by {people}"
        if facts["passed"] is not None:
            yield f"humans passed {facts['passed']:,} and failed {facts['failed']:,}"
        if facts["agreement"] is not None:
            yield f"the judge agrees with {100 * facts['agreement']:.0f} % of the {facts['compared']:,} labels"
        if facts["kappa"] is not None:
            yield f"Cohen's κ {_format(facts['kappa'])}"
        if facts["rate"] is not None:
            judged = f"the {facts['units']:,.0f} judged cases"
            yield f"corrected pass rate of {judged}: {_format(facts['rate'])}; the judge's own is {facts['raw']:.3f}"
            yield _format_more(facts["more"], self.target, round(facts["units"]) - facts["cases"])
        yield from facts["notes"]
        if facts["cases"]:
            has_judge = self.metric and self.draw.representative
            command = f": spanscore calibrate {out} --metric {self.metric}" if has_judge else ""
            yield f"the labels are in {out}{command}"

    def as_json(self) -> dict[str, Any]:
        """Return the facts about the labels as JSON types; None = unknown."""
        out, labels = self.file.path, self.file.labels()
        drawn = {case.key for case in self.draw.cases}
        own = [labelled for labelled in labels if case_key(labelled) in drawn]
        people = sorted({labelled.label.annotator for labelled in own if labelled.label is not None})
        facts: dict[str, Any] = {
            "file": str(out),
            "cases": len({case_key(labelled) for labelled in own}),
            "drawn": len(drawn),
            "annotators": people,
            **dict.fromkeys(("passed", "failed", "compared", "agreement", "kappa", "units", "rate", "raw", "more")),
            "notes": [],
        }
        if other := len(labels) - len(own):
            facts["notes"].append(f"{format_count(other, 'label')} of other cases are in {out}, from another draw")
        if self.metric and own:
            self._add_judge(facts, own)
        return facts

    def _add_judge(self, facts: dict[str, Any], labels: Sequence[AnnotatedSample]) -> None:
        """Add the comparison with the judge, or the reason why it is missing."""

        def scale() -> Scale:
            return self.scale

        try:
            in_lines = tuple(verdict_in_line(labelled.judged.get(self.metric), scale) for labelled in labels)
            humans = [has_passed(self.file.path, labelled, scale) for labelled in labels]
            facts |= {"passed": sum(humans), "failed": len(humans) - sum(humans)}
            agreed = [human == verdict.passed for human, verdict in zip(humans, in_lines, strict=True) if verdict]
            if not agreed:
                return
            facts |= {"compared": len(agreed), "agreement": sum(agreed) / len(agreed)}
            if not self.draw.representative:
                facts["notes"].append("the cases were chosen by their verdicts, so the labels estimate no pass rate")
                return
            verdicts = JudgeVerdicts(in_lines, tuple(self._window())).of_version()
            result = calibrate_judge(self.file.path, self.metric, labels, verdicts, scale, None)
        except ConfigurationError as error:
            facts["notes"].append(str(error))
            return
        facts["kappa"] = result.calibration.kappa._asdict()
        facts["notes"] += result.facts.notes()
        if result.window is None:
            facts["notes"].append("each judged case has a label, so the pass rate of the cases needs no estimate")
        else:
            rate = result.rates["fresh"]
            more = labels_needed(result.calibration.labels, rate, self.target) - result.calibration.labels
            facts |= {
                "units": result.window.n,
                "rate": rate._asdict(),
                "raw": result.rates["raw"].value,
                "more": max(0, more),
            }

    def _window(self) -> Iterator[JudgeVerdict]:
        """Yield the judge's verdict on each judged case, drawn or not."""
        for case in self.judged:
            score = case.scores.get(self.metric)
            if score is not None and case.passed is not None:
                yield JudgeVerdict(case.passed, score.evaluator_version or "", 1.0 / (score.probability or 1.0))


def _format(interval: dict[str, float]) -> str:
    return f"{interval['value']:.3f}, 95 % interval {interval['low']:.3f} to {interval['high']:.3f}"


def _format_more(more: int, target: float, unlabelled: int) -> str:
    if not more:
        return f"the interval is within ± {target:g}"
    enough = "" if more <= unlabelled else f", and only {unlabelled:,} cases have none: collect more"
    return f"for ± {target:g} about {format_count(more, 'more label')} are needed{enough}"
