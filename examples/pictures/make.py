"""Makes the pictures of this folder from real output and pages. Needs `.[dev]`, Chromium and Phoenix.

python -m tests.servers install && PYTHONPATH=. python examples/pictures/make.py [demo|report|phoenix|check|gate|label …]
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import Request, urlopen

from rich.text import Text
from tests.servers import chromium, phoenix

from spanscore import semconv
from spanscore.semconv import SCORE
from spanscore.testing.demo.show import svg

HERE = Path(__file__).parent
README = HERE.parents[1] / "README.md"
GATE = HERE.parent / "from_bad_answers_to_a_gate.py"
SHOWN = ["evaluation faithfulness", "Events", "Hot meals are served until 22:45.", "0.00"]
"""Texts of Phoenix's page: the tree, the details of its root, and the annotations on it."""
A_MILLION = ["--requests-per-day", "1e6", "--context-tokens", "3500"]


def demo(_: Path) -> None:
    """The output of `spanscore demo`."""
    _spanscore("demo", "--svg", str(HERE / "demo.svg"))


def report(folder: Path) -> None:
    """The first screen of the demo's report."""
    page = folder / "demo.html"
    _spanscore("demo", "--report", str(page))
    with chromium.running(folder) as browser, browser.tab() as tab:
        tab.open(page.as_uri(), width=1200, height=1080)
        tab.screenshot(HERE / "report.png")


def phoenix_trace(folder: Path) -> None:
    """The worst trace of the demo on Phoenix's page, with its scores as annotations."""
    with phoenix.running(folder) as server, chromium.running(folder) as browser, browser.tab() as tab:
        worst = json.loads(_spanscore("demo", "--json", "--otlp", server.url))["open_first"]["trace_id"]
        _annotate(server.url, server.spans(worst, until=_has_each_evaluation))
        tab.open(f"{server.url}/redirects/traces/{worst}", width=1400, height=800, watched=False)
        tab.until(f"{json.dumps(SHOWN)}.every(text => document.body.innerText.includes(text))")
        tab.screenshot(HERE / "phoenix.png")


def _annotate(url: str, spans: phoenix.Spans) -> None:
    """Make the annotations that the sink ``phoenix`` makes, because the demo has no such sink."""
    evaluations = [(span["parent_id"], span["attributes"]) for span in spans if span["name"].startswith("evaluation ")]
    annotations = [
        {
            "span_id": span_id,
            "name": attributes[semconv.EVALUATION_NAME],
            "annotator_kind": "LLM",
            "result": {
                "score": attributes.get(semconv.EVALUATION_SCORE_VALUE),
                "label": attributes.get(semconv.EVALUATION_SCORE_LABEL),
            },
        }
        for span_id, attributes in evaluations
    ]
    body = json.dumps({"data": annotations}).encode()
    request = Request(f"{url}/v1/span_annotations?sync=true", body, {"Content-Type": "application/json"})
    urlopen(request, timeout=30).close()


def _has_each_evaluation(spans: phoenix.Spans) -> bool:
    """Whether the root has come, and an evaluation span for each score on it."""
    scores = [name for span in spans if span["parent_id"] is None for name in span["attributes"] if SCORE in name]
    evaluations = [span for span in spans if str(span["name"]).startswith("evaluation ")]
    return 0 < len(scores) == len(evaluations)


def check(folder: Path) -> None:
    """The cost of a day for the README's configuration, from `spanscore check`."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", README.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    (folder / "spanscore.yaml").write_text(blocks[0])
    said = _spanscore("check", "spanscore.yaml", *A_MILLION, folder=folder)
    shown = said[said.rindex("a day of") :]
    (HERE / "check.svg").write_text(
        svg(Text.from_ansi(shown), " ".join(["spanscore check spanscore.yaml", *A_MILLION]))
    )


def gate(_: Path) -> None:
    """The gate of `examples/from_bad_answers_to_a_gate.py` for a broken and for a mended release."""
    said = _run(sys.executable, str(GATE))
    shown = "\n".join(said[said.index("4. Two releases") :].splitlines()[1:])
    (HERE / "gate.svg").write_text(svg(Text.from_ansi(shown.strip()), f"python examples/{GATE.name}"))


def label(folder: Path) -> None:
    """The labelling page with the demo's first case that the judge fails, after a person has passed it."""
    _spanscore("demo", "--out", "spans.jsonl", folder=folder)
    words = (
        "annotations",
        "label",
        "spans.jsonl",
        "--metric",
        "faithfulness",
        "--pick",
        "failing",
        "--annotator",
        "ann",
    )
    process = subprocess.Popen(["spanscore", *words, "--no-browser"], cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        with chromium.running(folder) as browser, browser.tab() as tab:
            tab.open(process.stdout.readline().strip(), width=1100, height=900)
            tab.until("document.documentElement.dataset.ready")
            tab.press("1")
            tab.until("!document.getElementById('verdict').hidden")
            tab.screenshot(HERE / "label.png")
    finally:
        process.terminate()
        process.wait()


PICTURES: dict[str, Callable[[Path], None]] = {
    "demo": demo, "report": report, "phoenix": phoenix_trace, "check": check, "gate": gate, "label": label
}  # fmt: skip


def _spanscore(*words: str, folder: Path | None = None) -> str:
    return _run("spanscore", *words, folder=folder)


def _run(*words: str, folder: Path | None = None) -> str:
    environment = os.environ | {"COLUMNS": "100", "OPENAI_API_KEY": "none", "FORCE_COLOR": "1"}
    done = subprocess.run([*words], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        with TemporaryDirectory() as made:
            PICTURES[name](Path(made))
