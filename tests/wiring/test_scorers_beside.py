"""Two scorers that hear the same runs make one set of spans, and a metric that both have scores a unit once."""

import asyncio

import pytest
from langgraph.graph import END, START, MessagesState, StateGraph
from tests.live import ANSWER, QUESTION, Grounded, a_line, a_trace, identity_holds, model, rag
from tests.wiring.sessions import Turns

from spanscore import ScoringSpanProcessor, semconv, session
from spanscore.config import Capture, Sessions
from spanscore.metrics import Finding


class Newer(Grounded):
    """The same metric in another version."""

    version = "99"


class Answered(Grounded):
    """1 for every answer."""

    requires = {"single_turn": ("response",)}  # noqa: RUF012

    def __init__(self, name="answered"):
        super().__init__(name)

    async def measure(self, sample):
        return Finding(value=1.0)


def scored(scorer):
    assert scorer.flush(5)
    assert identity_holds(scorer)
    return {name: outcomes.get("scored", 0) for name, outcomes in scorer.status().outcomes.items()}


def run_once(way, one, two):
    if way == "callbacks":
        rag().invoke(QUESTION, config={"callbacks": [one.handler, two.handler]})
    elif way == "async":
        asyncio.run(rag().ainvoke(QUESTION, config={"callbacks": [one.handler, two.handler]}))
    elif way == "installed":
        two.install()
        rag().invoke(QUESTION, config={"callbacks": [one.handler]})
    elif way == "constructor":
        rag().with_config(callbacks=[two.handler]).invoke(QUESTION, config={"callbacks": [one.handler]})


@pytest.mark.parametrize("way", ["callbacks", "async", "installed", "constructor"])
def test_a_metric_that_both_have_scores_once_and_others_stay(way):
    trace, both, both_too, own = a_trace(), Grounded(), Grounded(), Grounded("own")
    with a_line(both, trace=trace) as (one, _), a_line(both_too, own, trace=trace) as (two, _):
        for _ in range(3):
            run_once(way, one, two)
        counts = scored(one), scored(two)

    assert len(both.seen) + len(both_too.seen) == len(own.seen) == 3
    assert counts[0]["grounded"] + counts[1]["grounded"] == counts[1]["own"] == 3
    assert len(trace.roots) == 3
    assert len(trace.named("chat")) == 3
    assert len(trace.evaluations) == 6
    assert {span.context.trace_id for span in trace.evaluations} == {root.context.trace_id for root in trace.roots}


def test_both_are_named_in_the_status_of_both():
    trace = a_trace()
    with a_line(Grounded(), trace=trace) as (one, _), a_line(Grounded(), Grounded("own"), trace=trace) as (two, _):
        run_once("callbacks", one, two)
        notes = [[note for note in scorer.status().notes if "same runs" in note] for scorer in (one, two)]

    for (note,) in notes:
        assert "(grounded)" in note
        assert "(grounded, own)" in note
        assert "scores grounded, which both have" in note


def test_another_version_is_another_metric():
    trace, older, newer = a_trace(), Grounded(), Newer()
    with a_line(older, trace=trace) as (one, _), a_line(newer, trace=trace) as (two, _):
        run_once("callbacks", one, two)
        counts = scored(one), scored(two)

    assert counts == ({"grounded": 1}, {"grounded": 1})
    assert len(trace.roots) == 1


def test_with_two_providers_the_spans_are_the_first_s():
    with a_line(Grounded()) as (one, first), a_line(Grounded("own")) as (two, second):
        run_once("callbacks", one, two)
        assert scored(one) | scored(two) == {"grounded": 1, "own": 1}

    assert (len(first.roots), second.roots, len(second.evaluations)) == (1, [], 1)


def test_rates_are_each_scorer_s_own():
    trace = a_trace()
    with (
        a_line(Grounded(), trace=trace, sample_rate=0.0) as (one, _),
        a_line(Grounded("own"), trace=trace) as (two, _),
        a_line(Grounded("never"), trace=trace, sample_rate=0.0) as (three, _),
    ):
        rag().invoke(QUESTION, config={"callbacks": [one.handler, two.handler, three.handler]})
        for scorer in (one, two, three):
            assert scorer.flush(5)
        outcomes = [scorer.status().outcomes for scorer in (one, two, three)]

    assert outcomes == [{"grounded": {"not_sampled": 1}}, {"own": {"scored": 1}}, {"never": {"not_sampled": 1}}]
    assert (len(trace.roots), len(trace.named("chat"))) == (1, 1)


