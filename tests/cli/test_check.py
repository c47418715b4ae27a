"""``spanscore check``: the effects of a configuration and its errors, without a request to any service."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spanscore.cli.main import app
from spanscore.errors import ConfigurationError

ROOT = Path(__file__).parents[2]
DROPS = "alerts: {exact_match: {baseline: 0.85, min_drop: 0.1}}"
WHOLE = """
judge: {model: lexical}
sampling:
  rate: 0.05
  rates: {faithfulness: 0.02}
  rules: [{when: {status: error}, rate: 1.0}, {when: {metadata: {user_tier: gold}}, rate: 0.5}]
metrics:
  - faithfulness: {pass_at: 0.7}
  - exact_match
  - topic_adherence
  - aspect_critic: {name: harmless, definition: "Could the response cause harm?", direction: lower}
capture: {extract: {retrieved_contexts: output.passages}}
alerts:
  faithfulness: {baseline: 0.85, min_drop: 0.1}
  harmless: {baseline: 0.98}
  topic_adherence: {baseline: 0.4, threshold: 0.3, min_scores: 50}
  exact_match: {}
"""


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(key, raising=False)


def ran(folder: Path, text: str, *arguments: str) -> Any:
    file = folder / "spanscore.yaml"
    file.write_text(text)
    return CliRunner().invoke(app("check"), ["check", str(file), *arguments], env={"COLUMNS": "200"})


def plan(folder: Path, text: str) -> Any:
    return json.loads(ran(folder, text, "--json").stdout)


def test_what_will_be_scored_is_reported(tmp_path: Path) -> None:
    result = ran(tmp_path, WHOLE)

    assert result.exit_code == 0, result.output
    for words in ("the offline heuristic", "0.02 … 1", "harmless", "metadata user_tier is 'gold'", "can be used"):
        assert words in result.stdout


def test_what_the_offline_judge_is_blind_to_is_reported_where_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    text = "metrics: [response_relevancy, {aspect_critic: {name: safe, definition: x}}]\n"

    offline, vectors, model = (
        plan(tmp_path, text + judged)["notes"]
        for judged in ("", "embeddings: 'openai:e'", "embeddings: 'openai:e'\njudge: {model: 'openai:gpt'}")
    )

    assert [note.partition(" c")[0].partition(" p")[0] for note in offline] == [
        "Offline, response_relevancy",
        "Offline, safe",
    ]
    assert [note.partition(" p")[0] for note in vectors] == ["Offline, safe"]
    assert not any("ffline" in note for note in model)


def test_each_field_says_where_it_comes_from(tmp_path: Path) -> None:
    fields = {metric["name"]: metric["fields"] for metric in plan(tmp_path, WHOLE)["metrics"]}

    assert (
        fields["faithfulness"]["single_turn"]["retrieved_contexts"]
        == "output.passages (capture.extract.retrieved_contexts)"
    )
    assert fields["faithfulness"]["single_turn"]["user_input"].startswith("the last human message, else question")
    assert "spanscore.references(reference=…)" in fields["exact_match"]["single_turn"]["reference"]
    assert fields["topic_adherence"]["multi_turn"]["user_input"].startswith("the messages of a unit")


def test_each_alert_says_from_how_many_scores_it_speaks(tmp_path: Path) -> None:
    alerts = {alert["metric"]: alert for alert in plan(tmp_path, WHOLE)["alerts"]}

    volumes = {name: alert["volume"] for name, alert in alerts.items()}
    minimum = {name: (volume["min_scores"], volume["min_requests"]) for name, volume in volumes.items()}
    assert minimum == {
        "faithfulness": (30, 1_500),
        "harmless": (30, 600),
        "topic_adherence": (50, 1_000),
        "exact_match": (30, 600),
    }
    assert "does not hold" in alerts["topic_adherence"]["notes"][0]
    assert "without a baseline" in alerts["exact_match"]["notes"][0]


LETTERS = [*"abcdefghijklmnopqrstuvwxyzäöüß"]
WRONG: dict[str, list[str]] = {
    "metrics: [faithfullness]": ["metrics:", "'faithfullness'", "did you mean 'faithfulness'"],
    "metrics: [{faithfulness: {strictness: 3}}]": ["faithfulness", "'strictness'", "it has"],
    "metrics: [exact_match, exact_match]": ["2 are called 'exact_match'", "a name of its own"],
    "metrics: [exact_match]\nsampling: {rates: {exact: 0.1}}": ["sampling.rates.exact", "'exact_match'"],
    "metrics: [exact_match]\nalerts: {exat_match: {}}": ["alerts.exat_match", "did you mean 'exact_match'?"],
    "metrics: ['tests.live:Grounded': {name: id}]": ["'id'", "spanscore.score.id"],
    "metrics: [exact_match]\njudge: {model: 'nonesuch:x'}": ["judge.model", "nonesuch"],
    "metrics: [{faithfulness: {pass_at: 3}}]": ["metrics: faithfulness: pass_at is 3"],
    f"metrics: [exact_match]\nmonitoring: {{dimensions: {{tier: {LETTERS}, lang: {LETTERS}}}}}": [
        "monitoring.dimensions: 1 evaluator versions of 1 metrics",
        "31 of tier (other included) × 31 of lang (other included) make 1,922 attribute sets",
        "1,500 fit",
    ],
}
LACKING: dict[str, list[str]] = {
    "metrics: [exact_match]\njudge: {model: 'openai:gpt-4o-mini'}": ["judge.model", "OPENAI_API_KEY is not set"],
    "metrics: [exact_match]\njudge: {model: 'openai:m', api_key_env: NOWHERE}": [
        "NOWHERE is not set in the environment"
    ],
    "metrics: [exact_match]\njudge: {model: lexical, fallback: ['anthropic:claude']}": [
        "judge.fallback.0 'anthropic:claude'",
        "ANTHROPIC_API_KEY",
    ],
    "metrics: [exact_match]\njudge: {model: 'anthropic:claude'}": ["'anthropic:claude'", "ANTHROPIC_API_KEY"],
    "metrics: [response_relevancy]\nembeddings: 'openai:x'\njudge: {model: lexical}": [
        "embeddings 'openai:x'",
        "OPENAI_",
    ],
}


@pytest.mark.parametrize("text", WRONG)
def test_what_cannot_be_is_named_and_the_exit_code_is_2(tmp_path: Path, text: str) -> None:
    result = ran(tmp_path, text)

    assert result.exit_code == 2
    assert all(word in " ".join(result.stderr.split()) for word in WRONG[text]), result.stderr
    assert result.stdout == ""  # no plan for an invalid configuration


@pytest.mark.parametrize("text", LACKING)
def test_what_the_environment_lacks_is_a_warning_and_3_where_it_must_be_ready(tmp_path: Path, text: str) -> None:
    result, strict = ran(tmp_path, text), ran(tmp_path, text, "--ready")

    assert (result.exit_code, strict.exit_code) == (0, 3)
    assert all(word in result.stderr for word in ("not ready here: ", *LACKING[text])), result.stderr
    assert "has no fault" in result.stdout


def test_a_library_that_is_missing_is_reported_once_with_its_pip_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setitem(sys.modules, "langchain_openai", None)

    result = plan(tmp_path, "metrics: [response_relevancy]\njudge: {model: 'openai:x'}\nembeddings: 'openai:y'")

    assert (result["ok"], result["ready"], result["faults"]) == (True, False, [])
    assert result["gaps"] == ['langchain-openai is not installed. Install it with: pip install "spanscore[openai]"']


def test_a_configuration_with_all_it_needs_is_ready(tmp_path: Path) -> None:
    assert ran(tmp_path, WHOLE, "--ready").exit_code == 0


def test_the_readmes_configuration_has_no_fault_where_no_key_is_set(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text("utf-8").partition("```yaml\n")[2].partition("```")[0]

    result = ran(tmp_path, text)

    assert (result.exit_code, "OPENAI_API_KEY" in result.stderr) == (0, True), result.output


def test_check_and_rules_tell_the_same_volumes(tmp_path: Path) -> None:
    checked = plan(tmp_path, WHOLE)["alerts"][0]
    made = CliRunner().invoke(
        app("rules"), ["rules", str(tmp_path / "spanscore.yaml"), "--out", str(tmp_path / "out"), "--json"]
    )
    planned = json.loads(made.stdout)["drops"][0]

    assert checked["metric"] == planned["metric"] == "faithfulness"
    assert checked["volume"].items() <= planned.items()
    assert checked["volume"]["requests_to_see"] == 50 * checked["volume"]["scores_to_see"] > 5_000


def test_both_volumes_are_reported_as_scores_and_as_requests(tmp_path: Path) -> None:
    result = ran(tmp_path, "metrics: [exact_match]\njudge: {model: lexical}\nsampling: {rate: 0.02}\n" + DROPS)

    assert "before it may alert: 30 scores, 1,500 requests" in result.stdout
    assert "to detect a drop of 0.1 half of the time: 489 scores, 24,450 requests" in result.stdout


def test_a_metric_that_is_never_scored_never_speaks(tmp_path: Path) -> None:
    result = ran(tmp_path, "metrics: [exact_match]\njudge: {model: lexical}\nsampling: {rate: 0}\n" + DROPS)

    assert "30 scores, never: its rate is 0" in result.stdout


@pytest.mark.parametrize(
    ("given", "priced"), [("gpt-4o-mini", True), ("gpt-4o", False), (None, False)], ids=["its own", "another's", "none"]
)
def test_prices_are_reported_and_the_model_that_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, priced: bool
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    prices = f", prices: {{{given}: {{input: 0.15, output: 0.6}}}}" if given else ""

    result = ran(tmp_path, f"metrics: [faithfulness]\njudge: {{model: 'openai:gpt-4o-mini'{prices}}}")

    assert (f"price of {given}: 0.15 USD per million tokens read, 0.6 written" in result.stdout) == (given is not None)
    assert ("judge.prices has no price of gpt-4o-mini" in result.stdout) == (not priced), result.stdout


def test_the_offline_judge_needs_no_price(tmp_path: Path) -> None:
    assert "price" not in ran(tmp_path, WHOLE).stdout


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    text = "metrics: [faithfullness, {aspect_critic: {}}]\njudge: {model: 'openai:x'}"

    result = plan(tmp_path, text)

    assert (len(result["faults"]), len(result["gaps"]), "metrics" in result) == (2, 1, False)


@pytest.mark.parametrize(
    ("metrics", "faults"),
    [
        ("[exact_match, {aspect_critic: {aspect: harmfulnes}}]", 1),
        ("[exact_match, {exact_match: {oops: 1}}]", 1),
        ("[{exact_match: {oops: 1}}, {exact_match: {foo: 1}}]", 2),
    ],
)
def test_each_wrong_entry_of_a_metric_is_reported_whatever_its_name(tmp_path: Path, metrics: str, faults: int) -> None:
    assert len(plan(tmp_path, f"metrics: {metrics}")["faults"]) == faults


def test_embeddings_that_are_missing_beside_a_model_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")

    faults = plan(tmp_path, "metrics: [response_relevancy]\njudge: {model: 'openai:x'}")["faults"]

    assert ["response_relevancy needs embeddings" in fault for fault in faults] == [True]


FOUR = """
metrics: [faithfullness, exact_match]
sampling: {rte: 3, rate: 5}
judge: {model: 'opnai:gpt-4o-mini'}
"""
"""An unknown key, an unknown metric, an invalid rate and an invalid judge."""


def test_faults_of_every_kind_are_reported_in_one_run(tmp_path: Path) -> None:
    result = ran(tmp_path, FOUR)

    headline, *faults = result.stderr.splitlines()
    assert headline.endswith("spanscore.yaml: 4 wrong settings")
    assert [fault.split(":")[0].strip() for fault in faults] == [
        "sampling.rate",
        "sampling.rte",
        "metrics",
        "judge.model",
    ]
    for words in ("given: 5", "did you mean 'rate'", "'opnai:gpt-4o-mini'", "did you mean 'faithfulness'"):
        assert words in result.stderr
    assert "did you mean 'openai:gpt-4o-mini'? Write 'lexical' or 'provider:model', with one of " in result.stderr
    assert "openai, openrouter" in faults[3]


def test_a_program_gets_the_same_faults(tmp_path: Path) -> None:
    result = ran(tmp_path, FOUR, "--json")

    assert result.exit_code == 2
    assert len(json.loads(result.stdout)["faults"]) == 4


ALSO_WRONG: dict[str, list[str]] = {
    "metrics: [{faithfulness: 0.7}, 3]\nalerts: {exact: {}}": ["metrics.0", "metrics.1"],  # names are not known then
    "metrics: faithfulness\nserve: x": ["metrics", "serve"],
    "sampling: {rules: [{when: {status: bad}, rate: 7}, {when: {}}, 4]}\nmetrics: [exact_match]": [
        "sampling.rules.0.when.status",
        "sampling.rules.0.rate",
        "sampling.rules.1.rate",
        "sampling.rules.2",
    ],
    "metrics: [exact_match]\nserve_metrics: 99999\nalerts: {1: {}, exact_match: {min_drop: 2, baseline: 0.04}}": [
        "serve_metrics.port",
        "alerts.1.[key]",
        "alerts.exact_match.min_drop",
    ],
    "metrics: [exact_match]\nmonitoring: {windows: [x, 9]}\njudge: {model: 'openai:'}": [
        "monitoring.windows.0",
        "judge.model",
    ],
    "metrics: [exact_match, faithfullness]\nsampling: {rates: {faithfulness: 0.1, exact: 0.2}}\nalerts: {exat: {}}": [
        "metrics",
        "sampling.rates.exact",
        "alerts.exat",
    ],
    "metrics: [exact_match]\nsampling: {key: ''}\ncapture: {extract: {user_input: a.b, response: c}}\n"
    "monitoring: {dimensions: {spanscore.evaluator.version: [a]}}": [
        "sampling.key",
        "capture.extract.user_input",
        "capture.extract.response",
        "monitoring.dimensions",
    ],
}


@pytest.mark.parametrize("text", ALSO_WRONG)
def test_each_fault_is_reported_once_and_none_that_another_causes(tmp_path: Path, text: str) -> None:
    faults = plan(tmp_path, text)["faults"]

    assert [fault.split(": ")[0] for fault in faults] == ALSO_WRONG[text], faults


def test_what_a_variable_of_the_environment_says_is_reported_with_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANSCORE_SAMPLING__RATE", "often")

    faults = plan(tmp_path, "metrics: [faithfullness]")["faults"]

    assert [fault.split(":")[0] for fault in faults] == ["sampling.rate", "metrics"]
    assert "(given: 'often')" in faults[0]


def test_a_variable_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPANSCORE_METRICS", "faithfulness")

    result = ran(tmp_path, "metrics: [faithfulness]")

    assert "SPANSCORE_METRICS of the environment is no JSON" in str(result.exception)


UNREADABLE = {
    b"\x89PNG\xff\x00": "is not valid UTF-8",
    b"- a\n- b\n": "holds no settings",
    b"metrics: [a": "line 1 is no YAML: a list",
}


@pytest.mark.parametrize("content", UNREADABLE)
def test_a_file_that_is_no_configuration_is_an_error_and_json_where_asked(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "spanscore.yaml"
    file.write_bytes(content)

    result, as_json = (CliRunner().invoke(app("check"), ["check", str(file), *more]) for more in ([], ["--json"]))

    with pytest.raises(ConfigurationError, match="(?s)" + UNREADABLE[content]):
        raise result.exception or AssertionError
    assert as_json.exit_code == 2
    assert json.loads(as_json.stdout)["faults"] == [str(result.exception)]


def test_a_folder_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is a folder"):
        raise CliRunner().invoke(app("check"), ["check", str(tmp_path)]).exception or AssertionError


def test_the_name_that_a_metric_had_before_is_read_everywhere(tmp_path: Path) -> None:
    text = """
