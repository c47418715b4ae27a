"""``judges:`` of a metric in a file: live, in ``evaluate`` and in ``check``, and the juries that are refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.live import a_trace, run_rag
from tests.servers.openai_api import OpenAIServer
from typer.testing import CliRunner

from spanscore import ConfigurationError, OnlineScorer
from spanscore.cli._config_report import config_report
from spanscore.cli.main import app
from spanscore.core.codecs.job import json_of_scores, scores_of
from spanscore.testing import MemorySink

PASSES = {"small": 1, "other": 0, "big": 1}
"""Model → its verdict."""
JURY = "judges: ['openai:small', 'openai:other'], then: 'openai:big'"
CRITIC = f"{{aspect_critic: {{name: polite, definition: It is polite., {JURY}}}}}"


def verdict(request: dict[str, Any]) -> str:
    return json.dumps({"reason": "", "verdict": PASSES[request["model"]]})


def written(folder: Path, metric: str, url: str = "http://127.0.0.1:9/v1", more: str = "") -> Path:
    file = folder / "spanscore.yaml"
    judge = f"{{model: 'openai:judge', base_url: '{url}', api_key_env: JURY_KEY{more}}}"
    file.write_text(f"metrics: [{metric}]\njudge: {judge}\n")
    return file


@pytest.fixture(autouse=True)
def _has_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JURY_KEY", "none")


def test_the_jury_of_a_file_scores_live_traffic(tmp_path: Path) -> None:
    sink = MemorySink()
    with (
        OpenAIServer(verdict) as server,
        OnlineScorer.from_config(
            written(tmp_path, CRITIC, server.url), tracer_provider=a_trace().provider, outputs={"sinks": [sink]}
        ) as scorer,
    ):
        run_rag(scorer)

    (score,) = sink.scores
    assert (score.value, score.evaluator_version.split("/")[1]) == (1.0, "other+small then big")
    assert Counter(request["model"] for request in server.requests) == {"small": 1, "other": 1, "big": 1}
    assert scores_of(json_of_scores([score])) == (score,)


def evaluated(folder: Path, *arguments: str) -> tuple[list[dict[str, Any]], list[str]]:
    cases = folder / "cases.jsonl"
    cases.write_text('{"user_input": "And of Spain?", "response": "Madrid."}\n')
    with OpenAIServer(verdict) as server:
        file = written(folder, CRITIC, server.url)
        ran = CliRunner().invoke(app("evaluate"), ["evaluate", str(cases), "--config", str(file), "--json", *arguments])
        assert ran.exit_code == 0, ran.output
        return json.loads(ran.stdout)["metrics"], sorted(request["model"] for request in server.requests)


def test_evaluate_asks_the_jury_of_the_file(tmp_path: Path) -> None:
    metrics, asked = evaluated(tmp_path)

    assert (metrics["polite"]["mean"], asked) == (1.0, ["big", "other", "small"])


REFUSED = {
    "{faithfulness: {judges: ['openai:a']}}": "metrics.faithfulness.judges lists 1; allowed are two or more",
    "{faithfulness: {judges: ['openai:a', 'openai:a']}}": "faithfulness.judges: 2 judges of a jury are 'a'",
    "{faithfulness: {judges: ['openai:a', 'openai:b'], then: 'openai:b'}}": "2 judges of a jury are 'b'",
    "{faithfulness: {judges: ['openai:a', 'openai:b'], when: disagree}}": "metrics.faithfulness.when needs then",
    "{faithfulness: {judges: ['openai:a', 'openai:b'], then: 'openai:c', when: never}}": "metrics.faithfulness.when: ",
    "{faithfulness: {judges: ['openai:a', {model: 'openai:b', timeout: -1}]}}": "metrics.faithfulness.judges.1.timeout: ",
    "{faithfulness: {judges: ['openai:a', {model: 'openai:b', api_key: x}]}}": "judges.1.api_key: do not write a key into",
    "{exact_match: {judges: ['openai:a', 'openai:b']}}": "metrics.exact_match.judges: this metric asks no judge",
    "{faithfulness: {judges: ['openai:a', 'nonesuch:b']}}": "nonesuch",
}


@pytest.mark.parametrize("metric", REFUSED)
def test_a_jury_that_cannot_be_is_refused_with_its_key_by_check_and_at_the_start(tmp_path: Path, metric: str) -> None:
    file = written(tmp_path, metric)

    errors = config_report(file).errors
    assert [error for error in errors if REFUSED[metric] in error and "\n" not in error] == [*errors]
    assert errors
    with pytest.raises(ConfigurationError):
        OnlineScorer.from_config(file, tracer_provider=a_trace().provider)


def test_a_jurors_key_that_this_environment_lacks_is_missing_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    report = config_report(written(tmp_path, "{faithfulness: {judges: ['openai:a', 'anthropic:b']}}"))

    assert report.errors == ()
    assert [line for line in report.missing if "ANTHROPIC_API_KEY" in line]


def costs(folder: Path, metric: str, prices: str) -> tuple[dict[str, Any], str]:
    file = written(folder, metric, more=f", prices: {prices}")
    document = json.loads(CliRunner().invoke(app("check"), ["check", str(file), "--json"]).stdout)
    return document["costs"][0], CliRunner().invoke(app("check"), ["check", str(file)], env={"COLUMNS": "200"}).stdout


def test_the_cost_plan_has_every_juror_and_what_disagreement_would_add(tmp_path: Path) -> None:
    usd = {"judge": 1, "small": 1, "other": 2, "big": 5}
    prices = json.dumps({model: {"input": price, "output": price} for model, price in usd.items()})
    single, _ = costs(tmp_path, "{aspect_critic: {name: polite, definition: It is polite.}}", prices)
    jury, text = costs(tmp_path, CRITIC, prices)

    assert (jury["calls"], jury["input_tokens"]) == (2 * single["calls"], 2 * single["input_tokens"])
    assert [jury[key] / single["usd"] for key in ("usd", "most_usd")] == [pytest.approx(3), pytest.approx(8)]
    assert "if the jurors always disagree)" in text


def test_a_budget_in_money_needs_the_price_of_every_juror(tmp_path: Path) -> None:
    more = ", budget: [{usd: 1, per: 1d}], prices: {judge: {input: 1, output: 1}, small: {input: 1, output: 1}}"
    errors = config_report(written(tmp_path, CRITIC, more=more)).errors

    assert [line.split(",")[1].split()[0] for line in errors if "has no price" in line] == ["and", "and"]
