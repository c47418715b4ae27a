"""Makes the pictures of the two dashboards from real data: runs every panel's query on a Prometheus with real traffic.

    python -m benchmarks.dashboards --out docs/how-to/dashboards        # 8 minutes; needs Kafka

Three services are scraped: an application with LangChain chains, ``spanscore serve`` with a spool, and ``spanscore worker`` on
a topic. A server on this machine is their judge: it is slow, has limits, fails for a minute, and lowers its scores of one
metric. Exits with 1 if a panel has no data.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml
from tests.capture.otlp.results import logs, result
from tests.integrations.stage import dashboards, panels
from tests.kafka.scenes import Load
from tests.live import rag
from tests.servers import kafka, prometheus
from tests.servers.kafka import Kafka
from tests.servers.openai_api import OpenAIServer
from tests.servers.otlp import OtlpReceiver
from tests.servers.prometheus import Prometheus
from tests.service.process import Serving, a_run, send

from benchmarks.dashboard_pictures import Answers, pictures
from spanscore import OnlineScorer
from spanscore.config.monitoring import Monitoring
from spanscore.monitoring.rules import RULES, rule_files

SCRAPED_EACH_S = 2
WINDOW, STEP_S, RATE_INTERVAL = "1m", 5, "20s"
"""Window of the moving means, seconds between two points, and interval of rates."""
QUIET_S = 75
"""Seconds of traffic before the drawn time, in which every window fills."""
PER_S = 5.0
SEGMENTS = {"tier": ["free", "gold"]}
DOWN = (0.35, 0.5)
"""Shares of the drawn time between which the judge's server fails."""
WORSE_FROM = 0.6
"""Share of the drawn time from which on the application gives answers that no document supports."""
ANSWER, INVENTED = "Paris is the capital of France.", "Paris has been the capital of France since 1215."
MODEL = "gpt-4o-mini"
_EVIDENCE = re.compile(r"<evidence>(.*?)</evidence>", re.DOTALL)
VARIABLES = {"$window": WINDOW, "$__rate_interval": RATE_INTERVAL, "$service": ".*", "$metric": ".*"}


class Judge:
    """Answers as a judge of varying behaviour, depending on the share of the drawn time that has passed."""

    def __init__(self, passed: Callable[[], float]) -> None:
        self._passed = passed
        self._rng = random.Random(7)
        self._busy = threading.Semaphore(8)

    def __call__(self, body: dict[str, Any]) -> str | tuple[int, dict[str, str]]:
        if not self._busy.acquire(blocking=False):
            return 429, {"Retry-After": "1"}
        try:
            time.sleep(min(4.0, self._rng.lognormvariate(-1.2, 0.7)))
            if DOWN[0] <= self._passed() < DOWN[1] and self._rng.random() < 0.7:
                return 500, {}
            return self._answer(body)
        finally:
            self._busy.release()

    def _answer(self, body: dict[str, Any]) -> str:
        if self._rng.random() < 0.02:
            return "I would rather not say."
        form = body.get("response_format", {}).get("json_schema", {}).get("name")
        evidence = json.loads(_EVIDENCE.findall(body["messages"][-1]["content"])[0])
        needed = {"Statements": "response", "Verdicts": "statements"}.get(str(form))
        if needed and needed not in evidence:  # a request to repair an unreadable answer
            return "I would still rather not say."
        if form == "Statements":
            return json.dumps({"statements": [evidence["response"], f"It answers: {evidence.get('user_input')}"]})
        if form == "Verdicts":
            verdicts = [{"statement": text, **self._verdict(text)} for text in evidence["statements"]]
            return json.dumps({"statements": verdicts})
        return json.dumps(self._verdict(""))

    def _verdict(self, statement: str) -> dict[str, Any]:
        if self._rng.random() < 0.03:
            return {"reason": "The answer fails to name the year.", "verdict": 1}
        is_good = self._rng.random() < (0.1 if INVENTED in statement else 0.92)
        return {"reason": "Read and compared.", "verdict": int(is_good)}


