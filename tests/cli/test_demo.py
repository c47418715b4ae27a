"""``spanscore demo`` as a person starts it: a process of its own, in which no socket can be connected."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from urllib.request import urlopen

from spanscore.core.codecs.otlp import read_spans
from spanscore.testing.demo.show import results

ALONE = """
import socket, sys
def refused(*args, **kwargs):
    print("network touched:", args[1:], file=sys.stderr)
    raise OSError("no network")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refused
from spanscore.cli.main import main
main()
"""


def spanscore(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "OPENAI_", "SPANSCORE_"))}
    return subprocess.run(
        [sys.executable, "-c", ALONE, *arguments],
        env={**inherited, "COLUMNS": "80", **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_it_plays_without_any_network_and_prints_nothing_else() -> None:
    done = spanscore("demo", "--requests", "60", LANGSMITH_TRACING="true", LANGSMITH_API_KEY="none")

    assert (done.returncode, done.stderr) == (0, "")
    assert "Retrieval was broken in requests 25–39" in done.stdout
    assert 'chain.invoke(question, config={"callbacks": [scorer.handler]})' in done.stdout
    assert " ".join(done.stdout.split()).count("Offline, response_relevancy counts the words") == 1


def test_a_seed_gives_the_same_words_in_every_process() -> None:
    one, other = (spanscore("demo", "--requests", "30", PYTHONHASHSEED=seed) for seed in ("1", "2"))

    assert one.stdout == other.stdout
    assert len(one.stdout.splitlines()) > 50


def test_json_for_programs_and_the_files_tell_the_same(tmp_path: Path) -> None:
    out, picture, page = tmp_path / "demo.jsonl", tmp_path / "demo.svg", tmp_path / "demo.html"

    files = ("--out", str(out), "--svg", str(picture), "--report", str(page))
    done = spanscore("demo", "--requests", "60", "--json", *files)

    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    kept = results(read_spans(out.read_text("utf-8").splitlines()))
    during = document["stretches"]["during"]["means"]["faithfulness"]
    before = document["stretches"]["before"]["means"]["faithfulness"]
    assert during["high"] < before["low"]
    assert kept.means["during"]["faithfulness"].mean == during["mean"]
    assert document["open_first"]["trace_id"] == kept.open_first().trace_id
    assert picture.read_text("utf-8").startswith("<svg")
    assert f"trace <code>{document['open_first']['trace_id']}</code>" in page.read_text("utf-8")
    assert document["written"] == [{"path": str(one), "bytes": one.stat().st_size} for one in (page, out, picture)]


def test_a_key_in_the_environment_is_not_used_and_that_is_said_below_the_picture(tmp_path: Path) -> None:
    picture = tmp_path / "demo.svg"
    environment = {"OPENAI_API_KEY": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}
    done = spanscore("demo", "--requests", "12", "--svg", str(picture), **environment)

    assert (done.returncode, done.stderr) == (0, "")
    assert "OPENAI_API_KEY is set and was not used" in " ".join(done.stdout.split())
    assert "OPENAI_API_KEY" not in picture.read_text("utf-8").replace("&#160;", " ")


def test_a_backend_that_gets_nothing_is_an_error_after_the_results() -> None:
    done = spanscore("demo", "--requests", "12", "--json", "--otlp", "http://127.0.0.1:9")

    assert done.returncode == 2
    assert json.loads(done.stdout)["requests"] == 12
    assert "--otlp http://127.0.0.1:9: not everything was delivered; is a backend running? traces failed" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_narrow_terminal_shows_every_interval() -> None:
    tables = spanscore("demo", "--requests", "24", "--traces", "0", COLUMNS="60").stdout

    assert re.search(r"\b0\.\d\d–[01]\.\d\d", tables)
    assert not re.search(r"\d–?…", tables)
    assert "No trace fails a metric" not in tables  # no trace is shown, and some fail


def test_a_wrong_option_ends_with_one_line_and_code_2() -> None:
    done = spanscore("demo", "--requests", "5")

    assert done.returncode == 2
    assert done.stderr == "--requests is 5; at least 12 make three stretches\n"


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    done = spanscore("demo", "--requests", "12", "--out", str(tmp_path / "nowhere" / "demo.jsonl"))

    assert done.returncode == 2
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr


def test_metrics_are_served_until_ctrl_c() -> None:
    command = [
        sys.executable,
        "-c",
        "from spanscore.cli.main import main; main()",
        "demo",
        "--requests",
        "12",
        "--json",
    ]
    with subprocess.Popen([*command, "--metrics-port", "0"], stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stderr
        address = process.stderr.readline().removeprefix("metrics: ").strip()
        assert process.stderr.readline() == "metrics are served until Ctrl-C\n"
        page = urlopen(address, timeout=10).read().decode()
        process.send_signal(signal.SIGINT)
        said, complaints = process.communicate(timeout=30)

    assert (process.returncode, complaints) == (0, "")
    assert json.loads(said)["requests"] == 12
    assert "spanscore_eligible_total{" in page


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = spanscore("demo", "--requests", "12", "--metrics-port", port)

    assert done.returncode == 2
    assert port in done.stderr
    assert "Traceback" not in done.stderr
