"""``spanscore calibrate``: labels and verdicts become a table, JSON and a file; messages about missing input give advice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from tests.outputs.builders import score, unit
from tests.outputs.memory import Memory
from typer.testing import CliRunner

from spanscore.cli.main import app
from spanscore.core.codecs.otlp import json_line
from spanscore.core.sample import Annotation
from spanscore.core.span import UnitKey
from spanscore.errors import ConfigurationError
from spanscore.metrics import ExactMatch
from spanscore.monitoring.calibration import read_calibration
from spanscore.outputs.score_spans import EvaluationSpans

SERIES = "1+abc/judge/1"
COUNTS = {(True, True): 60, (True, False): 6, (False, True): 5, (False, False): 20}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(*lines: Mapping[str, Any], name: str = "labels.jsonl") -> Path:
    file = Path(name)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def verdict(judge: bool, evaluator_version: str = SERIES) -> dict[str, Any]:
    return {"faithfulness": {"label": "pass" if judge else "fail", "evaluator_version": evaluator_version}}


def labels(**more: Any) -> list[dict[str, Any]]:
    found = [verdicts for verdicts, count in COUNTS.items() for _ in range(count)]
    return [{"human": human, "scores": verdict(judge), **more} for human, judge in found]


def ran(*arguments: Any, command: str = "calibrate") -> Any:
    return CliRunner().invoke(app(command), [command, *map(str, arguments)])


def calibrated(*arguments: Any) -> dict[str, Any]:
    result = ran(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def error_of(*arguments: Any) -> str:
    result = ran(*arguments)
    assert isinstance(result.exception, ConfigurationError)
    return str(result.exception)


def test_labels_become_a_table_and_a_file_named_by_metric_and_series() -> None:
    result = ran(written(*labels()), "-m", "faithfulness")

    assert result.exit_code == 0, result.output
    for words in (
        "91 labels, humans passed 66 and failed 25",
        "Cohen's κ",
        "0.71 × the drop",
        "assumed to be a random",
    ):
        assert words in result.stdout
    saved = read_calibration("calibration-faithfulness-1-abc-judge-1.json")
    assert (saved.metric, saved.evaluator_version, saved.calibration.labels) == ("faithfulness", SERIES, 91)


def test_json_tells_the_same_for_a_program() -> None:
    found = calibrated(written(*labels(probability=0.5)), "-m", "faithfulness", "-o", "mine.json")

    assert found["counts"] == {"true_pass": 60, "false_fail": 6, "false_pass": 5, "true_fail": 20}
    assert found["sensitivity"]["value"] == pytest.approx(60 / 66)
    assert (found["assumed_random"], found["window"], found["file"]) == (False, None, "mine.json")


def test_score_and_calibrate_are_two_commands_on_one_file() -> None:
    right = {"response": "yes", "reference": "yes"}
    lines = [{"human": True, "id": n, **right} for n in range(8)] + [
        {"human": False, "id": n, "response": f"{n}", "reference": "yes"} for n in range(6)
    ]
    others = [{"response": f"other {n}", "reference": "yes"} for n in range(6)]
    everything = written(*lines, *others, name="window.jsonl")

    scored = ran(everything, "-m", "exact_match", "--out", "scores.jsonl", command="evaluate")
    found = calibrated(written(*lines), "-m", "exact_match", "--scores", "scores.jsonl")

    assert scored.exit_code == 0, scored.output
    assert found["evaluator_version"] == ExactMatch().evaluator_version
    assert found["counts"] == {"true_pass": 8, "false_fail": 0, "false_pass": 0, "true_fail": 6}
    assert found["window"]["units"] == 20
    assert [*found["window"]] == ["units", "fresh", "corrected", "raw"]
    assert found["window"]["raw"]["value"] == pytest.approx(0.4)


def test_live_units_are_found_on_their_spans_and_count_by_their_probability() -> None:
    lines, spans = [], list[ReadableSpan]()
    for number, (human, judge) in enumerate(labels_of(COUNTS), 1):
        memory, key = Memory(), UnitKey(number, number)
        chance = 0.5 if judge else 1.0
        EvaluationSpans(memory.providers).emit(
            at(key), [score(value=float(judge), probability=chance, evaluator_version=SERIES)]
        )
        spans += memory.spans
        lines.append({"human": human, "trace_id": f"{number:032x}", "span_id": f"{number:016x}"})
    Path("spans.jsonl").write_text(json_line(spans))

    found = calibrated(written(*lines[:-1]), "-m", "faithfulness", "--scores", "spans.jsonl")

    assert found["sensitivity"]["value"] == pytest.approx(120 / 126)
    assert found["window"]["raw"]["value"] == pytest.approx(130 / 156)


def test_labels_that_are_on_spans_are_read_from_there_the_last_word_of_each() -> None:
    spans = list[ReadableSpan]()
    for number, (human, judge) in enumerate(labels_of(COUNTS), 1):
        memory, key = Memory(), UnitKey(number, number)
        EvaluationSpans(memory.providers).emit(
            at(key), [score(value=float(judge), probability=1.0, evaluator_version=SERIES)]
        )
        for when_ns, value in ((1, not human), (2, human)):
            said = Annotation(name="review", value=value, quality=float(value), unit=key, when_ns=when_ns)
            EvaluationSpans(memory.providers).label(said)
        spans += memory.spans
    Path("spans.jsonl").write_text(json_line(spans))

    found = calibrated("spans.jsonl", "-m", "faithfulness")

    assert found["counts"] == {"true_pass": 60, "false_fail": 6, "false_pass": 5, "true_fail": 20}
    assert "no label named 'other'" in error_of("spans.jsonl", "-m", "faithfulness", "--label", "other")


def labels_of(counts: Mapping[tuple[bool, bool], int]) -> list[tuple[bool, bool]]:
    return [verdicts for verdicts, count in counts.items() for _ in range(count)]


def at(key: UnitKey) -> Any:
    found = unit()
    return replace(found, key=key, spans=tuple(replace(one, trace_id=key[0], span_id=key[1]) for one in found.spans))


def test_labels_without_a_verdict_tell_the_commands_that_give_it() -> None:
    with_samples = error_of(written({"human": True, "response": "yes"}), "-m", "faithfulness")
    by_ids = error_of(written({"human": True, "trace_id": "1" * 32, "span_id": "2" * 16}), "-m", "faithfulness")

    assert (
        "spanscore evaluate labels.jsonl --config spanscore.yaml --metrics faithfulness --out scores.jsonl"
        in with_samples
    )
    assert "spanscore calibrate labels.jsonl --metric faithfulness --scores scores.jsonl" in with_samples
    assert "--scores spans.jsonl" in by_ids


def test_some_labels_without_a_verdict_are_left_out_and_counted() -> None:
    result = ran(written(*labels(), {"human": True}), "-m", "faithfulness")

    assert "1 labels have no verdict" in result.stdout


def test_several_annotators_of_a_unit_are_one_label_of_what_most_say() -> None:
    def said(annotator: str) -> list[dict[str, Any]]:
        ids = ({"trace_id": f"{n:032x}", "span_id": f"{n:016x}", "annotator": annotator} for n in range(1, 92))
        return [{**one, **own} for one, own in zip(labels(), ids, strict=True)]

    one, other = said("a"), said("b")
    against = [{**said("c")[0], "human": False}, {**said("c")[1], "human": False}, {**said("d")[1], "human": False}]

    found = calibrated(written(*one, *other), "-m", "faithfulness")
    voted = calibrated(written(*one, *against), "-m", "faithfulness")

    assert found["labels"] == {"passed": 66, "failed": 25, "left_out": 0, "tied": 0}
    assert found["sensitivity"] == calibrated(written(*one), "-m", "faithfulness")["sensitivity"]
    assert voted["labels"] == {"passed": 64, "failed": 26, "left_out": 0, "tied": 1}
    assert "5 labels share units with others" in ran(written(*one, *against), "-m", "faithfulness").stdout


def test_verdicts_of_several_series_are_never_mixed() -> None:
    file = written(*labels(), {"human": True, "scores": verdict(True, "other")})

    assert (
        "of several evaluator versions, choose one with --evaluator-version: 1+abc/judge/1 (91), other (1)"
        in error_of(file, "-m", "faithfulness")
    )
    assert calibrated(file, "-m", "faithfulness", "--evaluator-version", SERIES)["labels"] == {
        "passed": 66,
        "failed": 25,
        "left_out": 1,
        "tied": 0,
    }
    assert "no label has a verdict of evaluator version 'none'" in error_of(
        file, "-m", "faithfulness", "--evaluator-version", "none"
    )


def test_verdicts_without_a_series_are_reported_and_not_kept() -> None:
    lines = [
        {**line, "scores": {"faithfulness": float(line["scores"]["faithfulness"]["label"] == "pass")}}
        for line in labels()
    ]

    result = ran(written(*lines), "-m", "faithfulness")

    assert "the verdicts have no evaluator version" in result.stdout
    assert not [*Path().glob("calibration*")]
    assert "have no evaluator version" in error_of(written(*lines), "-m", "faithfulness", "--out", "mine.json")


def test_too_few_labels_are_refused_with_the_counts() -> None:
    lines = [line for line in labels() if line["human"]]

    assert "humans passed 66 and failed 0" in error_of(written(*lines), "-m", "faithfulness")


def test_a_number_that_is_not_on_the_scale_is_reported_by_its_line() -> None:
    file = written(*labels(), {"human": 7, "scores": verdict(True)})

    assert "labels.jsonl: line 92: 7 is not on the metric's scale, 0 to 1" in error_of(file, "-m", "faithfulness")


def test_the_scale_of_a_metric_that_is_no_built_in_must_be_known() -> None:
    lines = [{"human": 1, "scores": {"mine": {"label": "pass", "evaluator_version": "s"}}}]
    Path("spanscore.yaml").write_text("metrics: [{exact_match: {name: mine}}]\n")

    assert "the scale of 'mine' is not known: add --config" in error_of(written(*lines), "-m", "mine")
    assert "humans passed 1 and failed 0" in error_of(written(*lines), "-m", "mine", "--config", "spanscore.yaml")


def test_a_file_of_other_metrics_says_which_it_has() -> None:
    written({"response": "yes", "reference": "yes"}, name="samples.jsonl")
    ran("samples.jsonl", "-m", "exact_match", "--out", "scores.jsonl", command="evaluate")

    assert "holds no verdict of 'faithfulness'; it has exact_match" in error_of(
        written(*labels()), "-m", "faithfulness", "--scores", "scores.jsonl"
    )


def twice(differing: int, **more: Any) -> list[dict[str, Any]]:
    """Return the labels of two annotators on the same units, with different labels on some of the first ones."""
    ids = [{"trace_id": f"{place:032x}", "span_id": f"{place:016x}"} for place in range(1, 92)]
    first = [{**one, **of, "annotator": "ann", **more} for one, of in zip(labels(), ids, strict=True)]
    second = [
        {**one, "annotator": "bob", "human": one["human"] ^ (place < differing)} for place, one in enumerate(first)
    ]
    return [*first, *second]


def test_age_and_agreement_of_labels_are_printed() -> None:
    lines = twice(9)
    lines[0]["when"], lines[1]["when"] = "2020-01-01T12:00:00Z", "2020-02-01T12:00:00Z"

    result = ran(written(*lines), "-m", "faithfulness")

    assert result.exit_code == 0, result.output
    for words in (
        "labels are from 2020-01-01, ",
        " days old, to 2020-02-01, ",
        "the age of 180 labels is unknown",
        "annotators agree on 90 % of the 91 units that two or more labelled",
        "one annotator is wrong in 5.2 % (measured on 91 units)",
    ):
        assert words in result.stdout
    assert read_calibration("calibration-faithfulness-1-abc-judge-1.json").calibration.annotator_error.rate > 0


def test_the_error_of_annotators_is_measured_or_given() -> None:
    file = written(*twice(9))

    measured, given = (
        calibrated(file, "-m", "faithfulness"),
        calibrated(file, "-m", "faithfulness", "--annotator-error", "10%"),
    )

    assert measured["annotators"] == {
        "units": 91,
        "agreement": pytest.approx(82 / 91),
        "unknown": 0,
        "error": pytest.approx((1 - (1 - 18 / 91) ** 0.5) / 2),
        "measured": True,
    }
    assert (given["annotators"]["error"], given["annotators"]["measured"]) == (0.1, False)


def test_unknown_times_and_annotators_are_said_to_be_unknown() -> None:
    file = written(*labels())

    result, found = ran(file, "-m", "faithfulness"), calibrated(file, "-m", "faithfulness")

    assert found["age"] == {"oldest": None, "newest": None, "unknown": 91}
    assert found["annotators"] == {"units": 0, "agreement": None, "unknown": 91, "error": None, "measured": False}
    for words in (
        "the age of the labels is unknown",
        "how far annotators agree is unknown",
        "the annotator of 91 labels is unknown",
        "how often an annotator is wrong is unknown",
    ):
        assert words in result.stdout


def test_a_label_without_an_annotator_is_no_second_opinion() -> None:
    lines = twice(0)
    for line in lines[91:]:
        del line["annotator"]

    found = calibrated(written(*lines), "-m", "faithfulness")["annotators"]

    assert (found["units"], found["agreement"], found["unknown"]) == (0, None, 91)


@pytest.mark.parametrize("rate", ["0.5", "-0.1", "60%", "much"])
def test_an_error_rate_that_cannot_be_is_refused(rate: str) -> None:
    result = ran(written(*labels()), "-m", "faithfulness", f"--annotator-error={rate}")

    assert result.exit_code == 2
    assert "is not an error rate" in result.output


def test_a_given_error_moves_the_qualities() -> None:
    file = written(*labels())

    plain, wrong = (
        calibrated(file, "-m", "faithfulness"),
        calibrated(file, "-m", "faithfulness", "--annotator-error", "0.05"),
    )

    assert wrong["specificity"]["value"] > plain["specificity"]["value"]
    assert wrong["counts"] == plain["counts"]