metrics: [nv_context_relevance, answer_accuracy]
sampling: {rates: {nv_context_relevance: 0.5, nv_accuracy: 0.25}}
alerts: {nv_context_relevance: {baseline: 0.8}, nv_accuracy: {baseline: 0.7}}
"""

    found = plan(tmp_path, text)

    assert found["faults"] == []
    assert {metric["name"]: metric["rate"] for metric in found["metrics"]} == {
        "context_relevance": 0.5,
        "answer_accuracy": 0.25,
    }
    assert [alert["metric"] for alert in found["alerts"]] == ["context_relevance", "answer_accuracy"]


def test_a_name_from_before_that_is_kept_is_kept(tmp_path: Path) -> None:
    text = """
metrics: [{context_relevance: {name: nv_context_relevance}}]
sampling: {rates: {nv_context_relevance: 0.5}}
"""

    found = plan(tmp_path, text)

    assert (found["faults"], found["metrics"][0]["name"], found["metrics"][0]["rate"]) == (
        [],
        "nv_context_relevance",
        0.5,
    )


PAID = """
judge:
  model: openai:gpt-4o-mini
  budget: [{usd: 0.02, per: 1h}, {calls: 500, per: 1m, metric: faithfulness}]
  prices: {gpt-4o*: {input: 0.15, output: 0.60}}
