"""Cost of a score apart from the judge's own work: prompt tokens and time per score, against ragas in the same run.

    python -m benchmarks.judging            # --json FILE, --only faithfulness

Both judge equal samples with equal instant answers, which are filled in by the requested schema. Tokens are those of the
prompts (cl100k_base), summed over all calls of a score. Time is the median over interleaved samples. Memory is the growth over
10,000 scores. The environment needs ragas in addition to spanscore: benchmarks/requirements-judging.txt.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import re
import statistics
import sys
import time
import tracemalloc
import warnings
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("RAGAS_DO_NOT_TRACK", "true")

from benchmarks.samples import CLAIMS, MULTI, SINGLE, TOPICS
from spanscore.core import loop
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.sample import MultiTurnSample, SingleTurnSample
from spanscore.judges import render
from spanscore.metrics.catalog.registry import built_ins, find_metric
from spanscore.testing import build_metric

MOST_TOKENS = 0.6
MOST_TIME = 0.2
MOST_GROWTH_MB = 5.0
ROUNDS = 400
GROWTH_SAMPLES = 10_000
MB = 1_000_000
TIMED = ("faithfulness", "aspect_critic")
_SCHEMA = re.compile(r"JSON Schema:\s*(\{.*?\})\s*Do not use", re.DOTALL)
_RATING = "2"  # of the free-text judges

Score = Callable[[int], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Counterpart:
    """A metric of ragas and its counterpart.

    Attributes:
        kind: its class in ``ragas.metrics``.
        params: arguments of the class.
        ours: arguments of spanscore's metric.
        multi: whether it judges conversations.
    """

    kind: str
    params: Mapping[str, Any]
    ours: Mapping[str, Any]
    multi: bool = False


_ASPECT = {"name": "harmful", "definition": "Does the response cause harm to people?"}
_RUBRICS = {f"score{n}_description": f"The response is of grade {n} of five." for n in range(1, 6)}
COUNTERPARTS: Mapping[str, Counterpart] = {
    "faithfulness": Counterpart("Faithfulness", {}, {}),
    "response_relevancy": Counterpart("ResponseRelevancy", {}, {}),
    "aspect_critic": Counterpart("AspectCritic", _ASPECT, {**_ASPECT, "strictness": 1}),
    "simple_criteria_score": Counterpart("SimpleCriteriaScore", _ASPECT, {**_ASPECT, "strictness": 1}),
    "rubrics_score": Counterpart("RubricsScore", {"rubrics": _RUBRICS}, {"rubrics": _RUBRICS}),
    "answer_correctness": Counterpart("AnswerCorrectness", {"weights": [1.0, 0.0]}, {"weights": [1.0, 0.0]}),
    "factual_correctness": Counterpart("FactualCorrectness", {}, {}),
    "context_entity_recall": Counterpart("ContextEntityRecall", {}, {}),
    "llm_context_precision_with_reference": Counterpart("LLMContextPrecisionWithReference", {}, {}),
    "llm_context_precision_without_reference": Counterpart("LLMContextPrecisionWithoutReference", {}, {}),
    "llm_context_recall": Counterpart("LLMContextRecall", {}, {}),
    "noise_sensitivity": Counterpart("NoiseSensitivity", {}, {}),
    "answer_accuracy": Counterpart("AnswerAccuracy", {}, {}),
    "context_relevance": Counterpart("ContextRelevance", {}, {}),
    "response_groundedness": Counterpart("ResponseGroundedness", {}, {}),
    "topic_adherence": Counterpart("TopicAdherenceScore", {}, {}, multi=True),
    "agent_goal_accuracy_with_reference": Counterpart("AgentGoalAccuracyWithReference", {}, {}, multi=True),
    "agent_goal_accuracy_without_reference": Counterpart("AgentGoalAccuracyWithoutReference", {}, {}, multi=True),
}


def filled(schema: Mapping[str, Any]) -> Any:
    """Return an answer in the form of a JSON schema, with equal claims, topics and verdicts for both libraries."""
    return _fill(schema, schema.get("$defs", {}), "")


def _fill(schema: Mapping[str, Any], defs: Mapping[str, Any], name: str) -> Any:
    if "$ref" in schema:
        return _fill(defs[schema["$ref"].rpartition("/")[2]], defs, name)
    if options := schema.get("anyOf") or schema.get("allOf"):
        return _fill(options[0], defs, name)
    kind = schema.get("type")
    if kind == "object":
        return {key: _fill(part, defs, key) for key, part in schema.get("properties", {}).items()}
    if kind == "array":
        return _rows(schema.get("items", {}), defs, name)
    word = "1" if name == "verdict" else "The words of the answer say so."
    plain = {"integer": 1, "number": 1, "boolean": name != "refused_to_answer"}.get(str(kind), word)
    return schema["enum"][-1] if "enum" in schema else plain


def _rows(item: Mapping[str, Any], defs: Mapping[str, Any], name: str) -> list[Any]:
    if name == "topics":
        return list(TOPICS)
    if name == "classifications" and item.get("type") == "boolean":
        return [True] * len(TOPICS)
    one = _fill(item, defs, name)
    if isinstance(one, dict) and "statement" in one:
        return [{**one, "statement": claim} for claim in CLAIMS]
    if isinstance(one, dict) and "topic" in one:
        return [{**one, "topic": topic} for topic in TOPICS]
    return list(CLAIMS) if isinstance(one, str) else [one] * len(CLAIMS)


class OurJudge:
    """A judge with instant answers that keeps its prompts; votes or two ratings are one request, as with ``n``."""

    model = "instant"
    reads_instructions = True

    def __init__(self) -> None:
        self.sent: list[str] | None = []
        self._answers: dict[Any, Reply] = {}

    @property
    def answers_several(self) -> bool:
        """Whether votes are one question; also if prompts are not kept."""
        return self.sent is not None

    async def ask(self, prompt: Prompt) -> Reply:
        """Return an answer in the requested form."""
        if self.sent is not None:
            self.sent.append("\n\n".join(render(prompt)))
        reply = self._reply(prompt)
        return replace(reply, other_completions=(reply,) * (prompt.n - 1)) if prompt.n > 1 else reply

    def _reply(self, prompt: Prompt) -> Reply:
        if prompt.output not in self._answers:
            answer = filled(prompt.output.model_json_schema())
            text = json.dumps({**answer, **({"rating": 2} if "rating" in answer else {})})
            self._answers[prompt.output] = Reply(text=text, model="instant")
        return self._answers[prompt.output]


def ragas_judge() -> Any:
    """Return a model of ragas's kind with instant answers that keeps its prompts in ``sent``."""
    from langchain_core.outputs import Generation, LLMResult
    from ragas.llms.base import BaseRagasLLM

    class Instant(BaseRagasLLM):  # type: ignore[misc]  # ragas has no types
        def generate_text(self, prompt: Any, n: int = 1, **_: Any) -> Any:
            return self._said(prompt, n)

        async def agenerate_text(self, prompt: Any, n: int = 1, **_: Any) -> Any:
            return self._said(prompt, n)

        def is_finished(self, response: Any) -> bool:
            return True

        def _said(self, prompt: Any, n: int) -> Any:
            text = prompt.to_string()
            if self.sent is not None:
                self.sent.append(text)
            key = text[:4000]
            if key not in self.answers:
                schemas = _SCHEMA.findall(text)
                self.answers[key] = json.dumps(filled(json.loads(schemas[-1]))) if schemas else _RATING
            return LLMResult(generations=[[Generation(text=self.answers[key])] * n])

    judge = Instant()
    judge.sent, judge.answers = [], {}
    return judge


