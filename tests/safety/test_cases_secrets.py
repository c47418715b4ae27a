"""Cases and gates: a planted secret gets nowhere with a redactor, and without one only into the files that were named."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.safety.test_secrets import REDACTORS, SECRET, Host, Quoting, chain
from typer.testing import CliRunner

import spanscore
from spanscore import OnlineScorer
from spanscore.cli.main import app
from spanscore.config import Capture, Collect, Limits
from spanscore.metrics import AspectCritic, Faithfulness
from spanscore.testing import assert_quality

pytestmark = pytest.mark.flaky(reruns=2)  # scenes with deadlines, on a machine that others may use too

NAME = "tests.safety.test_cases_secrets:{}"
redacts, raises = REDACTORS["redacts"], REDACTORS["raises"]
"""The names by which a command gets them."""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    with ExitStack() as stack:
        yield Host(stack, monkeypatch)


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    logging.getLogger().addHandler(handler)
    yield text
    logging.getLogger().removeHandler(handler)


def holding(folder: Path) -> set[str]:
    """The files of a folder that hold the secret."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {file.name for file in files if SECRET in file.read_text(errors="replace")}


# --- in process ---------------------------------------------------------------------------------------------------


def collected(host: Host, out: Path, **options: Any) -> Any:
    """Score a chain full of the secret, and a hand-made sample, so that both are cases."""
    metrics = [Faithfulness("lexical"), AspectCritic("lexical", name="harmless", definition="?"), Quoting()]
    wanted = Collect(when=["faithfulness<=1", "harmless=pass"], out=out)
    scorer = OnlineScorer(metrics, service_name="app", limits=Limits(timeout=2), collect=wanted, **options)
    with spanscore.references(reference=f"It is {SECRET}"):
        chain().invoke({"question": f"Where is {SECRET}?"}, config={"callbacks": [scorer.handler]})
    scorer.submit(spanscore.SingleTurnSample(user_input=SECRET, response=f"{SECRET}!", retrieved_contexts=[SECRET]))
    scorer.flush(10)
    status = scorer.status()
    scorer.shutdown(5)
    return status


