"""An application's code, never run, only type-checked against the installed wheel (``.ci/wheel``) and its ``py.typed``."""

from __future__ import annotations

from collections.abc import Mapping

from langchain_core.runnables import Runnable

from spanscore import OnlineScorer, Rule, SingleTurnSample, evaluate_sync, judge, metric, references
from spanscore.config import Budget, RuleCondition, Sampling
from spanscore.metrics import BaseMetric, Faithfulness, Finding


@metric
def short_enough(sample: SingleTurnSample) -> bool:
    return len(sample.response or "") <= 600


class Polite(BaseMetric):
    name = "polite"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("response",)}

    async def measure(self, sample: SingleTurnSample) -> Finding:
        return Finding(value=float("please" in (sample.response or "")))


def scorer_of(path: str) -> OnlineScorer:
    return OnlineScorer.from_config(path, sample_rate=0.1)


def scored(chain: Runnable[str, str], question: str) -> str:
    asked = judge("openai:gpt-4o-mini", timeout=30, prices={"gpt-4o-mini": (0.15, 0.60)})
    metrics = [Faithfulness(asked), Polite(), short_enough]
    rules = [Rule(rate=1.0, name="errors", when=RuleCondition(any_error=True))]
    with OnlineScorer(
        metrics, sampling=Sampling(rates={"polite": 0.5}, rules=rules), budget=[Budget(usd=2, per="1h")]
    ) as scorer:
        with references(reference="Paris"):
            answer: str = chain.invoke(question, config={"callbacks": [scorer.handler]})
        trace_id: str | None = scorer.submit(SingleTurnSample(user_input=question, response=answer))
        status_text: str = str(scorer.status())
    return f"{trace_id} {status_text}"


def means() -> float | None:
    result = evaluate_sync([SingleTurnSample(user_input="?", response="!")], [short_enough])
    mean: float | None = result.mean("short_enough")
    return mean
