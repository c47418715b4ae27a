"""``spanscore explain``: the traces of a file, each with its tree, its sampling and its missing parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.stored.test_explaining import CHAT, TALK, span
from typer.testing import CliRunner

from spanscore.cli.main import app
from spanscore.errors import ConfigurationError


def ran(*arguments: Any) -> Any:
    return CliRunner().invoke(app("explain"), ["explain", *map(str, arguments)], env={"COLUMNS": "80"})


@pytest.fixture
def spans(tmp_path: Path) -> Path:
    file = tmp_path / "spans.jsonl"
    file.write_text("\n".join([span(1, "chat m", TALK), "not a request"]))
    return file


def test_a_trace_is_a_tree_and_what_was_taken_from_where(spans: Path) -> None:
    done = ran(spans)

    assert done.exit_code == 0, done.output
    assert [line.rstrip() for line in done.stdout.splitlines()] == [
        "trace 00000000000000000000000000000001: 1 span, 1 unit",
        "1 chat m                                                             genai, root",
        "  root      1 chat m (chat): topmost span that can hold a question and an",
        "            answer: it has no parent",
        "  question  Who gets in free?",
        "            from 1 chat m: gen_ai.input.messages",
        "  answer    Children under twelve.",
        "            from 1 chat m: gen_ai.output.messages",
        "  context   none",
        "",
        "not read: spans.jsonl line 2: not an OTLP trace request (JSONDecodeError)",
    ]


@pytest.mark.parametrize("option", ["--since", "--until"])
def test_times_are_refused_for_a_file(spans: Path, option: str) -> None:
    refused = ran(spans, option, "7d")

    assert isinstance(refused.exception, ConfigurationError)
    assert f"are for a trace store: {spans} is read whole" in str(refused.exception)


def test_json_has_the_same(spans: Path) -> None:
    document = json.loads(ran(spans, "--json").stdout)

    (trace,) = document["traces"]
    assert (trace["units"][0]["root"], trace["spans"][0]["claimed_by"]) == ("chat m", "genai")
    assert [one["name"] for one in document["unread"]] == ["spans.jsonl line 2"]


def test_the_metrics_of_a_configuration_say_which_fields_are_missing(spans: Path, tmp_path: Path) -> None:
    config = tmp_path / "spanscore.yaml"
    config.write_text("judge: lexical\nmetrics: [faithfulness, answer_correctness]\n")

    (trace,) = json.loads(ran(spans, "--config", config, "--json").stdout)["traces"]

    (unit,) = trace["units"]
    assert unit["missing"] == {"faithfulness": ["retrieved_contexts"], "answer_correctness": ["reference"]}
    contexts, reference = unit["change"]
    assert contexts.startswith("capture.extract.retrieved_contexts")
    assert reference.startswith("the application provides reference: spanscore.references(reference=…)")


def test_no_texts_shows_places_alone(spans: Path) -> None:
    assert "Children" not in ran(spans, "--no-texts").stdout
    assert "gen_ai.output.messages" in ran(spans, "--no-texts").stdout


def test_one_trace_is_chosen_by_its_id(spans: Path) -> None:
    assert ran(spans, "--trace", f"{1:032x}", "--json").exit_code == 0

    spans.write_text(span(1, "chat m", CHAT))
    with pytest.raises(ConfigurationError, match="holds no trace 2; a trace id has 32 hex digits"):
        raise ran(spans, "--trace", "2").exception
