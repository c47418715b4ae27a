"""From a message to a better judge: a message reports bad answers, labels correct the judge, and the file is read again.

    pip install -e '.[demo,openai,prometheus,report]' && python examples/from_a_message_to_a_better_judge.py [FOLDER]

1. The desk of a ferry company answers questions, and a judge scores whether each answer is polite. A webhook gets a message for
   each of the first impolite answers. Every scored answer becomes a case.
2. A person labels the cases on the page of `spanscore annotations label`. Here a script presses the page's buttons.
3. `spanscore calibrate` corrects the pass rate: the judge passes "Sure thing!", which people find impolite.
4. `spanscore tune` finds demonstrations that teach the judge.
5. The new prompts go into the file. The running scorer reads it again (`reload: true`), and the next mean on its page for
   Prometheus has the new evaluator version.

No key and no network: a server in this process stands in for the judge's model. Half a minute. The files stay in FOLDER, if it
is given.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shlex
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any
from urllib.request import Request, urlopen

try:
    import langchain_openai  # noqa: F401  (the judge's client)

    from spanscore import OnlineScorer
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing.name} is not installed: pip install -e '.[demo,openai,prometheus,report]'") from None
from langchain_core.runnables import RunnableLambda
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider

COMMAND = (sys.executable, "-c", "from spanscore.cli.main import main; main()")
HABIT = "Sure thing!"
"""The words that people find impolite, and the judge does not."""
WORDS = {HABIT: 0.35, "Here you are, please.": 0.35, "Look it up yourself.": 0.3}
"""Beginning of an answer → share of the answers that begin so."""
CANDIDATES = 8
"""Candidates of the tuning. Each shows a few cases drawn at random, and one of them must show the habit."""
REQUESTS = 120
MESSAGES_PER_HOUR = 3
WITHIN_S = 60.0


def answer(question: str) -> str:
    """Answer as the desk does."""
    (words,) = random.Random(question).choices(*zip(*WORDS.items(), strict=True))
    return f"{words} The ferry leaves from pier {question.rstrip('?').rpartition(' ')[2]}."


def is_polite(text: str) -> bool:
    """Return the label that a person gives to an answer."""
    return "please" in text


def judge(prompt: str) -> str:
    """Judge as a model that learns from demonstrations: it passes the habit until one shows that people do not."""
    question, *demonstrations = prompt.split("Example:\n")
    has_learned = any(HABIT in shown and '"verdict": 0' in shown for shown in demonstrations)
    return json.dumps({"reason": "", "verdict": int("please" in question or (HABIT in question and not has_learned))})


class Model(BaseHTTPRequestHandler):
    """The judge's model, by OpenAI's chat API."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    """Headers and body leave in one packet. In two, the second would wait for the client's delayed acknowledgement."""

    def do_POST(self) -> None:
        """Answer one request."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", "content": judge(request["messages"][-1]["content"])}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        choices = [{"index": 0, "finish_reason": "stop", "message": message}]
        reply(self, {"id": "1", "object": "chat.completion", "model": "m", "choices": choices, "usage": usage})

    def log_message(self, *words: Any) -> None:
        """Print nothing."""


class Receiver(BaseHTTPRequestHandler):
    """The receiver of the webhook's messages: a chat, a pager or a ticket system."""

    messages: list[dict[str, Any]] = []  # noqa: RUF012  (one receiver)

    def do_POST(self) -> None:
        """Keep one message."""
        self.messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        reply(self, {})

    def log_message(self, *words: Any) -> None:
        """Print nothing."""


def reply(request: BaseHTTPRequestHandler, body: Mapping[str, Any]) -> None:
    """Answer a request with JSON."""
    content = json.dumps(body).encode()
    request.send_response(200)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    request.wfile.write(content)


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Run a server on loopback, and yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def configure(folder: Path, judge_url: str, webhook_url: str, **prompts: Any) -> Path:
    """Write the configuration, which is JSON and so also YAML; ``prompts`` are those of the tuned judge."""
    settings = {
        "reload": True,
        "judge": {"model": "openai:stand-in", "base_url": f"{judge_url}/v1", "api_key_env": "STAND_IN_KEY"},
        "metrics": [{"aspect_critic": {"name": "polite", "definition": "The response is polite.", **prompts}}],
        "capture": {"content": True},
        "collect": {"when": ["polite>=0"], "out": str(folder / "cases.jsonl")},
        "outputs": {
            "sinks": [{"webhook": {"url": webhook_url, "when": ["polite=fail"], "per_hour": MESSAGES_PER_HOUR}}]
        },
    }
    path, new = folder / "spanscore.yaml", folder / "spanscore.yaml.new"
    new.write_text(json.dumps(settings, indent=2), "utf-8")
    new.replace(path)  # a reader sees the whole file or the earlier one
    return path


def spanscore(*words: str, folder: Path) -> None:
    """Run a command line and print its output."""
    print(f"\n$ spanscore {shlex.join(words)}", flush=True)
    subprocess.run([*COMMAND, *words], cwd=folder, check=True, stderr=subprocess.STDOUT)


