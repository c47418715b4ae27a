"""Failing units become cases, on the real line: as the command writes them, redacted, and never felt by the application."""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.durable.disks import run_on_small_disk
from tests.live import CONTEXT, QUESTION, Failing, Grounded, Held, a_line, identity_holds, rag
from tests.servers.server import poll
from tests.wiring.sessions import Turns, talk
from tests.wiring.test_spool import a_worker, delegated, ended
from typer.testing import CliRunner

from spanscore import OnlineScorer, semconv
from spanscore.cli.main import app
from spanscore.config import Capture, Collect, Sessions
from spanscore.core.codecs.otlp import json_line
from spanscore.core.files import LineFile
from spanscore.errors import ConfigurationError

WRONG = "Lyon is the capital of France."


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "cases.jsonl"


def failing(out: Path, **more: Any) -> Collect:
    return Collect(when=["grounded<0.5"], out=out, **more)


def ask(scorer: OnlineScorer, question: str = QUESTION, answer: str = WRONG) -> Any:
    return rag(answer).invoke(question, config={"callbacks": [scorer.handler]})


def cases(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def test_a_failing_unit_is_the_case_that_the_command_makes_of_its_spans(out: Path, tmp_path: Path) -> None:
    with a_line(collect=failing(out), capture=Capture(content=True), sample_rate=1.0) as (scorer, trace):
        ask(scorer)
        ask(scorer, "And of Spain?", "Paris again.")
        assert scorer.flush(10)
        (tmp_path / "spans.jsonl").write_text(json_line(trace.spans))

    again = tmp_path / "again.jsonl"
    result = CliRunner().invoke(
        app("collect"), ["collect", str(tmp_path / "spans.jsonl"), "--when", "grounded<0.5", "--out", str(again)]
    )

    assert result.exit_code == 0, result.output
    (case,) = cases(out)
    assert [case] == cases(again)
    assert (case["user_input"], case["response"], case["retrieved_contexts"]) == (QUESTION, WRONG, [CONTEXT])
    assert case["scores"]["grounded"]["value"] == 0.0


def test_no_content_is_exported_for_its_sake_and_nothing_written_unasked(out: Path) -> None:
    with a_line(collect=failing(out)) as (scorer, trace):
        ask(scorer)
        assert scorer.flush(10)
    assert WRONG in out.read_text()
    assert WRONG not in trace.text()

    out.unlink()
    with a_line() as (scorer, _):
        ask(scorer)
        assert scorer.flush(10)
    assert [*out.parent.iterdir()] == []


def test_status_and_an_instrument_say_what_was_collected(out: Path) -> None:
    reader = InMemoryMetricReader()
    with a_line(collect=failing(out), meter_provider=MeterProvider(metric_readers=[reader])) as (scorer, _):
        for _ in range(3):
            ask(scorer)
        assert scorer.flush(10)
        status, counted = scorer.status(), _counted(reader)

    assert status.collected is not None
    assert status.collected.cases == {"written": 1, "folded": 2}
    assert f"collected: 1 case to {out}" in " ".join(str(status).replace("\n", "").split())
    assert counted == {"written": 1, "folded": 2, "lost": 0}


def _counted(reader: InMemoryMetricReader) -> dict[str, float]:
    data = json.loads(reader.get_metrics_data().to_json())  # type: ignore[union-attr]
    found = [
        metric
        for resource in data["resource_metrics"]
        for scope in resource["scope_metrics"]
        for metric in scope["metrics"]
        if metric["name"] == semconv.COLLECTED_CASES
    ]
    return {
        point["attributes"][semconv.RESULT]: point["value"] for one in found for point in one["data"]["data_points"]
    }


def test_all_scores_of_a_unit_stand_on_its_case_those_that_failed_without_a_value(out: Path) -> None:
    metrics = [Grounded(), Grounded("again"), Failing(ValueError("no"))]
    with a_line(*metrics, collect=failing(out)) as (scorer, _):
        ask(scorer)
        assert scorer.flush(10)

    scores = cases(out)[0]["scores"]
    assert {name: score.get("value") for name, score in scores.items()} == {
        "grounded": 0.0,
        "again": 0.0,
        "failing": None,
    }


def test_a_conversation_is_a_case_when_it_has_ended(out: Path) -> None:
    with a_line(sessions=Sessions(metrics=[Turns()]), collect=Collect(when=["turns<1"], out=out)) as (scorer, _):
        talk(scorer, "a", 3)
        scorer.end_session("a")
        assert scorer.flush(10)

    (case,) = cases(out)
    assert case["turns"] == 3
    assert [message["content"] for message in case["user_input"] if message["type"] == "human"] == [
        "question 1",
        "question 2",
        "question 3",
    ]


def test_what_was_scored_when_it_is_shut_down_is_collected(out: Path) -> None:
    with a_line(Grounded(), Held(threading.Event()), collect=failing(out)) as (scorer, _):
        ask(scorer)
        poll(lambda: scorer.status().outcomes["grounded"], deadline_s=10, what="its first score")

    assert [case["scores"]["grounded"]["value"] for case in cases(out)] == [0.0]


def test_a_worker_collects_what_another_process_wrote_to_a_spool(out: Path, tmp_path: Path) -> None:
    class Never(Grounded):
        async def measure(self, sample: Any) -> Any:
            return 0.0

    delegated(tmp_path / "spool.db", 1, Never(), collect=failing(out))
    assert cases(out) == []

    with a_worker(tmp_path / "spool.db", Never(), collect=failing(out)) as (scorer, _):
        ended(scorer, 1)
    assert [case["user_input"] for case in cases(out)] == [QUESTION]


def test_a_forked_child_collects_its_own_and_no_line_is_torn(out: Path) -> None:
    with a_line(collect=failing(out)) as (scorer, _):
        ask(scorer, "Before?")
        child = os.fork()
        if child == 0:
            for number in range(20):
                ask(scorer, f"In the child {number}?")
            os._exit(0 if scorer.flush(30) else 1)
        for number in range(20):
            ask(scorer, f"In the parent {number}?")
        assert os.waitpid(child, 0)[1] == 0
        assert scorer.flush(30)

    asked = {case["user_input"] for case in cases(out)}
    assert len(cases(out)) == len(asked) == 41


def test_a_disk_that_does_not_answer_holds_up_no_unit_and_no_shutdown(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(LineFile, "append", lambda file, line: answers.wait(60))
    with a_line(collect=failing(out)) as (scorer, trace):
        assert ask(scorer) == WRONG
        scorer.flush(1)
        ask(scorer, "And then?")
        scorer.flush(1)
        assert len(trace.left_roots) == 2
        assert identity_holds(scorer)
        assert not answers.is_set()
    assert scorer.status().collected.cases == {"lost": 2}  # type: ignore[union-attr]
    answers.set()


def test_a_folder_that_is_not_there_is_reported_and_counted_and_made_good_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "to come" / "cases.jsonl"
    with caplog.at_level(logging.WARNING, "spanscore"), a_line(collect=failing(out)) as (scorer, _):
        ask(scorer)
        assert scorer.flush(10)
        assert "cases cannot be written now (No such file or directory): 1 wait" in str(scorer.status())
        out.parent.mkdir()
        ask(scorer, "And then?")
        assert scorer.flush(10)

    assert [case["user_input"] for case in cases(out)] == [QUESTION, "And then?"]
    assert len([one for one in caplog.records if "cases cannot be written" in one.message]) == 1
    assert WRONG not in caplog.text


ON_A_SMALL_DISK = """
import logging, subprocess, sys
from pathlib import Path
from tests.wiring.test_collecting import ask, cases, failing
from tests.live import a_line, identity_holds
logging.basicConfig(level="WARNING", format="LOG %(message)s")
disk = Path(sys.argv[1])
out = disk / "cases.jsonl"

with a_line(collect=failing(out)) as (scorer, trace):
    def asked(question):
        ask(scorer, question)
        assert scorer.flush(20)
        collected = scorer.status().collected
        print(len(trace.left_roots), len(cases(out)), collected.waiting, collected.fault, collected.cases)

    asked("One?")
    with (disk / "junk").open("wb", buffering=0) as junk:
        try:
            while True:
                junk.write(bytes(4096))
        except OSError:
            pass
    asked("Two? " * 2000)  # more than is left of the file's last page
    (disk / "junk").unlink()
    asked("Three?")
    subprocess.run(["mount", "-o", "remount,ro,size=1m", str(disk)], check=True)
    asked("Four?")
    subprocess.run(["mount", "-o", "remount,rw,size=1m", str(disk)], check=True)
    asked("Five?")
    print(identity_holds(scorer))
"""


def test_on_a_full_and_on_a_read_only_disk_cases_wait_and_the_application_goes_on(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()

    lines = run_on_small_disk(ON_A_SMALL_DISK, tmp_path / "disk", size="1m").splitlines()

    assert [line for line in lines if not line.startswith("LOG")] == [
        "1 1 0  {'written': 1}",
        "2 1 1 No space left on device {'written': 1}",
        "3 3 0  {'written': 3}",
        "4 3 1 Read-only file system {'written': 3}",
        "5 5 0  {'written': 5}",
        "True",
    ]
    logged = [line for line in lines if line.startswith("LOG")]
    assert len(logged) == 1  # the second fault is of the same file within the hour, and in the status
    assert "cases cannot be written to" in logged[0]


def test_a_condition_of_no_metric_is_refused_when_the_scorer_is_made(out: Path) -> None:
    with pytest.raises(ConfigurationError, match="names groundd, which is not a metric here: did you mean 'grounded'"):
        OnlineScorer([Grounded()], collect=Collect(when=["groundd<0.5"], out=out))
    with pytest.raises(ConfigurationError, match=r"collect\.when: is empty \(given: \[\]\); collect\.out: is required"):
        OnlineScorer([Grounded()], collect={"when": []})  # type: ignore[arg-type]
