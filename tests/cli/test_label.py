"""``spanscore annotations label``: from cases to labels that other commands read; a killed process loses no label."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.stored.label_builders import make_record
from typer.testing import CliRunner

from spanscore.cli.main import app
from spanscore.core.codecs.annotation_file import read_annotations
from spanscore.errors import ConfigurationError

COMMAND = (sys.executable, "-c", "from spanscore.cli.main import main; main()", "annotations", "label")


class Labelling(NamedTuple):
    """A running command, and the address of its page."""

    process: subprocess.Popen[str]
    url: str

    def send(self, target: str, body: Any = None) -> Any:
        """Send a request as the page does."""
        origin, _, token = self.url.partition("/?token=")
        headers = {"Authorization": f"Bearer {token}"} | ({} if body is None else {"Origin": origin})
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(origin + target, data, headers), timeout=30) as answer:
            return json.load(answer)

    def label(self, choose: Any = lambda number: 0, most: int = 1000) -> int:
        """Label cases by their number; return how many."""
        labelled, state = 0, self.send("/state")
        while state["case"] is not None and labelled < most:
            number = int(state["case"]["question"][0][0].removeprefix("Question ").removesuffix("?"))
            state = self.send("/choose", {"case": state["case"]["key"], "choice": choose(number)})["next"]
            labelled += 1
        return labelled

    def finish(self) -> str:
        """Press the button of the page that ends the command; return its output."""
        self.send("/finish", {})
        output, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        return output


@contextmanager
def labelling(*words: Any) -> Iterator[Labelling]:
    """Run the command until the end of the block."""
    process = subprocess.Popen([*COMMAND, *map(str, words), "--no-browser"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Labelling(process, process.stdout.readline().strip())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sixty cases: every third is failed by the judge."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "cases.jsonl"
    records = (make_record(number, 0.2 if number % 3 == 0 else 0.9, probability=0.5) for number in range(60))
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def is_failed(number: int) -> int:
    """Return the choice of a person that agrees with the judge, except for every tenth case."""
    return int((number % 3 == 0) != (number % 10 == 0))


SCORER = """
judge: {model: lexical}
metrics:
  - aspect_critic: {name: polite, definition: "The answer is <polite>."}
  - category: {name: intent, categories: {refund: "Money back.", other: "The rest."}, fields: [user_input]}
