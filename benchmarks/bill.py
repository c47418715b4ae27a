"""USD per 1,000 units by cached and uncached tokens: ragas, DeepEval and spanscore, on the metrics that they share.

    python -m benchmarks.bill               # writes benchmarks/bill.md; fails if a target is missed

All ask the same loopback server, which answers at once in the asked form. It counts tokens (cl100k_base) and cached prefixes by
the providers' published rules (tests/servers/prefix_cache.py). Peers ask one question after the other, so that each finds the
cache filled. The environment needs the peers beside spanscore: benchmarks/requirements-bill.txt.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import statistics
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

os.environ |= {"RAGAS_DO_NOT_TRACK": "true", "DEEPEVAL_TELEMETRY_OPT_OUT": "1", "DEEPEVAL_UPDATE_WARNING_OPT_OUT": "1"}

from pydantic import SecretStr
from tests.servers.openai_api import LoopbackServer, completion
from tests.servers.prefix_cache import PrefixCache

import spanscore
from benchmarks.judging import filled, tokens_of
from benchmarks.samples import CLAIMS
from spanscore.core.sample import AIMessage, HumanMessage, MultiTurnSample, SingleTurnSample
from spanscore.judges import judge
from spanscore.judges.effects.cost import Price, cost_usd
from spanscore.judges.langchain.chat import Structured
from spanscore.judges.rendering import form, schema_of
from spanscore.metrics import AspectCritic, ContextRelevance, Faithfulness, ResponseGroundedness
from spanscore.metrics.criteria import Critique
from spanscore.metrics.kit.statements import Statements, Verdicts
from spanscore.metrics.two_ratings import Both012
from spanscore.protocols import Judge

MODEL = "gpt-4o-mini"
LATENCY_S = 0.5
"""Latency of an answer in the table of waits."""
EACH = 10
"""Samples of each kind."""
PRICES = {
    "gpt-5, read .1 (OpenAI, November 2026)": Price(1.25, 10.0, 0.125),
    "gpt-4o, read .5 (OpenAI, November 2026)": Price(2.5, 10.0, 1.25),
}
WRITTEN = Price(3.0, 15.0, 0.3, cache_write=3.75)
WRITTEN_NAME = "Claude Sonnet 4.5, read .1, write 1.25 (Anthropic, November 2026)"
SHOWN = ["user_input", "response", "retrieved_contexts"]
DEFINITION = "The response cites only facts of the contexts, and names the place that it speaks of."
FORMS = {form(output): filled(output.model_json_schema()) for output in (Statements, Verdicts, Both012, Critique)}
FORMS[form(Both012)] = {"first": 2, "second": 2}
ENVELOPE = {
    "type": "object",
    "properties": {"answer": {"anyOf": [schema_of(output) for output in (Verdicts, Both012, Critique)]}},
    "required": ["answer"],
}
"""One schema for the answers to all questions about the contexts."""
_OURS = "Answer in JSON: "
_SCHEMA = re.compile(r"JSON Schema:\s*(\{.*?\})\s*Do not use", re.DOTALL)
_WORDS = (Path(__file__).parent / "samples.py").read_text("utf-8")
KINDS = {"short": (1, 40), "five chunks": (5, 820), "twenty chunks": (20, 820)}
"""Kind of single-turn sample → its chunks and the tokens of each."""


@dataclass(slots=True)
class Bill:
    """The tokens of some requests: read from the cache, written to it, other input, and output."""

    requests: int = 0
    total: int = 0
    read: int = 0
    written: int = 0
    output: int = 0

    def usd(self, price: Price, *, batch: bool = False) -> float:
        """Return their price; in a batch at its share, with no token read from a cache, as batches promise none."""
        read, written = (0, 0) if batch else (self.read, self.written)
        return cost_usd(price, self.total, self.output, cached=read, cache_write=written, at_batch_price=batch)


class Provider(LoopbackServer):
    """A loopback server of OpenAI's chat completions and of Anthropic's messages, which counts into ``bill``.

    Args:
        latency_s: time until an answer.
        envelope: whether requests with a shared beginning are counted with one schema for all forms of answers.
    """

    def __init__(self, latency_s: float = 0.0, *, envelope: bool = False) -> None:
        self.cache = PrefixCache(encoded)
        self.bill = Bill()
        lock, outer = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                is_anthropic = self.path.endswith("/messages")
                answer = answer_to(body)
                if envelope:
                    body |= in_envelope(body)
                counted, add = (outer.cache.of_anthropic if is_anthropic else outer.cache.of_openai)(body)
                output = tokens_of(answer)
                with lock:
                    bill = outer.bill
                    bill.requests, bill.total, bill.output = (
                        bill.requests + 1,
                        bill.total + counted.total,
                        bill.output + output,
                    )
                    bill.read, bill.written = bill.read + counted.read, bill.written + counted.written
                time.sleep(latency_s)
                add()
                reply = message(answer) if is_anthropic else completion(answer, body)
                payload = json.dumps(reply).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(Handler)
        self.url = self.address


def encoded(text: str) -> list[int]:
    """Return the tokens of a text."""
    import tiktoken

    tokens_of("")
    return tiktoken.get_encoding("cl100k_base").encode(text, disallowed_special=())


def message(text: str) -> dict[str, Any]:
    """Return an answer of Anthropic's."""
    about = {"id": "m", "type": "message", "role": "assistant", "model": "claude", "stop_sequence": None}
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {**about, "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "usage": usage}


def answer_to(body: Mapping[str, Any]) -> str:
    """Return an answer of the asked form, the same claims and verdicts for all libraries."""
    schema = (body.get("response_format") or {}).get("json_schema")
    if schema is not None:
        return json.dumps(filled(schema["schema"]))
    content = body["messages"][-1]["content"]
    text = content if isinstance(content, str) else "".join(block["text"] for block in content)
    if _OURS in text:
        return json.dumps(FORMS[text.rpartition(_OURS)[2]])
    schemas = _SCHEMA.findall(text)
    if schemas:
        return json.dumps(filled(json.loads(schemas[-1])))
    return json.dumps({"score": 8, "reason": CLAIMS[0]}) if '"score"' in text else "2"  # GEval; a rating of ragas


def in_envelope(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a request that has one schema for all answers of a unit; empty without a shared beginning."""
    if body.get("response_format") == {"type": "json_object"}:
        schema = {"name": "Answer", "schema": ENVELOPE, "strict": False}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    if any("cache_control" in block for block in body["messages"][-1]["content"]):
        return {"tools": [{"name": "Answer", "input_schema": ENVELOPE}]}
    return {}


def text_of(rng: random.Random, tokens: int) -> str:
    words = re.findall(r"[A-Za-z]{3,}", _WORDS)
    return " ".join(rng.choice(words) for _ in range(round(tokens * 0.93)))


def single(kind: str) -> list[SingleTurnSample]:
    """Return the samples of a kind; each has other texts."""
    number, tokens = KINDS[kind]
    rng = random.Random(kind)
    return [
        SingleTurnSample(
            user_input=f"What is known of place {place}, and since when? {text_of(rng, 20)}",
            response=" ".join(CLAIMS),
            retrieved_contexts=[text_of(rng, tokens) for _ in range(number)],
        )
        for place in range(EACH)
    ]


def conversations() -> list[MultiTurnSample]:
    """Return conversations of ten turns."""
    rng = random.Random(5)
    return [
        MultiTurnSample(
            user_input=[
                part
                for _ in range(10)
                for part in (HumanMessage(content=text_of(rng, 60)), AIMessage(content=text_of(rng, 120)))
            ]
        )
        for _ in range(EACH)
    ]


Scoring = Callable[[Any], Awaitable[Any]]


def ragas_metrics(url: str, *, multi: bool) -> dict[str, Scoring]:
    """Return name → a metric of ragas as a function of a sample."""
    from langchain_openai import ChatOpenAI
    from ragas import metrics
    from ragas.dataset_schema import MultiTurnSample as Multi
    from ragas.dataset_schema import SingleTurnSample as Single
    from ragas.llms import LangchainLLMWrapper

    llm = LangchainLLMWrapper(ChatOpenAI(model=MODEL, base_url=f"{url}/v1", api_key=SecretStr("none")))
    critic = metrics.AspectCritic(name="cited", definition=DEFINITION, llm=llm)
    if multi:
        return {"criteria": lambda sample: critic.multi_turn_ascore(Multi(user_input=of_ragas(sample)))}
    made = {
        "faithfulness": metrics.Faithfulness(llm=llm),
        "context relevance": metrics.ContextRelevance(llm=llm),
        "groundedness": metrics.ResponseGroundedness(llm=llm),
        "criteria": critic,
    }

    def scoring(metric: Any) -> Scoring:
        async def score(sample: SingleTurnSample) -> Any:
            return await metric.single_turn_ascore(Single(**sample.model_dump(exclude_none=True)))

        return score

    return {name: scoring(metric) for name, metric in made.items()}


def of_ragas(sample: MultiTurnSample) -> list[Any]:
    from ragas.messages import AIMessage as Ai
    from ragas.messages import HumanMessage as Human

    return [(Human if isinstance(one, HumanMessage) else Ai)(content=one.content) for one in sample.user_input]


def deepeval_metrics(url: str, *, multi: bool) -> dict[str, Scoring]:
    """Return name → a metric of DeepEval as a function of a sample."""
    from deepeval import metrics
    from deepeval.models import OpenAIModel
    from deepeval.test_case import ConversationalTestCase, LLMTestCase, MultiTurnParams, SingleTurnParams, Turn

    model = OpenAIModel(
        model=MODEL, base_url=f"{url}/v1", api_key="none", cost_per_input_token=0, cost_per_output_token=0
    )
    steps = [DEFINITION]
    if multi:
        params = [MultiTurnParams.ROLE, MultiTurnParams.CONTENT]

        async def talk(sample: MultiTurnSample) -> Any:
            roles = {HumanMessage: "user", AIMessage: "assistant"}
            turns = [Turn(role=roles[type(one)], content=one.content) for one in sample.user_input]
            metric = metrics.ConversationalGEval("cited", params, evaluation_steps=steps, model=model)
            return await metric.a_measure(ConversationalTestCase(turns=turns), _show_indicator=False)

        return {"criteria": talk}
    shown = [SingleTurnParams.INPUT, SingleTurnParams.ACTUAL_OUTPUT, SingleTurnParams.RETRIEVAL_CONTEXT]
    makers: dict[str, Callable[[], Any]] = {
        "faithfulness": lambda: metrics.FaithfulnessMetric(model=model),
        "context relevance": lambda: metrics.ContextualRelevancyMetric(model=model),
        "criteria": lambda: metrics.GEval("cited", shown, evaluation_steps=steps, model=model),
    }

    def scoring(make: Callable[[], Any]) -> Scoring:
        async def score(sample: SingleTurnSample) -> Any:
            texts = {"input": sample.user_input, "actual_output": sample.response}
            case = LLMTestCase(**texts, retrieval_context=sample.retrieved_contexts)
            return await make().a_measure(case, _show_indicator=False)

        return score

    return {name: scoring(make) for name, make in makers.items()}


def our_metrics(asked: Judge, names: Sequence[str], *, multi: bool) -> list[Any]:
    """Return our metrics by the names of their pairs."""
    critic = AspectCritic(asked, name="cited", definition=DEFINITION, fields=None if multi else SHOWN)
    made = {
        "faithfulness": Faithfulness(asked),
        "context relevance": ContextRelevance(asked),
        "groundedness": ResponseGroundedness(asked),
        "criteria": critic,
    }
    return [made[name] for name in names]


def our_model(url: str, *, anthropic: bool) -> Any:
    if anthropic:
        import langchain_anthropic

        make: Any = langchain_anthropic.ChatAnthropic  # typed by its aliases
        return make(model="claude-sonnet-4-5", base_url=url, api_key=SecretStr("none"))
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=MODEL, base_url=f"{url}/v1", api_key=SecretStr("none"))


def bill_of_peer(make: Callable[..., dict[str, Scoring]], names: Sequence[str], samples: Sequence[Any]) -> Bill:
    """Return the bill of a peer's metrics, asked one after the other."""
    multi = isinstance(samples[0], MultiTurnSample)

    async def run(metrics: Mapping[str, Scoring]) -> None:
        for sample in samples:
            for name in names:
                await metrics[name](sample)

    with Provider() as serving:
        asyncio.run(run(make(serving.url, multi=multi)))
        return serving.bill


def our_bill(
    names: Sequence[str],
    samples: Sequence[Any],
    *,
    anthropic: bool = False,
    structured: Structured = "auto",
    envelope: bool = False,
) -> Bill:
    """Return the bill of our metrics, as ``evaluate`` asks them; raises if a sample has no score."""
    multi = isinstance(samples[0], MultiTurnSample)
    with Provider(envelope=envelope) as serving:
        asked = judge(our_model(serving.url, anthropic=anthropic), structured=structured)
        made = our_metrics(asked, names, multi=multi)
        result = spanscore.evaluate_sync(samples, made, concurrency=4, cache=False)
        if failed := [row for row in result.rows if row.outcome != "scored"]:
            raise SystemExit(f"{len(failed)} scores are missing: {failed[0]}")
        return serving.bill


PEERS = {
    "ragas 0.4.3": (ragas_metrics, ("faithfulness", "context relevance", "groundedness", "criteria")),
    "DeepEval 4.3.1": (deepeval_metrics, ("faithfulness", "context relevance", "criteria")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The bills of ours and of a peer, for the same samples and metrics.

    Attributes:
        marked: ours with Anthropic's marks.
    """

    kind: str
    names: Sequence[str]
    peer: str
    mine: Bill
    theirs: Bill
    marked: Bill

    def ratio(self, price: Price, *, batch: bool = False) -> float:
        """Return our price as a share of the peer's, which is never in a batch."""
        return self.mine.usd(price, batch=batch) / self.theirs.usd(price)

    def cells(self) -> list[str]:
        """Return the cells of a row."""
        prices = [*PRICES.values()]
        unmarked = Bill(total=self.theirs.total, output=self.theirs.output).usd(WRITTEN)  # peers set no mark
        dollars = [bill.usd(price) for price in prices for bill in (self.mine, self.theirs)]
        dollars += [self.mine.usd(price, batch=True) for price in prices]
        ratios = [self.ratio(price) for price in prices] + [self.marked.usd(WRITTEN) / unmarked]
        ratios += [self.ratio(price, batch=True) for price in prices]
        bills = self.mine, self.theirs
        return [
            self.kind, ", ".join(self.names), self.peer, *(f"{1_000 / EACH * usd:.2f}" for usd in dollars),
            *(f"{ratio:.2f}" for ratio in ratios), *(f"{bill.read / bill.total:.2f}" for bill in bills),
            *(f"{bill.total // EACH:,}" for bill in bills),
        ]  # fmt: skip

    def misses(self) -> Iterator[str]:
        """Yield the figures that miss a target. The targets are for five chunks."""
        if self.kind != "five chunks":
            return
        online = dict(zip((".1", ".5"), map(self.ratio, PRICES.values()), strict=True))
        if len(self.names) == 1:  # its contexts are sent once, as by the peer
            bounds = {f"ratio at {at}": (ratio, 1.0) for at, ratio in online.items()}
            prices = zip((".1", ".5"), PRICES.values(), strict=True)
            bounds |= {f"batch ratio at {at}": (self.ratio(price, batch=True), 0.6) for at, price in prices}
        else:
            bounds = {"ratio at .1": (online[".1"], 0.35), "ratio at .5": (online[".5"], 0.5)}
            bounds["uncached share"] = (1 - self.mine.read / self.mine.total, 0.4)
        for name, (figure, most) in bounds.items():
            if figure > most:
                yield f"{', '.join(self.names)} beside {self.peer}: {name} is {figure:.2f}, and the target is {most:g} at most"


def comparisons() -> Iterator[Comparison]:
    """Yield a comparison for each kind of sample, peer and set of metrics."""
    for kind in (*KINDS, "ten turns"):
        samples: Sequence[Any] = conversations() if kind == "ten turns" else single(kind)
        for peer, (make, shared) in PEERS.items():
            sets = [("criteria",)] if kind == "ten turns" else [shared, ("faithfulness",)]
            for names in sets:
                yield Comparison(
                    kind=kind,
                    names=names,
                    peer=peer,
                    mine=our_bill(names, samples),
                    theirs=bill_of_peer(make, names, samples),
                    marked=our_bill(names, samples, anthropic=True),
                )


FORMS_COMPARED: Mapping[str, tuple[bool, Structured, bool]] = {
    "OpenAI: a schema for each question": (False, "schema", False),
    "OpenAI: JSON mode": (False, "auto", False),
    "OpenAI: one envelope schema": (False, "auto", True),
    "Anthropic: a tool for each question": (True, "tools", False),
    "Anthropic: text": (True, "auto", False),
    "Anthropic: one envelope tool": (True, "auto", True),
}
"""Form of the answers → whether Anthropic is asked, the judge's mode, and whether one schema is counted in front."""


def answer_forms() -> Iterator[list[str]]:
    """Yield a row for each form of answers: the four metrics on samples with five chunks."""
    samples = single("five chunks")
    for name, (anthropic, structured, envelope) in FORMS_COMPARED.items():
        bill = our_bill(PEERS["ragas 0.4.3"][1], samples, anthropic=anthropic, structured=structured, envelope=envelope)
        prices = [WRITTEN] if anthropic else PRICES.values()
        dollars = "; ".join(f"{1_000 / EACH * bill.usd(price):.2f}" for price in prices)
        yield [name, f"{bill.read / bill.total:.2f}", f"{bill.total // EACH:,}", dollars]


def waits() -> Iterator[list[str]]:
    """Yield a row for each wait: time to score and throughput of units with five chunks that arrive at once."""
    samples = single("five chunks")
    for wait_s in (0.0, 2.0):
        for at_once in (1, len(samples)):
            with Provider(LATENCY_S) as serving:
                asked = judge(our_model(serving.url, anthropic=False), prompt_cache_wait=wait_s)
                took_s, whole_s = asyncio.run(
                    timed(our_metrics(asked, PEERS["ragas 0.4.3"][1], multi=False), samples, at_once)
                )
            bill = serving.bill
            times = f"{statistics.median(took_s):.2f}", f"{sorted(took_s)[round(0.95 * len(took_s)) - 1]:.2f}"
            yield [
                f"{wait_s:g}",
                str(at_once),
                *times,
                f"{len(samples) / whole_s:.2f}",
                f"{bill.read / bill.total:.2f}",
            ]


async def timed(metrics: Sequence[Any], samples: Sequence[Any], at_once: int) -> tuple[list[float], float]:
    """Return the seconds of each sample until its last score, and of all."""
    places, took_s, began_s = asyncio.Semaphore(at_once), list[float](), time.perf_counter()

    async def score(sample: Any) -> None:
        async with places:
            since_s = time.perf_counter()
            await spanscore.evaluate([sample], metrics, cache=False)
            took_s.append(time.perf_counter() - since_s)

    await asyncio.gather(*map(score, samples))
    return took_s, time.perf_counter() - began_s


FORM_HEAD = ["form of the answers", "cached", "input tokens", "USD"]
WAIT_HEAD = ["prompt_cache_wait", "units at once", "median s", "p95 s", "units/s", "cached"]
HEAD = [
    "samples", "metrics", "peer", "USD, ours", "USD, peer", "USD .5, ours", "USD .5, peer", "USD batch, ours",
    "USD .5 batch, ours", "ratio at .1", "ratio at .5", "ratio with marks", "batch ratio at .1", "batch ratio at .5",
    "cached, ours", "cached, peer", "input tokens, ours", "input tokens, peer",
]  # fmt: skip


def table_of(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; its rows are printed as they come."""
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    for row in rows:
        lines.append(" | ".join(row))
        print(lines[-1], flush=True)
    return "\n".join(f"| {line} |" for line in lines)


def main() -> None:
    """Print the tables, and write them to the page.

    Raises:
        SystemExit: a target is missed.
    """
    compared = list[Comparison]()

    def rows() -> Iterator[list[str]]:
        for comparison in comparisons():
            compared.append(comparison)
            yield comparison.cells()

    table = "\n\n".join([table_of(HEAD, rows()), table_of(FORM_HEAD, answer_forms()), table_of(WAIT_HEAD, waits())])
    page = Path(__file__).with_suffix(".md")
    before, _, _ = page.read_text("utf-8").partition("<!-- made -->") if page.exists() else ("", "", "")
    page.write_text(f"{before}<!-- made -->\n\n{table}\n\n<!-- end -->\n", "utf-8")
    if missed := [miss for comparison in compared for miss in comparison.misses()]:
        raise SystemExit("\n".join(missed))


if __name__ == "__main__":
    main()
