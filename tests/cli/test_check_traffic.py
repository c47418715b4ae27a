"""``spanscore check`` with traffic: the cost of a day, the effect of budgets, and the detectable drops."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.cli.test_check import PAID
from typer.testing import CliRunner

from spanscore import semconv
from spanscore.cli._cost_plan import requests_per_day_in
from spanscore.cli.main import app
from spanscore.core.codecs.otlp import json_line
from spanscore.errors import ConfigurationError

UNPAID = "judge: {model: lexical}\nmetrics: [exact_match]\nalerts: {exact_match: {baseline: 0.85}}\n"
UNITS = r"1,000 units with all their scores cost [\d.]+ USD"
DAY = r"a day of 1,000,000 requests costs [\d.]+ USD, [\d.]+ USD per 1,000 requests"


def ran(folder: Path, text: str, *arguments: str, columns: int = 80) -> Any:
    file = folder / "spanscore.yaml"
    file.write_text(text)
    return CliRunner().invoke(app("check"), ["check", str(file), *arguments], env={"COLUMNS": str(columns)})


def plan(folder: Path, text: str, *arguments: str) -> Any:
    return json.loads(ran(folder, text, "--json", *arguments).stdout)


def days(folder: Path, text: str, *arguments: str) -> dict[str, Any]:
    return {day["metric"]: day for day in plan(folder, text, *arguments)["days"]}


def profile(folder: Path, rows: Iterable[str]) -> str:
    (folder / "traffic.csv").write_text("\n".join(rows) + "\n")
    return str(folder / "traffic.csv")


RATES = {
    "1e6": 1e6, "1_000_000": 1e6, "1,000,000": 1e6, "500k": 5e5, "1.5M": 1.5e6, "20000": 2e4,
    "12/s": 12 * 86_400, "700/min": 700 * 1_440, "40k/h": 960_000, "1e6/d": 1e6, "2.5 / s": 216_000,
}  # fmt: skip


@pytest.mark.parametrize("text", RATES)
def test_a_rate_may_be_written_as_people_write_it(text: str) -> None:
    assert requests_per_day_in(text) == pytest.approx(RATES[text])


@pytest.mark.parametrize("text", ["many", "0", "-5", "1e999", "5/week", "12 per s", "1,00", "nan", ""])
def test_what_is_no_rate_is_refused_with_the_forms_that_are_allowed(tmp_path: Path, text: str) -> None:
    result = ran(tmp_path, UNPAID, f"--requests-per-day={text}", columns=200)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "is not a rate of requests; write for example 1e6, 1_000_000, 500k" in result.stderr


@pytest.mark.parametrize(
    ("given", "first"),
    [
        (["--requests-per-day", "1e6"], f"{DAY}; {UNITS}"),
        ([], UNITS),
    ],
)
def test_money_comes_first(tmp_path: Path, given: list[str], first: str) -> None:
    assert re.fullmatch(first, ran(tmp_path, PAID, *given, columns=200).stdout.splitlines()[0])


@pytest.mark.parametrize(
    ("config", "first"),
    [
        ("judge: openai:m\nmetrics: [faithfulness]", "the cost of judging is unknown: no price"),
        ("judge: lexical\nmetrics: [faithfulness]", "judging costs nothing: no metric asks a model"),
    ],
)
def test_what_is_not_known_is_no_zero(tmp_path: Path, config: str, first: str) -> None:
    assert ran(tmp_path, config.replace("judge: ", "judge: {model: ").replace("\n", "}\n", 1)).stdout.startswith(first)


def test_without_the_traffic_one_line_says_how_to_ask(tmp_path: Path) -> None:
    output = ran(tmp_path, PAID, columns=200).stdout

    assert [line for line in output.splitlines() if "--requests-per-day" in line] == [
        "for the cost of a day and the drops that are detected: --requests-per-day 1e6, or 500k, 12/s, 700/min"
    ]
    assert "smallest drop" not in output


def test_a_share_is_named_with_its_category(tmp_path: Path) -> None:
    text = """judge: {model: "openai:gpt-4o-mini"}