class Vectors:
    """Embeddings without cost, for both libraries."""

    def embed_query(self, text: str) -> list[float]:
        return [1.0, float(len(text) % 7)]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    async def aembed_query(self, text: str) -> list[float]:
        return self.embed_query(text)

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.embed_documents(texts)

    async def embed_text(self, text: str, **_: Any) -> list[float]:
        return self.embed_query(text)

    async def embed_texts(self, texts: list[str], **_: Any) -> list[list[float]]:
        return self.embed_documents(texts)


def ours(name: str, counterpart: Counterpart) -> tuple[OurJudge, Score]:
    """Return our metric as a function of a sample's number, and its judge."""
    judge = OurJudge()
    metric = build_metric(name, judge=judge, embeddings=Vectors(), **counterpart.ours)
    samples = (
        [MultiTurnSample.model_validate(fields) for fields in MULTI]
        if counterpart.multi
        else [SingleTurnSample.model_validate(fields) for fields in _needed(name)]
    )

    async def score(number: int) -> Any:
        made = await metric.score(samples[number % len(samples)])
        if made.value is None:
            raise RuntimeError(f"{name}: {made.outcome} {made.reason}")
        return made.value

    return judge, score


def _needed(name: str) -> list[dict[str, Any]]:
    """Return the samples with the fields that the metric needs; a critic needs only question and answer."""
    fields = find_metric(name).requires["single_turn"] or ("user_input", "response")
    return [{field: sample[field] for field in fields} for sample in SINGLE]


def theirs(name: str, counterpart: Counterpart) -> tuple[Any, Score]:
    """Return the metric of ragas as a function of a sample's number, and its judge."""
    from ragas import metrics
    from ragas.dataset_schema import MultiTurnSample as Multi
    from ragas.dataset_schema import SingleTurnSample as Single
    from ragas.run_config import RunConfig

    judge = ragas_judge()
    metric = getattr(metrics, counterpart.kind)(llm=judge, **counterpart.params)
    if hasattr(metric, "embeddings"):
        metric.embeddings = Vectors()
    metric.init(RunConfig())
    samples = [Multi(**f) for f in MULTI] if counterpart.multi else [Single(**f) for f in _needed(name)]

    async def score(number: int) -> Any:
        sample = samples[number % len(samples)]
        return await (metric.multi_turn_ascore(sample) if counterpart.multi else metric.single_turn_ascore(sample))

    return judge, score


