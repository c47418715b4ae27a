"""An application that others trace, too: run by the tests in a process of its own, as an instrumentation is for ever.

    python -m tests.other_instrumentations.application openinference openllmetry openai langsmith

Application and judge are two models of one server, so every mention of the judge's model is a traced evaluation. Prints one
JSON object: the questions, the scores and the exports of each tracer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from tests.live import ANSWER, CONTEXT, QUESTION, Library, Trace, a_line, a_trace
from tests.other_instrumentations.langsmith_api import LangSmithServer
from tests.servers.openai_api import OpenAIServer, judged

from spanscore import SingleTurnSample, metric
from spanscore.config import Capture
from spanscore.metrics import AspectCritic, Faithfulness

APPLICATION, JUDGE = "application-model", "judge-model"
CALLS_PER_SAMPLE = {"faithfulness": 2, "harmless": 1, "own": 2}
SAMPLE = SingleTurnSample(user_input=QUESTION, response=ANSWER, retrieved_contexts=[CONTEXT])


def openinference(provider: Any) -> None:
    from openinference.instrumentation.langchain import LangChainInstrumentor

    LangChainInstrumentor().instrument(tracer_provider=provider)


def openllmetry(provider: Any) -> None:
    from opentelemetry.instrumentation.langchain import LangchainInstrumentor

    LangchainInstrumentor().instrument(tracer_provider=provider)


def openai(provider: Any) -> None:
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor

    OpenAIInstrumentor().instrument(tracer_provider=provider)


INSTRUMENTATIONS: dict[str, Callable[[Any], None]] = {
    "openinference": openinference,
    "openllmetry": openllmetry,
    "openai": openai,
}


def chat_model(server: OpenAIServer, name: str) -> ChatOpenAI:
    return ChatOpenAI(model=name, base_url=server.url, api_key="none", max_retries=0)


def rag(server: OpenAIServer, *after: Any) -> Any:
    prompt = ChatPromptTemplate.from_template("Use {context} to answer {question}")
    chain = {"context": Library(), "question": RunnablePassthrough()} | prompt | chat_model(server, APPLICATION)
    for step in (StrOutputParser(), *after):
        chain = chain | step
    return chain


def own_metric(server: OpenAIServer) -> Any:
    """A metric that calls its model and its embeddings itself, as any code would."""
    judge = chat_model(server, JUDGE)
    vectors = OpenAIEmbeddings(model=JUDGE, base_url=server.url, api_key="none", check_embedding_ctx_length=False)

    @metric
    def own(sample: Any) -> float:  # not async: the client's loop is the application's
        (ChatPromptTemplate.from_template("Judge {answer}") | judge).invoke({"answer": sample.response})
        return float(len(vectors.embed_documents([sample.response])))

    return own


def answer(request: dict[str, Any]) -> str:
    return judged(request) if request["model"] == JUDGE else ANSWER


async def asynchronously(chain: Any, metric: Any, config: Any) -> None:
    """Evaluate in the application's own loop, during one of its runs."""
    await asyncio.gather(chain.ainvoke(QUESTION, config=config), metric.score(SAMPLE))


def use(server: OpenAIServer, metric: Any, config: Any, loop: asyncio.Runner) -> int:
    """Run the application in every way; evaluate by hand between the runs, during one and inside one."""
    chain = rag(server)
    chain.invoke(QUESTION, config=config)
    chain.batch([QUESTION, QUESTION], config=config)
    metric.score_sync(SAMPLE)
    loop.run(asynchronously(chain, metric, config))
    checking = RunnableLambda(lambda said: (said, metric.score_sync(SAMPLE).value), name="checking")
    rag(server, checking).invoke(QUESTION, config=config)
    return 5


def evaluated(server: OpenAIServer, trace: Trace, loop: asyncio.Runner, *, capture: bool) -> dict[str, Any]:
    """Use the application with a scorer attached, by call and to the whole process."""
    judge = chat_model(server, JUDGE)
    harmless = AspectCritic(judge, name="harmless", definition="Is it free of harm?")
    metrics = [Faithfulness(judge), harmless, own_metric(server)]
    with a_line(*metrics, trace=trace, capture=Capture(enabled=capture)) as (scorer, _):
        scorer.install()
        runs = use(server, metrics[0], {"callbacks": [scorer.handler]}, loop)
        flushed = scorer.flush(20)
        status = scorer.status()
    judge_calls = sum(request["model"] == JUDGE for request in server.requests)
    by_hand = 3 * CALLS_PER_SAMPLE["faithfulness"]
    return {
        "runs": runs,
        "flushed": flushed,
        "units": status.units,
        "outcomes": status.outcomes,
        "neighbours": status.neighbours,
        "judge_calls": judge_calls,
        "judge_calls_expected": by_hand + (runs if capture else 0) * sum(CALLS_PER_SAMPLE.values()),
        "application_calls": len(server.requests) - judge_calls,
        "roots": [dict(root.attributes) for root in trace.roots],
    }


def external(trace: Trace) -> list[Any]:
    return [span for span in trace.spans if not span.instrumentation_scope.name.startswith("spanscore")]


def shapes(trace: Trace) -> list[str]:
    """Return every foreign span as (scope, name, parent's name, attribute names), in an order that does not depend on time."""
    names = {span.context.span_id: span.name for span in external(trace)}
    return sorted(
        json.dumps(
            [
                span.instrumentation_scope.name,
                span.name,
                names.get(span.parent.span_id) if span.parent else None,
                sorted(span.attributes),
            ]
        )
        for span in external(trace)
    )


def naming(trace: Trace, word: str) -> dict[str, int]:
    """Return scope → spans with a word; of spanscore's own spans only runs, because an evaluation span names its judge."""
    runs = [span for span in trace.spans if span.instrumentation_scope.name != "spanscore"]
    return Counter(s.instrumentation_scope.name for s in runs if word in s.name + str(dict(s.attributes)))


class Unasked:
    """Replaces the metric, and evaluates nothing."""

    value = 1.0

    async def score(self, _: Any) -> Unasked:
        return self

    def score_sync(self, _: Any) -> Unasked:
        return self


def report(names: list[str], stack: ExitStack) -> dict[str, Any]:
    trace, server = a_trace(), stack.enter_context(OpenAIServer(answer))
    langsmith = stack.enter_context(LangSmithServer()) if "langsmith" in names else None
    drain = langsmith.drain if langsmith else list
    loop = stack.enter_context(asyncio.Runner())  # one: over two, the client fails by itself, without any scorer
    for name in INSTRUMENTATIONS.keys() & set(names):
        INSTRUMENTATIONS[name](trace.provider)

    use(server, Unasked(), None, loop)
    alone = shapes(trace)
    drain()
    trace.exporter.clear()
    server.requests.clear()

    found = evaluated(server, trace, loop, capture="no-capture" not in names)
    found |= {"alone": alone, "beside": shapes(trace), "judge_spans": naming(trace, JUDGE), "langsmith": drain()}
    trace.exporter.clear()

    chat_model(server, JUDGE).invoke("Who traces this?")  # the control: an ordinary call, which each of them sees
    return found | {"control": naming(trace, JUDGE), "langsmith_control": drain()}


def main(names: list[str]) -> None:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("spanscore").addHandler(handler)
    with ExitStack() as stack:
        print(json.dumps(report(names, stack) | {"said": said}))


if __name__ == "__main__":
    main(sys.argv[1:])
