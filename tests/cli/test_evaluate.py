"""``spanscore evaluate``: a table for a person, JSON for a program, and Ctrl-C loses nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress
from tests.judges.models import openai_server
from typer.testing import CliRunner

from spanscore.cli._evaluate_run import PausedAccounts, named_clocks
from spanscore.cli.main import app
from spanscore.errors import ConfigurationError, SampleError
from spanscore.judges.effects.account import Account, AccountState
from spanscore.metrics import AnswerAccuracy

ROOT = Path(__file__).parents[2]
RECORD = {"question": "Where?", "answer": "It is in Rome.", "contexts": ["It is in Rome."], "ground_truth": "Rome."}
CONFIG = """
metrics: [{exact_match: {name: same}}, faithfulness]
judge: {model: lexical}
"""


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    file = tmp_path / "samples.jsonl"
    file.write_text(json.dumps(RECORD) + "\n" + '{"question": ' + "\n")
    return file


def ran(*arguments: Any, **settings: Any) -> Any:
    return CliRunner().invoke(app("evaluate"), ["evaluate", *map(str, arguments)], **settings)


def test_a_file_is_scored_and_reported_as_a_table(samples: Path) -> None:
    result = ran(samples, "-m", "faithfulness,exact_match")

    assert result.exit_code == 0, result.output
    for words in ("faithfulness", "1.000", "exact_match", "0.000", "Not read, line 2: not valid JSON"):
        assert words in result.stdout
    assert "No --judge given" in result.stderr


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["table", "json"])
def test_what_the_offline_judge_is_blind_to_is_reported_where_the_numbers_are(samples: Path, more: list[str]) -> None:
    output = ran(samples, "-m", "response_relevancy,exact_match", *more).stdout
    plain = ran(samples, "-m", "exact_match", *more).stdout

    words = " ".join(output.split())
    assert words.count("The offline judge compares words: a first look, no verdict.") == 1
    assert words.count("response_relevancy counts the words that answer and question share") == 1
    assert "ffline" not in plain


@pytest.mark.parametrize(("more", "cached"), [([], [0, 1]), (["--no-cache"], [0, 0])])
def test_a_model_is_asked_equal_questions_once_unless_all_are_to_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], cached: list[int]
) -> None:
    file, out, config = tmp_path / "a.jsonl", tmp_path / "scores.jsonl", tmp_path / "spanscore.yaml"
    file.write_text((json.dumps(RECORD) + "\n") * 2)
    config.write_text("metrics: [{aspect_critic: {definition: Is it kind}}]")
    monkeypatch.setenv("OPENAI_API_KEY", "none")

    with openai_server() as address:
        monkeypatch.setenv("OPENAI_BASE_URL", address)
        result = ran(file, "--config", config, "--judge", "openai:gpt-4o-mini", "--out", out, *more)

    assert result.exit_code == 0, result.output
    assert sorted(json.loads(line)["cached_calls"] for line in out.read_text().splitlines()) == cached


def budgeted(folder: Path, budget: str) -> tuple[Path, Path]:
    file, config = folder / "a.jsonl", folder / "spanscore.yaml"
    file.write_text("".join(json.dumps({**RECORD, "answer": f"It is in Rome {place}."}) + "\n" for place in range(6)))
    critics = ", ".join(f"{{aspect_critic: {{name: {name}, definition: Is it {name}}}}}" for name in ("kind", "short"))
    judge = f"{{model: lexical, budget: [{budget}]}}"
    config.write_text(f"metrics: [{critics}, exact_match]\njudge: {judge}")
    return file, config


def outcomes(result: Any) -> dict[str, Any]:
    return {name: found["outcomes"] for name, found in json.loads(result.stdout)["metrics"].items()}


def test_at_a_budget_the_rest_is_not_asked_and_the_next_run_goes_on(tmp_path: Path) -> None:
    file, config = budgeted(tmp_path, "{calls: 4, per: 30d}")
    command = (file, "--config", config, "-m", "kind", "--out", tmp_path / "scores.jsonl", "--json")

    first, second = ran(*command), ran(*command)

    assert outcomes(first) == {"kind": {"scored": 4, "budget_exhausted": 2}}
    assert outcomes(second) == {"kind": {"scored": 6}}
    assert (
        "2 scores ended as budget_exhausted, and nothing was sent for them. Run the command again in the next window"
        in first.stderr
    )
    assert "judge.budget" not in second.stderr


def test_a_budget_of_one_metric_is_for_it_alone(tmp_path: Path) -> None:
    file, config = budgeted(tmp_path, "{calls: 2, per: 30d, metric: kind}")

    assert outcomes(ran(file, "--config", config, "--json"))["kind"] == {"scored": 2, "budget_exhausted": 4}
    assert outcomes(ran(file, "--config", config, "--json", "-m", "short")) == {"short": {"scored": 6}}


def test_a_gate_whose_budget_is_spent_is_incomplete(tmp_path: Path) -> None:
    file, config = budgeted(tmp_path, "{calls: 4, per: 30d}")

    ended = ran(file, "--config", config, "-m", "kind", "--min", "kind=0.1")

    assert ended.exit_code == 3
    assert "kind: 2 cases (33%) have no score: budget_exhausted 2" in ended.stdout


def test_another_judge_has_the_prices_and_the_budget_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, config = budgeted(tmp_path, "{usd: 0.000001, per: 30d}")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    command = (file, "--config", config, "-m", "kind", "--judge", "openai:gpt-4o-mini", "--json")

    unpriced = ran(*command)
    config.write_text(config.read_text().replace("budget:", "prices: {gpt-4o-mini: {input: 1, output: 1}}, budget:"))

    assert "'gpt-4o-mini', which kind asks, has no price" in str(unpriced.exception)
    assert outcomes(ran(*command)) == {"kind": {"budget_exhausted": 6}}


def test_standard_input_and_json_make_it_part_of_a_pipe() -> None:
    result = ran("-", "-m", "exact_match", "--json", input=json.dumps(RECORD))

    found = json.loads(result.stdout)
    assert (found["samples"], found["metrics"]["exact_match"]["mean"]) == (1, 0.0)


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "samples"
    os.mkfifo(pipe)
    writer = subprocess.Popen([sys.executable, "-c", f"open({str(pipe)!r}, 'w').write({json.dumps(RECORD)!r})"])

    result = ran(pipe, "-m", "exact_match", "--json")

    assert writer.wait(20) == 0
    assert json.loads(result.stdout)["samples"] == 1


def test_a_second_run_pays_for_nothing_and_says_so(samples: Path, tmp_path: Path) -> None:
    out = tmp_path / "scores.csv"
    ran(samples, "-m", "faithfulness", "--out", out)

    again = ran(samples, "-m", "faithfulness,exact_match", "--out", out)
    fresh = ran(samples, "-m", "faithfulness", "--out", out, "--no-resume")

    assert "1 row taken over" in again.stdout
    assert f"2 rows are in {out}; 1 of them taken over" in again.stderr
    assert "taken over" not in fresh.stdout


def test_the_metrics_of_a_configuration_are_taken_or_picked_from(samples: Path, tmp_path: Path) -> None:
    config = tmp_path / "spanscore.yaml"
    config.write_text(CONFIG)

    whole = ran(samples, "--config", config, "--json")
    picked = ran(samples, "--config", config, "--json", "-m", "same")

    assert list(json.loads(whole.stdout)["metrics"]) == ["same", "faithfulness"]
    assert list(json.loads(picked.stdout)["metrics"]) == ["same"]
    assert "No --judge" not in whole.stderr


def test_a_page_is_written_with_the_worst_samples(samples: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"

    result = ran(samples, "-m", "faithfulness,exact_match", "--report", page)

    assert f"The page of 2 rows is {page}; open {page.as_uri()}" in result.stderr
    text = page.read_text("utf-8")
    assert all(words in text for words in ("exact match", "It is in Rome.", "Where?", "samples.jsonl"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name the metrics"),
        (["-m", "faithfullness"], "did you mean 'faithfulness'"),
        (["-m", "exact_match", "--judge", "nonesuch:x"], "nonesuch"),
        (["-m", "exact_match", "--judge", "opnai:x"], "--judge: 'opnai:x' .*did you mean 'openai:x'"),
        (["-m", "exact_match", "--judge", "openai:x"], "OPENAI_API_KEY is not set; --judge 'openai:x' needs it"),
        (["-m", "exact_match", "--judge", "gpt-4o"], "--judge: 'gpt-4o' names no provider; write 'provider:model'"),
        (["-m", "exact_match", "--embeddings", "opnai:x"], "--embeddings: 'opnai:x' .*did you mean 'openai:x'"),
        (
            ["-m", "exact_match", "--embeddings", "openai:x"],
            "OPENAI_API_KEY is not set; --embeddings 'openai:x' needs it",
        ),
        (["-m", "exact_match", "--out", "scores.xml"], r"\.jsonl or \.csv"),
        (["-m", "exact_match", "--report", "nowhere/page.html"], "cannot be written"),
        (["-m", "exact_match", "--config", "nowhere.yaml"], r"nowhere\.yaml"),
    ],
)
def test_what_is_wrong_is_named(
    samples: Path, arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    result = ran(samples, *arguments)

    assert isinstance(result.exception, ConfigurationError)  # main() prints it and exits with 2
    with pytest.raises(ConfigurationError, match=words):
        raise result.exception


def test_all_faults_of_a_configuration_are_reported_at_once(samples: Path, tmp_path: Path) -> None:
    config = tmp_path / "spanscore.yaml"
    config.write_text("metrics: [faithfullness]\nsampling: {rte: 3, rate: 5}\njudge: {model: 'nonesuch:x'}")

    own, other = ran(samples, "--config", config), ran(samples, "--config", config, "--judge", "lexical")

    assert str(own.exception).startswith(f"{config}: 4 wrong settings\n")
    assert str(other.exception).startswith(f"{config}: 3 wrong settings\n")  # its judge is not asked


def test_an_empty_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()

    assert "holds no sample" in str(ran(tmp_path / "a.jsonl", "-m", "exact_match").exception)


def test_a_file_without_a_sample_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("no\njson\n")

    result = ran(file, "-m", "faithfulness")

    assert isinstance(result.exception, SampleError)
    assert "none of 2 records is a sample:\n  line 1: not valid JSON" in str(result.exception)
    assert result.output.count("\n") == 1  # that it begins: no bar, no note about the judge


def test_no_word_is_cut_at_80_columns(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({"user_input": "Where?", "response": "the of", "reference": "a b"}) + "\n")
    names = "answer_correctness,response_relevancy,llm_context_precision_without_reference,noise_sensitivity"

    output = ran(file, "-m", names, env={"COLUMNS": "80"}).stdout

    cells = [line.split("│")[1].strip() for line in output.splitlines() if line.startswith("│")]
    assert "".join(cells) == names.replace(",", "") + " ↓"
    assert cells[0] == "answer_correctness"
    assert cells[2:4] == ["llm_context_precision_", "without_reference"]
    assert "…" not in output.replace("0.00…1.00", "")
    assert "answer_correctness: no_value ×1: the text has no words to compare" in output


@pytest.mark.parametrize(("metric", "shown"), [("exact_match", False), ("noise_sensitivity", True)])
def test_quality_stands_beside_the_mean_only_where_it_differs(tmp_path: Path, metric: str, shown: bool) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(RECORD) + "\n")

    output = ran(file, "-m", metric).stdout

    assert ("┃ quality" in output) == shown


def test_interrupted_it_keeps_what_there_is_and_goes_on_from_there(tmp_path: Path) -> None:
    file, out, config = tmp_path / "samples.jsonl", tmp_path / "scores.jsonl", tmp_path / "spanscore.yaml"
    file.write_text("".join(json.dumps({**RECORD, "question": f"{place}?"}) + "\n" for place in range(60)))
    config.write_text("metrics: [{'tests.live:Slow': {seconds: 0.1}}]")
    command = [sys.executable, "-c", "from spanscore.cli.main import main; main()", "evaluate", str(file)]
    command += ["--config", str(config), "--out", str(out), "--concurrency", "2"]

    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    _wait_for_lines(out, 4, process)
    process.send_signal(signal.SIGINT)
    output, notes = process.communicate(timeout=60)
    kept = len(out.read_text().splitlines())
    again = ran(file, "--config", config, "--out", out, "--json")

    assert process.returncode == 130, notes
    assert "Interrupted after" in output
    assert "Traceback" not in notes
    assert 4 <= kept < 60
    assert (json.loads(again.stdout)["taken_over"], json.loads(again.stdout)["rows"]) == (kept, 60)


def _wait_for_lines(file: Path, lines: int, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 60
    while not file.exists() or len(file.read_text().splitlines()) < lines:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


def test_the_name_that_a_metric_had_before_picks_it_with_its_parameters(samples: Path, tmp_path: Path) -> None:
    config = tmp_path / "spanscore.yaml"
    config.write_text("metrics: [{nv_accuracy: {pass_at: 0.1}}]")

    for name in ("nv_accuracy", "answer_accuracy"):
        ran(samples, "--config", config, "-m", name, "--out", tmp_path / f"{name}.jsonl")

    rows = [json.loads((tmp_path / f"{name}.jsonl").read_text()) for name in ("nv_accuracy", "answer_accuracy")]
    assert [(row["metric"], row["version"]) for row in rows] == [
        ("answer_accuracy", AnswerAccuracy("lexical", pass_at=0.1).version)
    ] * 2


def test_embeddings_that_are_missing_are_named_with_the_option_that_gives_them(samples: Path, tmp_path: Path) -> None:
    config = tmp_path / "spanscore.yaml"
    config.write_text("metrics: [semantic_similarity]\njudge: {model: 'openai:m', base_url: 'http://127.0.0.1:1/v1'}")

    without, configured = (
        ran(samples, *more)
        for more in (["-m", "semantic_similarity", "--config", config, "--judge", "openai:m"], ["--config", config])
    )

    assert "semantic_similarity needs embeddings" in str(configured.exception)
    assert str(configured.exception).endswith("here: --embeddings provider:model")
    assert without.exit_code != 0


def test_samples_at_once_are_bounded(samples: Path) -> None:
    result = ran(samples, "-m", "exact_match", "--concurrency", "1000000000")

    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (
            AccountState(Account("openai", "m"), breaker="open", because="no route"),
            "openai m does not answer: no route",
        ),
        (AccountState(Account("openai", "m"), breaker="half_open"), "openai m does not answer; it is called again"),
        (AccountState(Account("openai", "m")), ""),
    ],
)
def test_a_bar_that_stands_still_says_who_does_not_answer(state: AccountState, said: str) -> None:
    class Known:
        def states(self) -> list[AccountState]:
            return [state]

    progress = Progress()
    progress.add_task("scored", total=200)

    result = PausedAccounts(Known()).render(progress.tasks[0]).plain  # type: ignore[arg-type]

    assert result.startswith(said)
    assert bool(result) == bool(said)


def test_the_bar_names_its_clocks() -> None:
    progress = Progress(*named_clocks())
    progress.add_task("scored", total=200)
    console = Console(width=100, file=StringIO())
    console.print(progress.get_renderable())

    assert console.file.getvalue().split() == ["elapsed", "0:00:00", "left", "-:--:--"]  # type: ignore[attr-defined]