"""


@pytest.mark.parametrize(
    ("metric", "config", "texts"),
    [
        ("polite", SCORER, ["The answer is &lt;polite&gt;."]),
        ("intent", SCORER, ["refund: Money back.", "other: The rest."]),
        ("context_relevance", "", ["Can the question be answered"]),
        ("unknown", "", []),
    ],
)
def test_the_page_shows_what_the_metric_judges(cases: Path, metric: str, config: str, texts: list[str]) -> None:
    options = []
    if config:
        Path("spanscore.yaml").write_text(config)
        options = ["--config", "spanscore.yaml"]
    with labelling(cases, "--metric", metric, *options) as page:
        with urllib.request.urlopen(page.url, timeout=30) as answer:
            shown = answer.read().decode()
        page.finish()

    definitions = re.findall(r'<p class="definition">(.*?)</p>', shown)
    assert bool(definitions) == bool(texts)
    assert [text for text in texts if not any(text in definition for definition in definitions)] == []


@pytest.mark.parametrize("pick", ["random", "informative"])
def test_labels_end_with_a_corrected_pass_rate_and_calibrate_reads_them(cases: Path, pick: str) -> None:
    with labelling(cases, "--pick", pick, "--count", 45, "--annotator", "ann") as page:
        assert page.label(is_failed) == 45
        output = page.finish()

    assert "45 of 45 drawn cases have a label, by 1 annotator" in output
    assert "corrected pass rate of the 60 judged cases: 0." in output
    assert "for ± 0.05 about" in output
    command = "calibrate", "labels-faithfulness.jsonl", "--metric", "faithfulness", "--json"
    result = CliRunner().invoke(app("calibrate"), command)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["assumed_random"] == (pick == "random")


def test_nothing_is_lost_if_the_process_is_killed_and_a_second_run_continues(cases: Path) -> None:
    with labelling(cases, "--count", 10) as page:
        page.label(most=4)
        os.kill(page.process.pid, signal.SIGKILL)
        page.process.wait(60)
    before = [label.id for label in read_annotations("labels-faithfulness.jsonl")]

    with labelling(cases, "--count", 10, "--json") as page:
        assert page.label() == 6
        document = json.loads(page.finish())

    assert len(before) == 4
    assert [label.id for label in read_annotations("labels-faithfulness.jsonl")][:4] == before
    assert (document["cases"], document["passed"], document["failed"]) == (10, 10, 0)


def test_two_people_label_in_one_file_at_the_same_time(cases: Path) -> None:
    with (
        labelling(cases, "--count", 12, "--annotator", "ann") as ann,
        labelling(cases, "--count", 12, "--annotator", "ben") as ben,
    ):
        for _ in range(12):
            assert ann.label(is_failed, most=1) == ben.label(is_failed, most=1) == 1
        ann.finish()
        output = ben.finish()

    assert len(read_annotations("labels-faithfulness.jsonl")) == 24
    assert "12 of 12 drawn cases have a label, by 2 annotators" in output


def test_ctrl_c_ends_with_the_summary(cases: Path) -> None:
    with labelling(cases, "--pick", "failing") as page:
        page.label(is_failed, most=3)
        page.process.send_signal(signal.SIGINT)
        output, _ = page.process.communicate(timeout=60)

    assert page.process.returncode == 0
    assert "3 of 20 drawn cases have a label" in output
    assert "the labels estimate no pass rate" in output
    assert len(read_annotations("labels-faithfulness-failing.jsonl")) == 3
    assert "spanscore calibrate" not in output


def test_labels_of_failing_cases_are_refused_by_calibrate(cases: Path) -> None:
    with labelling(cases, "--pick", "failing") as page:
        page.label(is_failed, most=12)
        page.finish()

    with pytest.raises(
        ConfigurationError, match=r"12 labels of .*failing\.jsonl are of cases that were chosen for their verdicts"
    ):
        CliRunner().invoke(
            app("calibrate"),
            ["calibrate", "labels-faithfulness-failing.jsonl", "--metric", "faithfulness"],
            catch_exceptions=False,
        )


def test_stored_spans_are_labelled_without_a_file_of_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app("demo"), ["demo", "--requests", "40", "--out", "spans.jsonl"]).exit_code == 0

    with labelling("spans.jsonl", "--metric", "faithfulness", "--count", 3) as page:
        case = page.send("/state")["case"]
        answer = page.send("/choose", {"case": case["key"], "choice": 0})

    assert case["contexts"]
    assert "statements are supported" in answer["judge"]["explanation"]
    (label,) = read_annotations("labels-faithfulness.jsonl")
    assert label.judged["faithfulness"].probability is not None


def test_samples_without_scores_are_labelled_without_a_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("samples.jsonl").write_text('{"user_input": "Question 1?", "response": "A"}\n')

    with labelling("samples.jsonl") as page:
        assert page.label() == 1
        output = page.finish()

    assert "1 of 1 drawn cases have a label" in output
    (label,) = read_annotations("labels-review.jsonl")
    assert (label.human, label.judged) == (True, {})


def test_left_out_cases_are_counted(cases: Path) -> None:
    records = [make_record(1), make_record(1), make_record(2), {**make_record(3), "scores": {}}]
    cases.write_text("".join(json.dumps(record) + "\n" for record in records) + "no JSON\n")

    process = subprocess.Popen([*COMMAND, str(cases), "--no-browser"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    notes = "".join(process.stderr.readline() for _ in range(5))
    process.kill()
    process.communicate()

    assert "1 line without a sample, the first is line 5" in notes
    assert "1 case without a verdict of faithfulness: left out" in notes
    assert "1 case with the ids or the content of a later case: left out" in notes
    assert "2 cases to label" in notes


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["missing.jsonl"], "cannot be read"),
        (["cases.jsonl", "--metric", "other", "--pick", "failing"], "no case fails 'other'"),
        (["cases.jsonl", "--out", "cases.jsonl"], "is read by this command"),
        (["cases.jsonl", "--out", "missing/labels.jsonl"], "does not exist"),
        (["empty.jsonl"], "has no cases"),
        (["two.jsonl"], "several metrics, choose one with --metric: faithfulness, other"),
    ],
)
def test_wrong_input_is_refused_before_the_page_opens(cases: Path, words: list[str], error: str) -> None:
    Path("empty.jsonl").touch()
    record = make_record(1)
    Path("two.jsonl").write_text(json.dumps({**record, "scores": {**record["scores"], "other": 1}}))

    result = CliRunner().invoke(app("annotations"), ["annotations", "label", *words, "--no-browser"])

    assert isinstance(result.exception, ConfigurationError)
    assert error in str(result.exception)