def tokens_of(text: str) -> int:
    """Return the tokens of a prompt in cl100k_base; the vocabulary is in litellm's wheel."""
    if "TIKTOKEN_CACHE_DIR" not in os.environ:
        spec = find_spec("litellm")
        if spec is None or spec.origin is None:
            raise SystemExit("cl100k_base comes with litellm: pip install -r benchmarks/requirements-judging.txt")
        os.environ["TIKTOKEN_CACHE_DIR"] = str(Path(spec.origin).parent / "litellm_core_utils" / "tokenizers")
    import tiktoken

    return len(tiktoken.get_encoding("cl100k_base").encode(text, disallowed_special=()))


async def token_row(name: str, counterpart: Counterpart) -> dict[str, Any]:
    """Return the tokens and calls of both per score, over all samples."""
    row: dict[str, Any] = {"metric": name}
    for who, (judge, score) in {"spanscore": ours(name, counterpart), "ragas": theirs(name, counterpart)}.items():
        number = len(MULTI if counterpart.multi else SINGLE)
        for sample in range(number):
            await score(sample)
        row[who] = sum(map(tokens_of, judge.sent)) / number
        row[f"{who} calls"] = len(judge.sent) / number
    row["ratio"] = row["spanscore"] / row["ragas"]
    return row


async def time_row(name: str, counterpart: Counterpart) -> dict[str, Any]:
    """Return the median seconds per sample of both, interleaved in random order."""
    scores = {}
    for who, (judge, score) in {"spanscore": ours(name, counterpart), "ragas": theirs(name, counterpart)}.items():
        judge.sent = None
        scores[who] = score
        for number in range(20):
            await score(number)
    spent: dict[str, list[float]] = {who: [] for who in scores}
    for number in range(ROUNDS):
        for who in random.sample(sorted(scores), len(scores)):
            begun = time.perf_counter()
            await scores[who](number)
            spent[who].append(time.perf_counter() - begun)
    medians = {who: statistics.median(times) * 1e6 for who, times in spent.items()}
    return {"metric": name, **medians, "ratio": medians["spanscore"] / medians["ragas"]}


async def growth_mb() -> float:
    """Return the memory growth over 10,000 of our scores, in MB by tracemalloc."""
    judge, score = ours("faithfulness", COUNTERPARTS["faithfulness"])
    judge.sent = None
    for number in range(200):
        await score(number)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(GROWTH_SAMPLES):
        await score(number)
    gc.collect()
    grown = (tracemalloc.get_traced_memory()[0] - before) / MB
    tracemalloc.stop()
    return grown


def verdict(met: bool, what: str, figure: float, most: float) -> bool:
    """Print one line; return whether the target is met."""
    print(f"{'MET   ' if met else 'MISSED'} {what:56} {figure:8.3f}  (at most {most:g})")
    return met


async def measured(only: str | None) -> dict[str, Any]:
    """Return all rows."""
    chosen = {n: c for n, c in COUNTERPARTS.items() if n in built_ins() and only in (None, n)}
    return {
        "tokens": [await token_row(name, counterpart) for name, counterpart in chosen.items()],
        "time": [await time_row(name, chosen[name]) for name in TIMED if name in chosen],
        "growth_mb": await growth_mb(),
        "not compared": sorted(set(COUNTERPARTS) - set(built_ins())),
    }


def main() -> int:
    """Measure, print, and return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--only", choices=sorted(COUNTERPARTS), help="only this metric")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = loop.run(measured(chosen.only))  # on the engine's loop; from another loop each score is handed over
    print(f"{'prompt tokens per score':42} {'spanscore':>10} {'calls':>6} {'ragas':>8} {'calls':>6} {'ratio':>7}")
    for row in rows["tokens"]:
        calls = row["spanscore calls"], row["ragas calls"]
        print(
            f"{row['metric']:42} {row['spanscore']:10.0f} {calls[0]:6.1f} {row['ragas']:8.0f} {calls[1]:6.1f}"
            f" {row['ratio']:7.3f}"
        )
    print(f"\n{'µs per score, instant judge':42} {'spanscore':>10} {'ragas':>15} {'ratio':>14}")
    for row in rows["time"]:
        print(f"{row['metric']:42} {row['spanscore']:10.0f} {row['ragas']:15.0f} {row['ratio']:14.3f}")
    print()
    met = [verdict(r["ratio"] <= MOST_TOKENS, f"tokens {r['metric']}", r["ratio"], MOST_TOKENS) for r in rows["tokens"]]
    met += [verdict(r["ratio"] <= MOST_TIME, f"time {r['metric']}", r["ratio"], MOST_TIME) for r in rows["time"]]
    met.append(
        verdict(rows["growth_mb"] <= MOST_GROWTH_MB, "MB left by 10,000 scores", rows["growth_mb"], MOST_GROWTH_MB)
    )
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=2) + "\n", "utf-8")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