embeddings: lexical
sampling: {rate: 0.5}
metrics: [faithfulness, exact_match, {aspect_critic: {name: harmless, definition: "Harm?"}}]
alerts: {faithfulness: {baseline: 0.85, min_drop: 0.1}}
"""


def test_what_a_score_costs_and_what_a_budget_buys_is_reported(tmp_path: Path) -> None:
    tokens = "metric: faithfulness}, {tokens: 1234567, per: 30d}]"
    output = ran(tmp_path, PAID.replace("metric: faithfulness}]", tokens)).stdout

    assert " USD per 1,000; 2 questions, " in output
    assert " USD per 1,000; 1 question, " in output
    assert "exact_match: " not in output
    assert "budget of 0.02 usd per 1h: " in output
    assert "budget of 1,234,567 tokens per 30d: " in output


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ("budget: [{usd: 0, per: 1h}]", "judge.budget.0.usd: must be greater than 0 (given: 0)"),
        ("budget: [{calls: 5, per: 30s}]", "judge.budget.0.per: '30s'; allowed is 1m to 30d"),
        ("budget: [{usd: 1, tokens: 5, per: 1h}]", "judge.budget.0: a budget has exactly one of usd, tokens, calls"),
        (
            "budget: [{calls: 5, per: 1h, metric: faithfulnes}]",
            "judge.budget.faithfulnes: no metric has this name; did you",
        ),
        ("budget: [{calls: 5}]", "judge.budget.0.per: is required"),
        ("replica_share: 0", "judge.replica_share: "),
        ("replica_share: 1.5", "judge.replica_share: "),
        (
            "{model: openai:m, budget: [{usd: 5, per: 1h}]}",
            "'m' has no price; set judge.prices: {m: {input: …, output: …}}",
        ),
    ],
)
def test_a_budget_that_cannot_be_is_refused_with_its_key_and_what_is_allowed(
    given: str, wrong: str, tmp_path: Path
) -> None:
    judge = given if given.startswith("{") else f"{{{given}}}"

    refused = ran(tmp_path, f"metrics: [faithfulness]\nembeddings: lexical\njudge: {judge}\n")

    assert refused.exit_code == 2
    assert wrong in refused.stderr


def test_how_the_judge_is_asked_is_reported_without_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "hunter2")
    monkeypatch.setenv("HEADER", "hunter3")
    text = """