metrics: [{category: {name: intent, question: "What is wanted?", categories: {refund: money back, other: the rest}}}]
alerts: {intent: {share_of: refund, baseline: 0.04}}
"""
    output = ran(tmp_path, text, "--requests-per-day", "1e6", columns=200).stdout

    assert "smallest drop (of a share: rise) that is detected" in output
    assert re.search(r"│ intent=refund +│ 0\.05", output), output


def test_the_sum_of_a_day_names_the_scores_that_it_lacks(tmp_path: Path) -> None:
    text = "judge: {model: lexical}\nmetrics: [exact_match, {agent_goal_accuracy: {per: session}}]\n"
    output = ran(tmp_path, text, "--requests-per-day", "1e6", columns=200).stdout

    assert "without metrics of conversations, whose number is unknown" in output


def test_a_day_has_each_metrics_calls_tokens_and_cost(tmp_path: Path) -> None:
    free = PAID.replace("budget: [{usd: 0.02, per: 1h}, {calls: 500, per: 1m, metric: faithfulness}]", "")
    found = plan(tmp_path, free, "--requests-per-day", "20k")

    one = {cost["metric"]: cost for cost in found["costs"]}["faithfulness"]
    day = {day["metric"]: day for day in found["days"]}
    tokens = one["input_tokens"] + one["output_tokens"]
    assert found["requests_per_day"] == 20_000
    assert day["faithfulness"] == {
        "metric": "faithfulness",
        "rate": 0.5,
        "factor": 1.0,
        "bought": None,
        "scores": 10_000,
        "calls": 20_000,
        "tokens": 10_000 * tokens,
        "usd": pytest.approx(10_000 * one["usd"]),
    }
    assert (day["exact_match"]["scores"], day["exact_match"]["calls"], day["exact_match"]["usd"]) == (10_000, 0, 0)


def test_what_a_budget_buys_is_a_rate_below_or_above_the_one_that_is_asked_for(tmp_path: Path) -> None:
    much, little = (days(tmp_path, PAID, "--requests-per-day", rate) for rate in ("4k", "20k"))

    assert 0.5 < much["faithfulness"]["bought"] < 1
    assert much["faithfulness"]["factor"] == 1
    assert little["faithfulness"]["bought"] == pytest.approx(0.5 * little["faithfulness"]["factor"])
    assert little["faithfulness"]["bought"] == pytest.approx(much["faithfulness"]["bought"] / 5)
    assert little["harmless"]["usd"] + little["faithfulness"]["usd"] == pytest.approx(0.95 * 0.02 * 24)
    assert little["exact_match"]["bought"] is None


def test_where_one_metric_may_have_less_the_others_may_have_more(tmp_path: Path) -> None:
    less = PAID.replace("calls: 500, per: 1m", "calls: 100, per: 1d")

    before, after = (days(tmp_path, text, "--requests-per-day", "20000") for text in (PAID, less))

    assert after["faithfulness"]["factor"] < before["faithfulness"]["factor"]
    assert after["harmless"]["factor"] > before["harmless"]["factor"]


def test_a_second_judge_has_its_own_price_and_budget(tmp_path: Path) -> None:
    shadow = "{faithfulness: {shadow: {model: 'openai:gpt-4o', budget: [{usd: 0.5, per: 1d}]}}}"
    text = PAID.replace("[faithfulness,", f"[{shadow},").replace(
        "prices: {", "prices: {gpt-4o: {input: 2.5, output: 10}, "
    )

    found = plan(tmp_path, text, "--requests-per-day", "20000")

    (one,), (day,) = found["shadow_costs"], found["shadow_days"]
    assert one["usd"] > 15 * found["costs"][0]["usd"]
    assert day["usd"] == pytest.approx(0.95 * 0.5)
    assert day["scores"] < found["days"][0]["scores"]
    assert "│ faithfulness (shadow) " in ran(tmp_path, text, "--requests-per-day", "20000", columns=200).stdout


def test_longer_contexts_cost_more_where_a_metric_reads_them(tmp_path: Path) -> None:
    short, long = (
        {cost["metric"]: cost["input_tokens"] for cost in plan(tmp_path, PAID, *given)["costs"]}
        for given in ([], ["--context-tokens", "3500"])
    )

    assert 3_200 < long["faithfulness"] - short["faithfulness"] < 3_500
    assert long["exact_match"] == 0


def test_what_scores_cost_before_is_believed_before_the_card(tmp_path: Path) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    said: dict[str, str | int]
    for read, source in ((5_000, None), (7_000, None), (90_000, "fallback"), (0, None)):
        # The offline judge counts no tokens.
        tokens = {semconv.JUDGE_INPUT_TOKENS: read, semconv.JUDGE_OUTPUT_TOKENS: 80} if read else {}
        judged = {semconv.JUDGE_CALLS_ATTRIBUTE: 2, **tokens}
        said = {
            semconv.EVALUATION_NAME: "faithfulness",
            **judged,
            **({semconv.EVALUATION_SOURCE: source} if source else {}),
        }
        provider.get_tracer(semconv.SCOPE).start_span("evaluation faithfulness", attributes=said).end()
    (tmp_path / "spans.jsonl").write_text(json_line(spans.get_finished_spans()))

    output = ran(tmp_path, PAID, "--costs-from", str(tmp_path / "spans.jsonl"), columns=200).stdout

    assert (
        "faithfulness: 0.95 USD per 1,000; 2 questions, 6,000 tokens read and 80 written (measured on 2 scores)"
        in output
    )
    assert " USD per 1,000; 1 question, 1" in output


@pytest.mark.parametrize(("content", "wrong"), [("", "it holds no score of"), ("{}\n[", "2"), (None, "No such file")])
def test_a_file_that_tells_no_cost_is_an_error(tmp_path: Path, content: str | None, wrong: str) -> None:
    if content is not None:
        (tmp_path / "spans.jsonl").write_text(content)

    result = ran(tmp_path, PAID, "--costs-from", str(tmp_path / "spans.jsonl"))

    assert wrong in str(result.exception)


def test_of_each_alert_the_smallest_drop_that_is_seen_is_reported(tmp_path: Path) -> None:
    (alert,) = plan(tmp_path, UNPAID, "--requests-per-day", "1e5")["alerts"]

    hour, day, fortnight = alert["smallest"]
    assert [one["within_s"] for one in alert["smallest"]] == [3_600, 86_400, 14 * 86_400]
    assert fortnight["at_best"] < day["at_best"] < hour["at_best"] < 0.85
    assert all(one["at_best"] == one["at_worst"] for one in alert["smallest"])


def test_what_is_not_detectable_is_reported(tmp_path: Path) -> None:
    text = " ".join(
        ran(tmp_path, UNPAID, "--requests-per-day", "20", columns=200).stdout.split()
    )  # 30 scores take 1.5 days

    assert text.count("not detectable │") == 3
    assert "a drop of 0.05 is not detectable within 14 days: raise the rate, or min_drop" in text


def test_by_a_profile_a_drop_is_seen_sooner_in_the_busy_hours(tmp_path: Path) -> None:
    rows = [f"{hour},{5_000 if 8 <= hour < 18 else 10}" for hour in range(24)]
    given = ["--profile", profile(tmp_path, ["hour,requests", *rows])]

    found = plan(tmp_path, UNPAID, *given)

    hour, day, _ = found["alerts"][0]["smallest"]
    assert found["requests_per_day"] == 50_140
    assert (0 < hour["at_best"] < 0.85, hour["at_worst"]) == (True, None)
    assert day["at_best"] == day["at_worst"]
    assert plan(tmp_path, UNPAID, *given, "--requests-per-day", "1e6")["requests_per_day"] == pytest.approx(1e6)


BAD_ROWS = {
    "24,5": "hour 3 is missing",
    "2,9": "line 4: hour 2 is there twice",
    "x,9": "line 4: 'x' is not an hour; write 0 to 23 of a day, or 0 to 167 of a week",
    "168,9": "line 4: '168' is not an hour",
    "1.5,9": "line 4: '1.5' is not an hour",
    "3,-1": "line 4: '-1' is not a number of requests",
    "3,many": "line 4: 'many' is not a number of requests",
    "3,inf": "line 4: 'inf' is not a number of requests",
    "3": "line 4: it has 1 columns; write hour,requests",
    "3,4,5": "line 4: it has 3 columns",
    "3,4": "hour 4 is missing; a profile has 24 rows, of a day, or 168, of a week",
}


@pytest.mark.parametrize("row", BAD_ROWS)
def test_a_bad_row_of_a_profile_is_refused_with_its_line(tmp_path: Path, row: str) -> None:
    result = ran(tmp_path, UNPAID, "--profile", profile(tmp_path, ["0,5", "1,5", "2,5", row]))

    assert isinstance(result.exception, ConfigurationError)
    assert BAD_ROWS[row] in str(result.exception)


def test_a_profile_that_is_not_there_or_has_no_request_is_refused(tmp_path: Path) -> None:
    silent = profile(tmp_path, [f"{hour},0" for hour in range(24)])

    result = [str(ran(tmp_path, UNPAID, "--profile", file).exception) for file in (silent, "/nowhere.csv")]

    assert ["no hour has a request" in result[0], "No such file" in result[1]] == [True, True]


@pytest.mark.parametrize("columns", [80, 110])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, columns: int) -> None:
    output = ran(tmp_path, PAID, "--requests-per-day", "1e6", "--context-tokens", "3500", columns=columns).stdout

    assert max(map(len, output.partition("a day of")[2].splitlines()[:-1])) <= columns
    assert "│ faithfulness │ 0.5" in output


@pytest.mark.parametrize(
    ("judge", "shown"),
    [("", True), (", prompt_cache: false", False), (", prompt_order: instruction_first", False)],
)
def test_tokens_from_the_providers_cache_are_in_the_plan(tmp_path: Path, judge: str, shown: bool) -> None:
    prices = "prices: {gpt-4o-mini: {input: 0.15, output: 0.60, cached_input: 0.075}}"
    text = f'judge: {{model: "openai:gpt-4o-mini", {prices}{judge}}}\nmetrics: [faithfulness, context_relevance]\n'

    lines = plan(tmp_path, text, "--context-tokens", "4000")["spending"]

    match = [re.search(r"(\d,\d+) of (\d+,\d+) tokens come from the provider's cache", line) for line in lines]
    assert any(match) is shown


def test_contexts_too_short_for_a_cache_are_in_no_plan_of_one(tmp_path: Path) -> None:
    text = 'judge: {model: "openai:gpt-4o-mini", prices: {gpt-4o-mini: {input: 1, output: 2, cached_input: 0.1}}}\n'

    lines = plan(tmp_path, f"{text}metrics: [faithfulness, context_relevance]\n")["spending"]

    assert not any("provider's cache" in line for line in lines)