def test_a_graph_with_nested_runs_has_one_set_of_spans():
    trace, own = a_trace(), Grounded("own")

    def answer(state):
        rag().invoke(QUESTION)
        return {"messages": [model().invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    with a_line(Grounded(), trace=trace) as (one, _), a_line(Grounded(), own, trace=trace) as (two, _):
        config = {"callbacks": [one.handler, two.handler]}
        graph.compile().invoke({"messages": [("user", QUESTION)]}, config)
        counts = scored(one), scored(two)

    assert counts == ({"grounded": 1}, {"grounded": 0, "own": 1})
    assert (len(trace.roots), len(trace.named("chat"))) == (1, 2)


def test_content_and_tokens_of_a_run_are_exported_once():
    trace = a_trace()
    with (
        a_line(Grounded(), trace=trace, capture=Capture(content=True)) as (one, _),
        a_line(Grounded("own"), trace=trace, capture=Capture(content=True)) as (two, _),
    ):
        run_once("callbacks", one, two)
        assert scored(one) | scored(two) == {"grounded": 1, "own": 1}

    assert [semconv.INPUT_MESSAGES in span.attributes for span in trace.named("chat")] == [True]


def traced(provider, scope="openinference.instrumentation.langchain"):
    """End a span of a chain as OpenInference writes it."""
    attributes = {"openinference.span.kind": "CHAIN", "input.value": QUESTION, "output.value": ANSWER}
    provider.get_tracer(scope).start_span("chain", attributes=attributes).end()


@pytest.mark.parametrize("kind", ["CHAIN", "TOOL"])
@pytest.mark.parametrize("rate", [1.0, 0.0])
@pytest.mark.parametrize("more", [[], ["own"]])
def test_two_processors_on_one_provider_score_a_unit_once_by_each_metric(more, rate, kind):
    trace = a_trace()
    second = [Answered(name) for name in ("answered", *more)]
    with a_line(Answered(), trace=trace) as (one, _), a_line(*second, trace=trace, sample_rate=rate) as (two, _):
        for scorer in (one, two):
            trace.provider.add_span_processor(ScoringSpanProcessor(scorer))
        if kind == "TOOL":
            within_a_tool(trace.provider)
        else:
            traced(trace.provider)
        for scorer in (one, two):
            assert scorer.flush(5)
            assert identity_holds(scorer)
        outcomes = one.status().outcomes["answered"], {k: v for k, v in two.status().outcomes.items() if v}

    assert outcomes == ({"scored": 1}, dict.fromkeys(more, {"scored": 1} if rate else {"not_sampled": 1}))


def within_a_tool(provider):
    """End the span of a tool with that of a chain below it: the chain is the unit."""
    tracer = provider.get_tracer("openinference.instrumentation.langchain")
    with tracer.start_as_current_span("search", attributes={"openinference.span.kind": "TOOL"}):
        traced(provider)


@pytest.mark.parametrize(
    ("names", "judged"), [(["answered"], {}), (["answered", "own"], {"own": 1}), (["own"], {"own": 1})]
)
def test_a_processor_leaves_to_another_scorer_s_callback_the_metrics_that_both_have(names, judged):
    trace = a_trace()
    second = [Answered(name) for name in names]
    with a_line(Answered(), trace=trace) as (one, _), a_line(*second, trace=trace) as (two, _):
        trace.provider.add_span_processor(ScoringSpanProcessor(two))
        one.install()
        traced(trace.provider)
        rag().invoke(QUESTION)
        counts = scored(one), {name: times for name, times in scored(two).items() if times}

    assert counts == ({"answered": 1}, judged)


def test_a_processor_shares_no_spans_of_another_library_with_a_callback():
    trace = a_trace()
    with a_line(Answered(), trace=trace) as (one, _), a_line(Answered(), trace=trace) as (two, _):
        trace.provider.add_span_processor(ScoringSpanProcessor(two))
        one.install()
        traced(trace.provider, "openinference.instrumentation.crewai")
        counts = scored(one), scored(two)

    assert counts == ({"answered": 0}, {"answered": 1})


@pytest.mark.parametrize("rate", [1.0, 0.0])
@pytest.mark.parametrize("way", ["callbacks", "processors"])
def test_a_conversation_is_scored_once_by_a_metric_that_both_have(way, rate):
    trace = a_trace()
    with (
        a_line(sessions=Sessions(metrics=[Turns()]), trace=trace) as (one, _),
        a_line(Answered(), sessions=Sessions(metrics=[Turns(), Turns("own")]), trace=trace, sample_rate=rate) as (
            two,
            _,
        ),
    ):
        if way == "processors":
            for scorer in (one, two):
                trace.provider.add_span_processor(ScoringSpanProcessor(scorer))
        for _ in range(2):
            with session("talk"):
                if way == "processors":
                    traced(trace.provider)
                else:
                    run_once("callbacks", one, two)
        for scorer in (one, two):
            scorer.end_session("talk")
            assert scorer.flush(5)
            assert identity_holds(scorer)
        first, second = (scorer.status() for scorer in (one, two))

    how = "scored" if rate else "not_sampled"
    assert (first.outcomes["turns"], second.outcomes) == (
        {"scored": 1},
        {"turns": {}, "own": {how: 1}, "answered": {how: 2}},
    )
    assert second.eligible == {"turns": 0, "own": 1, "answered": 2}
