"""``alerts.<metric>.evaluator_version``: one that no configured metric can have would be an alert that never fires."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.live import a_trace
from typer.testing import CliRunner

from spanscore import ConfigurationError, OnlineScorer
from spanscore.cli.main import app
from spanscore.metrics import Faithfulness

OLD, NEW = (f"{Faithfulness('lexical').version}/{model}/1" for model in ("old", "new"))
JUDGE = "judge: {model: 'openai:old', api_key_env: JUDGE_KEY}"


def written(folder: Path, evaluator_version: str, metric: str = "faithfulness") -> Path:
    file = folder / "spanscore.yaml"
    file.write_text(
        f"metrics: [{metric}]\n{JUDGE}\nalerts: "
        f"{{faithfulness: {{baseline: 0.85, evaluator_version: '{evaluator_version}'}}}}\n"
    )
    return file


def ran(*arguments: str) -> str:
    result = CliRunner().invoke(app(arguments[0]), [*arguments], env={"COLUMNS": "200"})
    return f"{result.exit_code} {' '.join((str(result.exception) + result.output + result.stderr).split())}"


@pytest.fixture(params=["with the key", "without"])
def key(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return whether this environment has the judge's key, so that its client can be created and reports its model."""
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    if request.param == "with the key":
        monkeypatch.setenv("JUDGE_KEY", "none")
    return bool(request.param == "with the key")


@pytest.mark.parametrize("command", [["check"], ["rules", "--out", "out"]], ids=["check", "rules"])
def test_a_series_that_no_metric_has_is_refused_with_the_one_there_is(
    tmp_path: Path, key: bool, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = ran(*command, str(written(tmp_path, "foo")))

    assert (
        f"alerts.faithfulness.evaluator_version: 'foo' is of no configured metric; faithfulness has '{OLD}'" in result
    )
    assert not result.startswith("0")
    assert not (tmp_path / "out").exists()


def test_the_series_that_there_is_can_be_watched(tmp_path: Path, key: bool) -> None:
    assert ran("check", str(written(tmp_path, OLD))).startswith("0")


def test_the_series_of_a_second_judge_is_refused_until_it_is_the_judge(tmp_path: Path, key: bool) -> None:
    result = ran("check", str(written(tmp_path, NEW, "{faithfulness: {shadow: 'openai:new'}}")))

    assert f"faithfulness has '{OLD}', which is its shadow's; no alert reads it" in result


def test_a_scorer_does_not_start_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "none")

    with pytest.raises(
        ConfigurationError, match=r"alerts.faithfulness.evaluator_version: 'foo' is of no configured metric"
    ):
        OnlineScorer.from_config(written(tmp_path, "foo"), tracer_provider=a_trace().provider)