def test_with_a_redactor_the_file_of_a_scorer_holds_no_secret(
    host: Host, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status = collected(host, tmp_path / "cases.jsonl", capture=Capture(content=True), redactor=redacts)

    assert status.collected.cases == {"written": 2}
    assert "[key]" in (tmp_path / "cases.jsonl").read_text()
    assert holding(tmp_path) == set()
    assert SECRET not in host.left() + str(status) + "".join(capfd.readouterr())


@pytest.mark.parametrize("redactor", sorted(REDACTORS.keys() - {"redacts"}))
def test_where_the_redactor_fails_nothing_is_collected(host: Host, tmp_path: Path, redactor: str) -> None:
    status = collected(host, tmp_path / "cases.jsonl", redactor=REDACTORS[redactor])

    assert (status.collected.cases, [*tmp_path.iterdir()]) == ({}, [])


def test_without_a_redactor_it_is_in_that_file_alone(
    host: Host, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Content stays off the spans, as it does without it."""
    status = collected(host, tmp_path / "cases.jsonl")

    assert holding(tmp_path) == {"cases.jsonl"}
    assert host.collector.spans
    assert SECRET not in host.left() + str(status) + "".join(capfd.readouterr())


def test_a_fault_of_the_file_quotes_no_content(host: Host, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status = collected(host, tmp_path / "missing" / "cases.jsonl")

    assert status.collected.fault == "No such file or directory"
    assert SECRET not in host.left() + str(status) + "".join(capfd.readouterr())


# --- commands -----------------------------------------------------------------------------------------------------

CASES: list[dict[str, Any]] = [
    *(
        {
            "id": f"case-{number}",
            "user_input": f"Where is {SECRET} ({number})?",
            "retrieved_contexts": [f"The key {SECRET} is green."],
            "response": f"The vault of {SECRET} burned down in 1912.",
            "reference": f"It is {SECRET}",
        }
        for number in range(4)
    ),
    {
        "id": "talk",
        "user_input": [
            {"type": "human", "content": f"Find {SECRET}."},
            {"type": "ai", "content": "", "tool_calls": [{"name": "look_up", "args": {"key": SECRET}}]},
            {"type": "tool", "content": f"It is {SECRET}."},
            {"type": "ai", "content": f"{SECRET} is red."},
        ],
        "reference_topics": [SECRET],
    },
]


def ran(folder: Path, *words: str, redactor: str = "") -> tuple[int, str]:
    """Run a command in a folder with a configuration; return its exit code and its whole output."""
    text = "" if not redactor else f"redactor: {NAME.format(redactor)}\n"
    (folder / "spanscore.yaml").write_text(f"metrics: [faithfulness, topic_adherence]\n{text}")
    done = CliRunner().invoke(app(words[0]), [*words, "--config", str(folder / "spanscore.yaml")])
    return done.exit_code, f"{done.output} {done.exception!r}"


@pytest.fixture
def spans(host: Host, tmp_path: Path) -> Path:
    """Stored spans that hold the secret, as somebody exported them without a redactor."""
    file = tmp_path / "stored" / "spans.jsonl"
    file.parent.mkdir()
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from spanscore.core.codecs.otlp import json_line

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with OnlineScorer([Faithfulness("lexical")], tracer_provider=provider, capture=Capture(content=True)) as scorer:
        chain().invoke({"question": f"Where is {SECRET}?"}, config={"callbacks": [scorer.handler]})
    file.write_text(json_line(exporter.get_finished_spans()))
    assert SECRET in file.read_text()
    return file


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize("by", ["the option", "the configuration", "nobody"])
def test_collect_redacts_what_stored_spans_hold(
    spans: Path, tmp_path: Path, logged: io.StringIO, by: str, as_json: list[str]
) -> None:
    out = tmp_path / "made"
    out.mkdir()
    option = ["--redactor", NAME.format("redacts")] if by == "the option" else []
    named = "redacts" if by == "the configuration" else ""

    code, result = ran(out, "collect", str(spans), "--out", str(out / "cases.jsonl"), *option, *as_json, redactor=named)

    assert code == 0, result
    assert SECRET not in result + logged.getvalue()
    assert holding(out) == ({"cases.jsonl"} if by == "nobody" else set())


def test_collect_writes_nothing_where_the_redactor_fails(spans: Path, tmp_path: Path) -> None:
    out = tmp_path / "made"
    out.mkdir()
    code, result = ran(out, "collect", str(spans), "--out", str(out / "cases.jsonl"), redactor="raises")

    assert (code, SECRET in result, (out / "cases.jsonl").exists()) == (1, False, False)


def gated(folder: Path, redactor: str = "") -> str:
    """Score the cases in each way that writes or prints something; return the output."""
    cases = folder.parent / "cases.jsonl"
    cases.write_text("".join(f"{json.dumps(case)}\n" for case in CASES))
    folder.mkdir()
    base, said = ["--baseline", str(folder / "base.jsonl")], []
    for words in (
        [*base, "--update-baseline", "--out", str(folder / "rows.jsonl")],
        [*base, "--min", "faithfulness=0.9", "--junit", str(folder / "out.xml")],
        [*base, "--max-drop", "faithfulness=0.1", "--json"],
        ["--report", str(folder / "page.html")],
    ):
        code, result = ran(folder, "evaluate", str(cases), *words, redactor=redactor)
        assert code in (0, 1, 3), result
        said.append(result)
    return "".join(said)


def test_with_a_redactor_a_gate_writes_and_tells_no_secret(tmp_path: Path, logged: io.StringIO) -> None:
    result = gated(tmp_path / "made", "redacts")

    assert "does not hold" in result
    assert SECRET not in result + logged.getvalue()
    assert holding(tmp_path / "made") == set()
    assert "[key]" in (tmp_path / "made" / "page.html").read_text()


def test_without_one_it_is_where_explanations_and_samples_were_asked_for(tmp_path: Path, logged: io.StringIO) -> None:
    """The rows of a baseline and of ``--out`` explain, and the page shows; terminal, JUnit and JSON have names alone."""
    result = gated(tmp_path / "made")

    assert SECRET not in result + logged.getvalue()
    assert holding(tmp_path / "made") == {"base.jsonl", "rows.jsonl", "page.html"}


def test_where_the_redactor_fails_no_judge_is_asked_and_nothing_is_quoted(tmp_path: Path) -> None:
    result = gated(tmp_path / "made", "raises")

    assert "redaction_error" in result
    assert SECRET not in result
    assert holding(tmp_path / "made") == set()


def test_a_test_that_fails_shows_the_judges_words_which_quote() -> None:
    with pytest.raises(AssertionError) as failed:
        assert_quality(CASES[:4], [Faithfulness("lexical")], least={"faithfulness": 0.9})

    assert SECRET in str(failed.value)
    assert "Where is" not in str(failed.value)  # neither question nor contexts but as far as they are quoted