def press_buttons(url: str) -> None:
    """Label every case by the requests that the page's buttons send."""
    origin, token = url.split("/?token=")

    def send(path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Origin": origin}
        with urlopen(Request(origin + path, data, headers)) as response:
            return json.load(response)

    state = send("/state")
    while state["case"] is not None:
        text = "".join(part for part, _ in state["case"]["answer"])
        wanted = "pass" if is_polite(text) else "fail"
        choice = [each["text"] for each in state["choices"]].index(wanted)
        state = send("/choose", {"case": state["case"]["key"], "choice": choice})["next"]
    send("/finish", {})


def label(folder: Path, use_page: Callable[[str], None]) -> None:
    """Run the labelling command, and label on its page."""
    files = ("cases.jsonl", "--metric", "polite", "--out", "labels.jsonl")
    words = ("annotations", "label", *files, "--annotator", "ada", "--count", str(REQUESTS), "--no-browser")
    print(f"\n$ spanscore {shlex.join(words)}", flush=True)
    with subprocess.Popen(
        [*COMMAND, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as command:
        for line in command.stdout or ():
            if line.startswith("http://"):
                use_page(line.strip())
            else:
                print(line, end="", flush=True)
    if command.returncode:
        raise SystemExit(f"spanscore annotations label ended with {command.returncode}")


def wait_until(condition: Callable[[], bool], wanted: str) -> None:
    """Wait until a condition holds."""
    until_s = time.monotonic() + WITHIN_S
    while not condition():
        if time.monotonic() > until_s:
            raise SystemExit(f"not within {WITHIN_S:g} s: {wanted}")
        time.sleep(0.2)


def means_on_page(port: int) -> dict[str, float]:
    """Return evaluator version → mean of ``polite`` on the page for Prometheus, computed as on the dashboards."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        page = response.read().decode()
    sums = {name: defaultdict[str, float](float) for name in ("weight", "weight_quality")}
    for name, version, value in re.findall(
        r'^spanscore_(\w+)_total\{.*evaluator_version="(.*?)".*\} (\S+)', page, re.M
    ):
        if name in sums:
            sums[name][version] += float(value)
    return {version: sums["weight_quality"][version] / weight for version, weight in sums["weight"].items() if weight}


def print_means(means: Mapping[str, float]) -> None:
    """Print the mean of each evaluator version."""
    for version, mean in means.items():
        print(f"   mean {mean:.2f} by evaluator version {version}")


def main(
    folder: Path,
    *,
    use_page: Callable[[str], None] = press_buttons,
    port: int = 0,
    means: Callable[[int], dict[str, float]] = means_on_page,
) -> int:
    """Run the five steps; return 0 if the tuned judge's mean is the people's.

    Args:
        folder: gets all files.
        use_page: labels every case on the page at an address.
        port: port of the page for Prometheus; 0 = any free port.
        means: port → means of ``polite`` by evaluator version.
    """
    os.environ.setdefault("STAND_IN_KEY", "none")
    with serving(Model) as judge_url, serving(Receiver) as webhook_url:
        providers = {
            "tracer_provider": TracerProvider(),
            "meter_provider": MeterProvider(),
        }  # the application's; no exporter
        scorer = OnlineScorer.from_config(configure(folder, judge_url, webhook_url), **providers)
        port = scorer.serve_metrics(port)
        chain = RunnableLambda(answer)
        questions = (f"From which pier leaves ferry {number}?" for number in itertools.count(1))

        def ask(number: int) -> None:
            for question in itertools.islice(questions, number):
                chain.invoke(question, config={"callbacks": [scorer.handler]})
            if not scorer.flush(WITHIN_S):
                raise SystemExit(f"the scores were not complete within {WITHIN_S:g} s")

        print("1. The desk answers, and the judge scores.")
        ask(REQUESTS)
        wait_until(lambda: len(Receiver.messages) >= MESSAGES_PER_HOUR, f"{MESSAGES_PER_HOUR} messages")
        first = Receiver.messages[0]
        print(f"   {len(Receiver.messages)} messages; the first is about trace {first['data']['trace_id']}")
        wait_until(lambda: bool(means(port)), "a mean")
        before = means(port)
        print_means(before)

        print("\n2. A person labels the cases.")
        label(folder, use_page)

        print("\n3. The labels correct the pass rate.")
        spanscore("calibrate", "labels.jsonl", "--metric", "polite", folder=folder)

        print("\n4. The labels tune the judge.")
        tune = ("tune", "spanscore.yaml", "labels.jsonl", "--metric", "polite", "--candidates", str(CANDIDATES))
        spanscore(*tune, "--label", "polite_review", "--out", "tuned.json", folder=folder)

        print("\n5. The new prompts go into the file, which the running scorer reads again.")
        configure(folder, judge_url, webhook_url, prompts={"file": "tuned.json"})
        version = json.loads((folder / "tuned.json").read_text("utf-8"))["evaluator_version"]
        if version in before:
            raise SystemExit("the tuning found no better prompts, so there is nothing to reload")
        wait_until(lambda: version in str(scorer.status()), f"evaluator version {version} in force")
        ask(REQUESTS)
        wait_until(lambda: version in means(port), f"a mean by evaluator version {version}")
        after = means(port)[version]
        print_means(means(port))
        scorer.shutdown(10)
    [mean_before] = before.values()
    print(
        f"\nThe judge's mean is {after:.2f}; it was {mean_before:.2f}. The answers are of the same kind; nothing was restarted."
    )
    return 0 if after < mean_before else 1


if __name__ == "__main__":
    with TemporaryDirectory() as made:
        sys.exit(main(Path(sys.argv[1] if sys.argv[1:] else made).resolve()))
