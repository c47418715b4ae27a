"""The judge refuses every connection while a fallback answers: the judge of each score, and the effect on means."""

from __future__ import annotations

from collections import Counter
from time import monotonic, sleep

from langchain_openai import ChatOpenAI
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.servers.faulty_openai import FaultyOpenAI

from spanscore import OnlineScorer
from spanscore.core.sample import SingleTurnSample
from spanscore.judges import judge
from spanscore.judges.effects.limited import limiters_of
from spanscore.metrics import AspectCritic
from spanscore.protocols import Judge

BEGUN, MEANWHILE = 20, 30


def model(server: FaultyOpenAI, name: str) -> ChatOpenAI:
    return ChatOpenAI(base_url=server.url, api_key="none", model=name)  # type: ignore[arg-type]  # a plain key


def submit(scorer: OnlineScorer, number: int) -> None:
    for _ in range(number):
        scorer.submit(SingleTurnSample(user_input="Where is Rome?", response="In Italy."))


def wait_until_away(asked: Judge) -> None:
    ends_s = monotonic() + 30
    while all(limiter.state.breaker == "closed" for limiter in limiters_of(asked)):
        assert monotonic() < ends_s
        sleep(0.01)


def test_scores_that_begin_in_an_outage_are_the_fallbacks_and_in_no_mean_of_the_judge() -> None:
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    with (
        FaultyOpenAI(lambda _: '{"reason": "", "verdict": 1}') as first,
        FaultyOpenAI(lambda _: '{"reason": "", "verdict": 0}') as second,
    ):
        asked = judge(model(first, "a"), fallback=[model(second, "b")])
        scorer = OnlineScorer([AspectCritic(asked, name="harmless", definition="Harmless?")], tracer_provider=provider)
        first.refuse()
        submit(scorer, BEGUN)
        wait_until_away(asked)
        submit(scorer, MEANWHILE)
        first.accept()
        assert scorer.flush(60)
        status = scorer.status()
        scorer.shutdown()

    counts = Counter(
        (
            str(one.attributes["spanscore.evaluator.version"]).split("/")[1],
            one.attributes.get("spanscore.evaluation.source"),
        )
        for one in spans.get_finished_spans()
        if one.attributes and "spanscore.evaluator.version" in one.attributes
    )
    assert counts.keys() == {("a", None), ("b", "fallback")}
    assert (counts.total(), counts["a", None] >= BEGUN) == (BEGUN + MEANWHILE, True)
    assert counts["b", "fallback"] == len(second.asked)
    mean = status.means["harmless"]
    assert mean is not None
    assert mean[0] == 1.0  # the fallback answered 0