metrics: [exact_match]
judge:
  model: openai:m
  base_url: http://gateway/v1
  api_key_env: GATEWAY_KEY
  model_kwargs: {temperature: 0, default_headers: {x-api-key: "${HEADER}"}}
  timeout: 5m
  prompt_cache: false
  fallback: [{model: 'openai:n', base_url: 'http://other/v1'}]
limits: {timeout: 3m}
"""

    output = " ".join(ran(tmp_path, text).stdout.split())

    assert "judge.base_url: http://gateway/v1 judge.api_key_env: GATEWAY_KEY" in output
    assert "judge.model_kwargs: {temperature: 0, default_headers: {x-api-key: …}} judge.timeout: 300" in output
    assert "judge.prompt_cache: false" in output
    assert "judge.fallback: [{model: openai:n, base_url: http://other/v1}]" in output
    assert "judge.timeout is 300 s and limits.timeout 180 s: a score ends before the first attempt" in output
    assert "hunter" not in output


@pytest.mark.parametrize("folder", [".", "nowhere"])
def test_the_file_of_a_cache_is_looked_at_and_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    cache = tmp_path / folder / "answers.sqlite"

    result = ran(tmp_path, f"metrics: [faithfulness]\njudge: {{model: 'openai:m', cache: {cache}}}\n")

    assert ("judge.cache" in result.output and "cannot be written" in result.output) == (folder == "nowhere")
    assert not cache.exists()


def test_a_stand_in_without_a_price_is_a_fault_of_a_budget_in_money(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    judge = (
        "{model: 'openai:m', fallback: ['openai:n'], prices: {m: {input: 1, output: 1}}, budget: [{usd: 2, per: 1h}]}"
    )

    result = ran(tmp_path, f"metrics: [faithfulness]\njudge: {judge}\n")

    assert result.exit_code == 2
    assert "'n' has no price" in result.output


@pytest.mark.parametrize(
    ("metrics", "budget", "refused"),
    [
        ("[response_relevancy]", "{usd: 2, per: 1h}", True),
        ("[response_relevancy, faithfulness]", "{usd: 2, per: 1h, metric: faithfulness}", False),
        ("[faithfulness]", "{usd: 2, per: 1h}", False),  # asks none
        ("[response_relevancy]", "{calls: 2, per: 1h}", False),
    ],
)
def test_embeddings_without_a_price_are_a_fault_of_a_budget_in_money(
    metrics: str, budget: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    judge = f"{{model: 'openai:m', prices: {{m: {{input: 1, output: 1}}}}, budget: [{budget}]}}"

    result = ran(tmp_path, f"metrics: {metrics}\nembeddings: 'openai:vectors'\njudge: {judge}\n")

    assert ("'vectors' has no price" in result.output) == refused
    assert (result.exit_code == 2) == refused


def test_it_says_what_serve_would_do_where_the_file_says_how(tmp_path: Path) -> None:
    given = (
        "serve: {grpc: null, http: '127.0.0.1:9', mode: proxy, forward: {endpoint: 'http://me:pass@backend:4318/otlp'}}"
    )
    (tmp_path / "spanscore.yaml").write_text(f"metrics: [exact_match]\n{given}")

    result = CliRunner().invoke(app("check"), ["check", str(tmp_path / "spanscore.yaml")])

    assert result.exit_code == 0
    assert "spanscore serve: http 127.0.0.1:9 (plain text, no token)" in result.output
    assert "mode proxy: spans are sent on to http://backend:4318/otlp, with their scores" in result.output


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ("{mode: proxy}", 2, "serve.mode: proxy has nothing to forward to"),
        ("{http: '0.0.0.0:4318'}", 2, "insecure: true"),
        ("{htp: '127.0.0.1:4318'}", 2, "serve.htp: no such setting; did you mean 'http'?"),
        ("{token_env: NOT_THERE}", 3, "NOT_THERE"),
    ],
)
def test_it_says_what_keeps_serve_from_listening(given: str, code: int, words: str, tmp_path: Path) -> None:
    (tmp_path / "spanscore.yaml").write_text(f"metrics: [exact_match]\nserve: {given}")

    result = CliRunner().invoke(app("check"), ["check", "--ready", str(tmp_path / "spanscore.yaml")])

    assert (result.exit_code, words in result.output) == (code, True)


def test_what_sums_and_alerts_are_distinguished_by_is_reported(tmp_path: Path) -> None:
    dimensions = "monitoring: {dimensions: {user_tier: [gold, free]}}"

    output = ran(tmp_path, f"judge: {{model: lexical}}\nmetrics: [exact_match]\n{dimensions}\n").stdout

    assert "sums and alerts are split by user_tier: gold, free; any other value is in the sums only, as other" in output


def test_a_definition_that_speaks_of_contexts_it_is_not_shown_is_a_note(tmp_path: Path) -> None:
    text = 'metrics: [{aspect_critic: {definition: "It keeps to the documents."FIELDS}}]'

    result = ran(tmp_path, text.replace("FIELDS", ""))
    named = plan(tmp_path, text.replace("FIELDS", ", fields: [response, retrieved_contexts]"))

    assert "its instruction or condition speaks of 'documents'" in result.output
    assert "Warning" not in result.output
    assert not any("condition speaks" in note for note in named["notes"])
    assert set(named["metrics"][0]["fields"]["single_turn"]) == {"response", "retrieved_contexts"}
