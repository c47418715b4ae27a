"""Speed of the report page with 5,000 scores: time to write it, and time until a browser answers a key press.

    python -m benchmarks.report [--scores 5000] [--page report.html] [--json report.json]

Needs the `report` extra and Debian's `chromium` (python -m tests.servers install). The second time is from the navigation to
the first answered key press after every visible chart is drawn, in a new browser with an empty cache.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.servers import chromium

from spanscore import semconv
from spanscore.core.score import UNIT_INTERVAL, Outcome, Score, unit_attributes
from spanscore.core.span import SpanData
from spanscore.report import write

WRITTEN_WITHIN_S = 5.0
INTERACTIVE_WITHIN_S = 2.0
METRICS = ("faithfulness", "response_relevancy", "harmless", "topic_adherence")
BEGIN_NS = 1_795_255_200_000_000_000
FERRIES = 300
HOUR_NS = 3_600_000_000_000
RUNS = 3
IN_SIGHT_DRAWN = """
[...document.querySelectorAll("[data-chart]")]
  .filter((one) => one.getBoundingClientRect().top < innerHeight)
  .every((one) => one.querySelector(".plot"))
"""


def main() -> int:
    """Write, open, print; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", type=int, default=5_000)
    parser.add_argument("--page", type=Path, help="File for the page, to look at.")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = (arguments.page or Path(folder) / "report.html").resolve()
        written = min(_written_s(arguments.scores, page) for _ in range(RUNS))
        interactive = min(_interactive_s(page) for _ in range(RUNS))
        size = page.stat().st_size
    results = {"scores": arguments.scores, "page_bytes": size, "written_s": written, "interactive_s": interactive}
    met = written <= WRITTEN_WITHIN_S and interactive <= INTERACTIVE_WITHIN_S
    print(f"{arguments.scores:,} scores, page of {size / 1e6:.1f} MB, best of {RUNS}")
    print(_line("written", written, WRITTEN_WITHIN_S))
    print(_line("interactive", interactive, INTERACTIVE_WITHIN_S))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if met else 1


def _line(name: str, took_s: float, target_s: float) -> str:
    return f"{'met   ' if took_s <= target_s else 'MISSED'}  {name} in {took_s:.2f} s (target {target_s:g} s)"


def _written_s(scores: int, page: Path) -> float:
    spans = list(_spans(scores))
    begun = time.perf_counter()
    write(spans, page)
    return time.perf_counter() - begun


def _interactive_s(page: Path) -> float:
    with tempfile.TemporaryDirectory() as folder, chromium.running(Path(folder)) as browser, browser.tab() as tab:
        begun = time.perf_counter()
        tab.open(page.as_uri(), watched=False)
        while not tab.evaluate(IN_SIGHT_DRAWN):
            pass
        tab.press("Tab")
        return time.perf_counter() - begun


def _spans(scores: int) -> Iterator[SpanData]:
    """Yield units of four spans and their evaluations; each has one of 300 questions, an answer and two documents."""
    rng = random.Random(1)
    units = scores // len(METRICS)
    for at in range(units):
        end_ns = BEGIN_NS + at * HOUR_NS // units
        bad = 0.4 < at / units < 0.5
        yield from _unit(
            rng, end_ns, [_score(name, min(1.0, max(0.0, rng.gauss(0.3 if bad else 0.85, 0.15)))) for name in METRICS]
        )


def _score(metric: str, value: float) -> Score:
    return Score(
        metric=metric,
        version="1",
        outcome=Outcome.SCORED,
        value=value,
        quality=value,
        label=UNIT_INTERVAL.label(value),
        probability=0.5,
    )


def _unit(rng: random.Random, end_ns: int, scores: list[Score]) -> Iterator[SpanData]:
    trace_id, root_id = rng.getrandbits(128), rng.getrandbits(64)

    def span(name: str, operation: str, parent_id: int | None, span_id: int, **attributes: object) -> SpanData:
        own = {semconv.OPERATION_NAME: operation, **attributes}
        start_ns = end_ns if operation == semconv.EVALUATION else end_ns - 1_000_000_000
        scope = semconv.SCOPE if operation == semconv.EVALUATION else semconv.CAPTURE_SCOPE
        return SpanData(trace_id=trace_id, span_id=span_id, parent_id=parent_id, name=name, start_ns=start_ns, end_ns=end_ns,
                        scope=scope, attributes=own)  # fmt: skip

    documents = [{"id": str(n), "content": "The harbour ferry leaves every 20 minutes. " * 20} for n in range(2)]
    texts = {
        semconv.INPUT_VALUE: {"question": f"When does ferry {root_id % FERRIES} leave?"},
        semconv.OUTPUT_VALUE: {"answer": "At noon. " * 20},
    }
    yield span("guide", semconv.INVOKE_WORKFLOW, None, root_id, **unit_attributes(scores), **texts)
    yield span("library", semconv.RETRIEVAL, root_id, rng.getrandbits(64), **{semconv.RETRIEVAL_DOCUMENTS: documents})
    yield span("model", semconv.CHAT, root_id, rng.getrandbits(64))
    yield span("tool", semconv.EXECUTE_TOOL, root_id, rng.getrandbits(64))
    for score in scores:
        values = {
            semconv.EVALUATION_NAME: score.metric,
            semconv.EVALUATION_SCORE_VALUE: score.value,
            semconv.EVALUATION_SCORE_LABEL: score.label,
            semconv.EVALUATION_EXPLANATION: "3 of 4 statements are supported. Not supported: it leaves at noon.",
            semconv.QUALITY: score.quality,
            semconv.METRIC_RANGE: [0.0, 1.0],
            semconv.METRIC_DIRECTION: "higher",
            semconv.METRIC_PASS_AT: UNIT_INTERVAL.pass_at,
            semconv.PROBABILITY + score.metric: score.probability,
        }
        yield span(f"evaluation {score.metric}", semconv.EVALUATION, root_id, rng.getrandbits(64), **values)


if __name__ == "__main__":
    sys.exit(main())