class Traffic:
    """Requests of the application, and spans and scores for ``serve``, until the end of the block."""

    def __init__(self, scorer: OnlineScorer, gateway: Serving, passed: Callable[[], float]) -> None:
        self._scorer, self._gateway, self._passed = scorer, gateway, passed
        self._rng = random.Random(3)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._each, args=one, daemon=True) for one in self._sources()]

    def _sources(self) -> Iterator[tuple[Callable[[], None], float]]:
        yield self._ask, PER_S
        yield self._send, 2.0
        yield self._tell, 1.0

    def _each(self, act: Callable[[], None], per_s: float) -> None:
        while not self._over.wait(self._rng.expovariate(per_s)):
            act()

    def _ask(self) -> None:
        is_worse = self._passed() > WORSE_FROM
        metadata = {"release": self._rng.choice(["1.4", "1.5"]), "tier": self._rng.choice(SEGMENTS["tier"])}
        run_id = uuid4()
        chain = rag(INVENTED if is_worse and self._rng.random() < 0.7 else ANSWER)
        chain.invoke(
            self._question(),
            {"callbacks": [self._scorer.handler], "run_id": run_id, "metadata": metadata},
        )
        unit = self._scorer.unit_id(run_id)
        if unit is not None and self._rng.random() < 0.2:
            thumbs = self._rng.choice([(True,), (True,), (False,), (False, True)])
            for thumb in thumbs:
                self._scorer.feedback(unit.trace_id, thumb, span_id=unit.span_id)

    def _question(self) -> str:
        """Return a question: most are new, the others are in the judge's cache."""
        return f"What was the capital of France {self._rng.randrange(5_000)} years ago?"

    def _send(self) -> None:
        send(self._gateway, a_run(self._question(), ANSWER))

    def _tell(self) -> None:
        body = logs(result("tone", self._rng.betavariate(6, 2), self._rng.choice(["calm", "calm", "rude"])))
        headers = {"Content-Type": "application/x-protobuf"}
        with urllib.request.urlopen(
            urllib.request.Request(f"http://{self._gateway.http}/v1/logs", body, headers), timeout=10
        ):
            pass

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def main(arguments: list[str] | None = None) -> int:
    """Run, draw, and return 1 if a panel has no data."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the pictures")
    parser.add_argument("--minutes", type=float, default=6.0, help="length of the drawn time")
    parser.add_argument(
        "--answers", type=Path, help="file: write Prometheus' answers there, or draw its content if it exists"
    )
    chosen = parser.parse_args(arguments)
    if chosen.answers and chosen.answers.exists():
        answers = Answers.read(chosen.answers)
    else:
        with tempfile.TemporaryDirectory() as folder:
            answers = _played(Path(folder), 60 * chosen.minutes)
        if chosen.answers:
            answers.write(chosen.answers)
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name, svg in pictures(answers).items():
        (chosen.out / name).write_text(svg, encoding="utf-8")
    empty = answers.empty()
    print("\n".join(f"no data: {panel}" for panel in empty) or "every panel has data")
    return int(bool(empty))


class Clock:
    """Share of the drawn time that has passed; 0 before its start."""

    def __init__(self, drawn_s: float) -> None:
        self._drawn_s, self._begun_s = drawn_s, math.inf

    def begin(self) -> None:
        """Start the drawn time now."""
        self._begun_s = time.monotonic()

    def __call__(self) -> float:
        return max(0.0, (time.monotonic() - self._begun_s) / self._drawn_s)


def _played(folder: Path, drawn_s: float) -> Answers:
    passed = Clock(drawn_s)
    os.environ.setdefault("OPENAI_API_KEY", "none")
    with ExitStack() as stack:
        model = stack.enter_context(OpenAIServer(Judge(passed)))
        broker = stack.enter_context(kafka.running(folder))
        backend = stack.enter_context(OtlpReceiver())
        scorer, port = stack.enter_context(_application(folder, model.url))
        gateway = stack.enter_context(_gateway(folder, model.url, backend.endpoint))
        worker = stack.enter_context(_worker(folder, model.url, backend.endpoint, broker))
        pages = {"support-bot": f"127.0.0.1:{port}", "gateway": gateway.page, "worker": worker.page}
        watch = stack.enter_context(prometheus.running(folder / "watch", _scraping(pages), {"rules.yml": _rules()}))
        stack.enter_context(Load(broker, "traces", per_s=3.0, most=100_000))
        stack.enter_context(Traffic(scorer, gateway, passed))
        time.sleep(QUIET_S)
        passed.begin()
        time.sleep(drawn_s)
        return _answers(watch, drawn_s)


def _answers(watch: Prometheus, drawn_s: float) -> Answers:
    end = time.time() - 2 * SCRAPED_EACH_S
    variables = {**VARIABLES, "$__range": f"{drawn_s:.0f}s", "$segment": "^$"}

    def over_time(expression: str) -> list[dict[str, Any]]:
        return watch.query_range(_filled(expression, variables), end - drawn_s, end, STEP_S)

    def at_end(expression: str) -> list[dict[str, Any]]:
        return watch.query(_filled(expression, variables), end)

    _check_segments(watch)
    return Answers.asked(over_time, at_end, begin_s=end - drawn_s, end_s=end)


def _check_segments(watch: Prometheus) -> None:
    """Query the mean and the interval of a segment, which no picture shows.

    Raises:
        RuntimeError: a query has no data.
    """
    for target in panels(dashboards()["spanscore-overview"])[0]["targets"]:
        if "$segment" in target["expr"]:
            answer = watch.query(_filled(target["expr"], {**VARIABLES, "$segment": "tier=gold"}))
            if not answer:
                raise RuntimeError(f"no data: {target['expr']}")


def _filled(expression: str, variables: Mapping[str, str]) -> str:
    for name, value in variables.items():
        expression = expression.replace(name, value)
    return expression


def _scraping(pages: Mapping[str, str]) -> str:
    every = f"{SCRAPED_EACH_S}s"
    jobs = [
        {"job_name": service, "static_configs": [{"targets": [page.removesuffix("/metrics")]}]}
        for service, page in pages.items()
    ]
    tree = {"global": {"scrape_interval": every, "evaluation_interval": every}, "scrape_configs": jobs}
    return yaml.safe_dump(tree, sort_keys=False)


def _rules() -> str:
    """Return the recording rules; the shortest window is the drawn one."""
    from spanscore.metrics import Faithfulness

    shared = Monitoring.model_validate({"dimensions": SEGMENTS, "windows": [WINDOW, "5m"], "interval": "5s"})
    return rule_files({}, [Faithfulness("lexical")], shared)[RULES]


def _judge(url: str) -> dict[str, Any]:
    return {
        "model": f"openai:{MODEL}",
        "base_url": url,
        "api_key_env": "OPENAI_API_KEY",
        "queue_timeout": "20s",
        "max_attempts": 2,
        "cache": "memory",
        "prices": {MODEL: {"input": 0.15, "output": 0.60}},
        "budget": [{"usd": 0.003, "per": "1m"}],
    }


METRICS = ["faithfulness", {"aspect_critic": {"name": "polite", "definition": "Is the answer polite?"}}]


@contextmanager
def _application(folder: Path, url: str) -> Iterator[tuple[OnlineScorer, int]]:
    labelled = folder / "labelled.jsonl"
    sample = {"response": "In 1931.", "retrieved_contexts": ["It was opened in 1931."]}
    asked = [f"When was bridge {number} opened?" for number in range(24)]
    labelled.write_text("\n".join(json.dumps({**sample, "user_input": text, "human": True}) for text in asked))
    file = folder / "application.yaml"
    tree = {
        "metrics": METRICS,
        "judge": _judge(url),
        "sampling": {"rates": {"polite": 0.6}, "feedback": {"rate": 1.0}},
        "compare": {"by": "release"},
        "judge_check": {"golden_set": str(labelled), "every": "1m", "metrics": ["faithfulness"]},
        "collect": {"when": ["faithfulness<0.5"], "out": str(folder / "cases.jsonl")},
        "monitoring": {"dimensions": SEGMENTS},
        "limits": {"queue_size": 40},
        "capture": {"content": True},
        "outputs": {"hold": 2},
        "service_name": "support-bot",
    }
    file.write_text(yaml.safe_dump(tree))
    scorer = OnlineScorer.from_config(file)
    try:
        yield scorer, scorer.serve_metrics(0)
    finally:
        scorer.shutdown(5)


@contextmanager
def _gateway(folder: Path, url: str, endpoint: str) -> Iterator[Serving]:
    file = folder / "gateway.yaml"
    tree = {
        "metrics": METRICS[1:],
        "judge": _judge(url),
        "serve": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"},
        "serve_metrics": {"port": 0},
        "units": {"idle_timeout": "500ms"},
        "spool": {"path": str(folder / "spool.db")},
    }
    file.write_text(yaml.safe_dump(tree))
    with Serving(file, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OPENAI_API_KEY="none") as running:
        running.until("OTLP/HTTP on")
        yield running


@contextmanager
def _worker(folder: Path, url: str, endpoint: str, broker: Kafka) -> Iterator[Serving]:
    broker.create("traces", 4)
    file = folder / "worker.yaml"
    tree = {
        "metrics": METRICS[1:],
        "judge": {**_judge(url), "cache": None},
        "kafka": {"brokers": [broker.brokers], "topic": "traces", "group": "scorers"},
        "serve_metrics": {"port": 0},
        "units": {"idle_timeout": "500ms"},
    }
    file.write_text(yaml.safe_dump(tree))
    with Serving(file, command="worker", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OPENAI_API_KEY="none") as running:
        running.until("kafka: topic traces")
        yield running


if __name__ == "__main__":
    sys.exit(main())
