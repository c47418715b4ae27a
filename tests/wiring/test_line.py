"""The line, from a live chain to a score on its span."""

import asyncio
import threading
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from tests.judges.models import PlainModel
from tests.live import (
    ANSWER,
    CONTEXT,
    QUESTION,
    Failing,
    Grounded,
    Held,
    HeldThread,
    Slow,
    a_line,
    a_trace,
    identity_holds,
    model,
    rag,
    run_rag,
)
from tests.servers.server import poll

import spanscore
from spanscore.config import Capture, Limits, Outputs
from spanscore.core.codecs.sdk import span_data
from spanscore.core.span import Unit, UnitKey
from spanscore.metrics import ExactMatch
from spanscore.samples.genai import GenAIExtractor
from spanscore.scorer import pipeline_of
from spanscore.testing import MemorySink
from spanscore.wiring import build


def config(scorer, **more):
    return {"callbacks": [scorer.handler], **more}


def test_a_score_stands_on_the_span_of_its_run_and_nothing_is_remembered():
    with a_line() as (scorer, trace):
        answer = rag().invoke(QUESTION, config=config(scorer))
        assert scorer.flush(5)
        line = pipeline_of(scorer)
        remembered = scorer.handler.memory.remembered(), line.units.hold.in_flight, len(line.hold), len(line.assembler)

    (root,) = trace.roots
    assert remembered == (0, {}, 0, 0)
    assert answer == ANSWER
    assert root.attributes["spanscore.score.grounded"] == 1.0
    assert root.attributes["spanscore.status"] == "scored"
    assert root.attributes["spanscore.run.end"] == "completed"
    assert {s.name.split()[0] for s in trace.spans} == {"invoke_workflow", "chat", "retrieval", "evaluation"}
    assert all(s.parent.span_id == root.context.span_id for s in trace.spans if s is not root)
    assert all(root.start_time <= s.start_time <= s.end_time <= root.end_time for s in trace.spans)


@pytest.mark.parametrize("attach", ["per call", "per chain", "installed", "twice"])
def test_attached_in_any_way_a_run_counts_once(attach):
    with a_line() as (scorer, trace):
        chain = rag()
        if attach in ("per chain", "twice"):
            chain = chain.with_config(callbacks=[scorer.handler])
        if attach == "installed":
            scorer.install()
        chain.invoke(QUESTION, config=config(scorer) if attach in ("per call", "twice") else None)
        assert scorer.flush(5)
        scorer.uninstall()
        if attach == "installed":
            chain.invoke(QUESTION)

        assert (len(trace.roots), scorer.status().units) == (1, 1)


def test_usage_and_conversation_stand_on_the_spans():
    with a_line() as (scorer, trace):
        rag().invoke(QUESTION, config=config(scorer, metadata={"session_id": "s-1"}))
        scorer.flush(5)

    (chat,) = trace.named("chat")
    assert (chat.attributes["gen_ai.usage.input_tokens"], chat.attributes["gen_ai.usage.output_tokens"]) == (11, 7)
    assert trace.roots[0].attributes["gen_ai.conversation.id"] == "s-1"


def test_two_chains_under_one_ambient_span_are_two_units():
    trace, metric = a_trace(), Grounded()
    with (
        a_line(metric, trace=trace) as (scorer, _),
        trace.provider.get_tracer("app").start_as_current_span("POST /chat"),
    ):
        rag().invoke("first?", config=config(scorer))
        rag().invoke("second?", config=config(scorer))
        scorer.flush(5)

    assert [s.user_input for s in metric.seen] == ["first?", "second?"]
    assert len({s.context.trace_id for s in trace.spans}) == 1
    assert all(root.attributes["spanscore.score.grounded"] == 1.0 for root in trace.roots if "workflow" in root.name)


def test_what_the_application_edits_afterwards_is_not_what_is_scored():
    metric, messages = Grounded(), [HumanMessage(QUESTION)]

    def answer(_):
        return {"context": [CONTEXT], "messages": [HumanMessage(QUESTION), AIMessage(ANSWER)]}

    with a_line(metric) as (scorer, _):
        result = RunnableLambda(answer).invoke({"messages": messages}, config=config(scorer))
        messages.append(HumanMessage("edited"))
        result.pop("context")
        result["messages"][1].content = "edited"
        result["messages"].clear()
        scorer.flush(5)

    (sample,) = metric.seen
    assert (sample.user_input, sample.response, sample.retrieved_contexts) == (QUESTION, ANSWER, [CONTEXT])


def test_without_content_capture_no_text_leaves():
    with a_line() as (scorer, trace):
        run_rag(scorer)

    assert trace.evaluations
    assert not any(text in trace.text() for text in ("capital", "Paris", "France"))


def test_an_error_without_content_capture_quotes_nothing():
    def fail(_):
        raise ValueError("Paris is secret")

    with a_line() as (scorer, trace):
        with pytest.raises(ValueError, match="secret"):
            RunnableLambda(fail).invoke(QUESTION, config=config(scorer))
        scorer.flush(5)

    assert trace.roots[0].attributes["error.type"] == "ValueError"
    assert "secret" not in trace.text()


def test_a_unit_exported_with_content_reads_back_as_the_same_sample():
    metric = Grounded()
    with a_line(metric, capture=Capture(content=True)) as (scorer, trace):
        with spanscore.references(reference="Paris"):
            rag().invoke(QUESTION, config=config(scorer))
        scorer.flush(5)

    spans = [span_data(s) for s in trace.spans if s.instrumentation_scope.name == "spanscore.capture"]
    root = next(s for s in spans if s.parent_id is None)
    unit = Unit(UnitKey(root.trace_id, root.span_id), tuple(sorted(spans, key=lambda s: s.start_ns)))
    assert GenAIExtractor().extract(unit).single_turn == metric.seen[0]
    assert metric.seen[0].retrieved_context_ids == ["doc-1"]


def test_expected_references_reach_the_metric():
    with a_line(ExactMatch()) as (scorer, trace):
        with spanscore.references(reference=ANSWER):
            rag().invoke(QUESTION, config=config(scorer))
        scorer.flush(5)

    assert trace.roots[0].attributes["spanscore.score.exact_match"] == 1.0
    assert "spanscore.references" not in trace.roots[0].attributes


def test_a_late_score_arrives_on_an_evaluation_span():
    with a_line(Slow(0.6), outputs=Outputs(hold=0.1)) as (scorer, trace):
        run_rag(scorer)

    (root,), (evaluation,) = trace.roots, trace.evaluations
    assert (root.attributes["spanscore.status"], "spanscore.score.slow" in root.attributes) == ("pending", False)
    assert evaluation.attributes["spanscore.score.slow"] == 1.0
    assert (evaluation.start_time, evaluation.end_time) == (root.end_time - 1_000, root.end_time)


FAULTS = {
    "judge": (Failing(spanscore.JudgeError("no", error_type="http_401")), "judge_error", "http_401"),
    "metric": (Failing(KeyError("x")), "metric_error", "KeyError"),
    "exit": (Failing(SystemExit(3)), "metric_error", "SystemExit"),
    "timeout": (Slow(5, name="failing"), "timeout", "timeout"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failed_evaluation_has_no_value_and_says_why(fault):
    metric, outcome, error_type = FAULTS[fault]
    with a_line(metric, Grounded(), limits=Limits(timeout=0.5)) as (scorer, trace):
        run_rag(scorer)

    (root,) = trace.roots
    failed = next(s for s in trace.evaluations if s.attributes["gen_ai.evaluation.name"] == "failing")
    assert (root.attributes["spanscore.status"], root.attributes["spanscore.outcome.failing"]) == ("partial", outcome)
    assert (failed.attributes["error.type"], failed.status.status_code.name) == (error_type, "ERROR")
    assert not any(k.startswith(("spanscore.score.failing", "gen_ai.evaluation.score")) for k in failed.attributes)


def test_an_undefined_metric_is_not_zero():
    with a_line(Failing(None)) as (scorer, trace):
        run_rag(scorer)

    root = trace.roots[0].attributes
    assert (root["spanscore.status"], root["spanscore.outcome.failing"]) == ("not_scored", "no_value")
    assert "spanscore.score.failing" not in root


def test_a_missing_field_names_metric_and_field():
    with a_line(Grounded()) as (scorer, trace):
        model().invoke(QUESTION, config=config(scorer))
        scorer.flush(5)
        reasons = scorer.status().reasons

    assert trace.roots[0].attributes["spanscore.outcome.grounded"].startswith("missing_field")
    assert not trace.evaluations
    assert "grounded" in str(reasons)
    assert "retrieved_contexts was looked for in" in str(reasons)


def test_a_full_queue_is_said_on_the_trace():
    with a_line(Slow(0.3), limits=Limits(queue_size=1)) as (scorer, trace):
        run_rag(scorer, 3)
        assert scorer.status().outcomes["slow"] == {"scored": 1, "queue_full": 2}

    assert sorted(r.attributes["spanscore.status"] for r in trace.roots) == ["not_scored", "not_scored", "scored"]


def test_a_queue_full_of_bytes_turns_units_away_until_they_are_scored():
    go_on, heavy = threading.Event(), "A long story. " * 30_000
    with a_line(Held(go_on), limits=Limits(queue_bytes=2_000_000)) as (
        scorer,
        _,
    ):  # a unit holds the question, and the prompt with it
        rag().batch([f"{heavy} {n}" for n in range(6)], config=config(scorer))
        poll(
            lambda: scorer.status().outcomes["held"] == {"queue_full": 4},
            deadline_s=10,
            what="four units to be turned away",
        )
        go_on.set()
        assert scorer.flush(10)
        rag().batch([f"{heavy} {n}" for n in range(2)], config=config(scorer))
        assert scorer.flush(10)

        assert scorer.status().outcomes["held"] == {"queue_full": 4, "scored": 4}


def test_a_unit_heavier_than_the_queue_waits_alone():
    with a_line(limits=Limits(queue_bytes=1)) as (scorer, _):
        for _ in range(3):
            run_rag(scorer)

        assert scorer.status().outcomes["grounded"] == {"scored": 3}


def test_a_burst_is_read_as_the_workers_get_to_it():
    read, go_on = [], threading.Event()

    def keep(sample):
        read.append(sample)
        return True

    with a_line(HeldThread(go_on), limits=Limits(workers=2), sample_filter=keep) as (scorer, _):
        rag().batch([QUESTION] * 12, config=config(scorer))
        poll(
            lambda: scorer.status().queue[0] == 12 and len(read) >= 4,
            deadline_s=10,
            what="twelve units in the queue, four of them read",
        )
        assert not scorer.flush(0.2)
        early = len(read)
        go_on.set()
        assert scorer.flush(10)
        assert scorer.status().outcomes["held"] == {"scored": 12}

    assert early == 4  # two in work, two ahead
    assert len(read) == 12


def test_units_that_never_became_jobs_give_their_places_back_at_shutdown():
    with a_line(Held(threading.Event()), limits=Limits(workers=1)) as (scorer, _):
        rag().batch([QUESTION] * 5, config=config(scorer))
        queue = pipeline_of(scorer).queue
        poll(lambda: len(queue) == 5, deadline_s=10, what="five units in the queue")
        assert not scorer.flush(0.2)
        scorer.shutdown(0.3)
        assert scorer.status().outcomes["held"] == {"shutdown": 5}

    assert len(queue) == 0


def test_a_full_inbox_refuses_new_units_and_counts_them():
    with a_line(limits=Limits(event_queue_size=1)) as (scorer, _):
        pipeline_of(scorer).event_queue.put(None, None)  # the span thread does not run yet
        answer = rag().invoke(QUESTION, config=config(scorer))
        status = scorer.status()
        pipeline_of(scorer).event_queue.take()

    assert answer == ANSWER
    assert (status.refused, status.outcomes["grounded"]) == (1, {"event_queue_full": 1})


def test_an_inbox_full_of_bytes_refuses_new_units_too(monkeypatch):
    monkeypatch.setattr(build, "EVENT_QUEUE_BYTES", 1_000)
    with a_line() as (scorer, _):
        pipeline_of(scorer).event_queue.put(None, None, 1_000)  # the span thread does not run yet
        answer = rag().invoke(QUESTION, config=config(scorer))
        not_attempted = scorer.submit(spanscore.SingleTurnSample(user_input="?"))
        status = scorer.status()
        pipeline_of(scorer).event_queue.take()

    assert (answer, not_attempted) == (ANSWER, None)
    assert (status.refused, status.outcomes["grounded"]) == (2, {"event_queue_full": 2})


@pytest.mark.parametrize("content", [False, True])
def test_a_unit_that_the_inbox_has_no_bytes_for_is_incomplete_and_its_content_let_go(content, monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(build, "EVENT_QUEUE_BYTES", 1_000)

    with a_line(capture=Capture(content=content)) as (scorer, trace):
        run_rag(scorer)
        pipeline_of(scorer).event_queue.post(lambda: go_on.wait(20))  # the span thread is held up
        scorer.handler.on_chain_start(None, QUESTION, run_id=(other := uuid4()), name="other", metadata={})
        rag().invoke("x" * 5_000, config=config(scorer))  # fills the event queue
        scorer.handler.on_chain_end("y" * 5_000, run_id=other)
        held = pipeline_of(scorer).event_queue.size_bytes
        go_on.set()
        assert scorer.flush(5)

    assert scorer.status().outcomes["grounded"] == {"scored": 2, "incomplete": 1}
    assert held < 11_000
    assert len(trace.roots) == 3


def test_a_submitted_sample_is_taken_by_value():
    metric = Grounded()
    sample = spanscore.SingleTurnSample(user_input=QUESTION, response=ANSWER, retrieved_contexts=[CONTEXT])

    with a_line(metric) as (scorer, _):
        scorer.submit(sample)
        sample.retrieved_contexts.append("edited")
        assert scorer.flush(5)

    assert metric.seen[0].retrieved_contexts == [CONTEXT]


def test_a_head_sampled_trace_is_not_scored_and_leaves_nothing_behind():
    trace = a_trace(sampler=ALWAYS_OFF)
    with a_line(trace=trace) as (scorer, _):
        rag().invoke(QUESTION, config=config(scorer))

        assert scorer.status().outcomes["grounded"] == {"trace_not_sampled": 1}
        assert scorer.handler.memory.remembered() == 0
    assert trace.spans == []


def test_an_unsampled_unit_says_so_and_keeps_its_spans():
    with a_line(sample_rate=0.0) as (scorer, trace):
        run_rag(scorer)
        assert scorer.status().outcomes["grounded"] == {"not_sampled": 1}

    assert trace.roots[0].attributes["spanscore.status"] == "not_sampled"
    assert len(trace.spans) == 3


def test_probability_and_threshold_stand_on_every_score():
    sink = MemorySink()
    with a_line(sample_rate=0.5, outputs=Outputs(sinks=[sink])) as (scorer, trace):
        run_rag(scorer, 40)
        taken = scorer.status().outcomes["grounded"]["scored"]

    assert 0 < taken < 40
    assert {(s.probability, s.threshold) for s in sink.scores} == {(0.5, 2**55)}
    scored = [r for r in trace.roots if "spanscore.score.grounded" in r.attributes]
    assert all(r.attributes["spanscore.probability.grounded"] == 0.5 for r in scored)
    assert len(scored) == taken


@pytest.mark.parametrize("place", ["span", "evaluation_span"])
def test_each_place_can_be_switched_off(place):
    with a_line(outputs=Outputs(**{place: False})) as (scorer, trace):
        run_rag(scorer)

    on_span = any("spanscore.score.grounded" in r.attributes for r in trace.roots)
    assert (on_span, bool(trace.evaluations)) == (place != "span", place != "evaluation_span")


def test_a_redactor_stands_before_the_metric_and_before_export():
    metric = Grounded()
    with a_line(metric, redactor=lambda text: text.replace("France", "[country]"), capture=Capture(content=True)) as (
        scorer,
        trace,
    ):
        run_rag(scorer)

    assert metric.seen[0].user_input == "What is the capital of [country]?"
    assert "France" not in trace.text()
    assert "[country]" in trace.text()


def test_a_redactor_that_raises_fails_closed():
    def broken(text):
        raise RuntimeError(text)

    metric = Grounded()
    with a_line(metric, redactor=broken, capture=Capture(content=True)) as (scorer, trace):
        run_rag(scorer)

    assert metric.seen == []
    assert trace.roots[0].attributes["spanscore.outcome.grounded"] == "redaction_error"
    assert "France" not in trace.text()


UNIT_HOOKS = {
    "redactor": (lambda hook: {"redactor": lambda text: hook(text) or text}, "redaction_error"),
    "filter": (lambda hook: {"sample_filter": lambda sample: hook(sample.user_input) or True}, "metric_error"),
    "extract": (
        lambda hook: {"extract": spanscore.Extract(user_input=lambda unit: hook(asked(unit)) or QUESTION)},
        "no_sample",
    ),
}


def asked(unit):
    return unit.root.attributes["input.value"]


@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize("name", UNIT_HOOKS)
def test_a_hook_that_hangs_holds_up_its_own_unit_only(name, content):
    options, outcome = UNIT_HOOKS[name]
    go_on = threading.Event()

    def hook(text):
        if text == "hang":
            go_on.wait(30)

    with a_line(**options(hook), capture=Capture(content=content), limits=Limits(hook_timeout=0.5)) as (scorer, trace):
        rag().batch(["hang", QUESTION, QUESTION], config=config(scorer))
        try:
            assert scorer.flush(10)
        finally:
            go_on.set()
        status = scorer.status()

    assert status.outcomes["grounded"] == {outcome: 1, "scored": 2}, status.reasons
    assert status.reasons[f"grounded {outcome}"].endswith("did not return within 0.5 s")
    assert len(trace.roots) == 3


def test_of_a_hook_that_always_hangs_a_few_threads_are_left_behind():
    calls, go_on = [], threading.Event()

    def redactor(text):
        calls.append(text)
        go_on.wait(30)
        return text

    with a_line(redactor=redactor, limits=Limits(hook_timeout=0.05)) as (scorer, _):
        rag().batch([QUESTION] * 30, config=config(scorer))
        try:
            assert scorer.flush(10)
        finally:
            go_on.set()
        status = scorer.status()

    assert status.outcomes["grounded"] == {"redaction_error": 30}
    assert len(calls) <= 8  # four that hang, four that were begun before that was known


def test_the_trace_of_a_run_can_be_found():
    runs = []
    with a_line() as (scorer, trace):
        chain = rag().with_listeners(on_end=lambda run: runs.append(run.id))
        chain.invoke(QUESTION, config=config(scorer))
        scorer.flush(5)

        assert scorer.trace_id(runs[0]) == f"{trace.roots[0].context.trace_id:032x}"


def test_a_submitted_sample_is_scored_on_the_current_span():
    trace = a_trace()
    sample = spanscore.SingleTurnSample(user_input=QUESTION, response=ANSWER, retrieved_contexts=[CONTEXT])
    with a_line(trace=trace) as (scorer, _):
        with trace.provider.get_tracer("app").start_as_current_span("answer") as current:
            first, second = scorer.submit(sample), scorer.submit(sample)
        alone = scorer.submit(sample)
        assert scorer.flush(5)

    assert first == second == f"{current.get_span_context().trace_id:032x}" != alone
    parents = [s.parent.span_id for s in trace.evaluations]
    assert parents[0] == current.get_span_context().span_id
    assert len(set(parents)) == 3
    assert [s.attributes["spanscore.status"] for s in trace.named("sample")] == ["scored", "scored"]


def test_a_judges_own_runs_are_never_captured():
    judge_model = model('{"reason": "fine", "verdict": 1}')
    metric = spanscore.metrics.AspectCritic(judge_model, name="harmless", definition="Is the response harmless?")
    with a_line(metric) as (scorer, trace):
        scorer.install()
        rag().invoke(QUESTION)
        assert scorer.flush(5)
        scorer.uninstall()

        assert scorer.status().outcomes["harmless"] == {"scored": 1}
    assert len(trace.named("chat")) == 1


def test_a_chains_model_is_shown_beside_its_scores():
    reader = InMemoryMetricReader()
    chain = ChatPromptTemplate.from_template("{question}") | PlainModel(text=ANSWER)
    metric = spanscore.metrics.AspectCritic(model('{"verdict": 1}'), name="harmless", definition="Is it harmless?")
    with a_line(metric, meter_provider=MeterProvider([reader])) as (scorer, trace):
        chain.invoke({"question": QUESTION}, config=config(scorer))
        assert scorer.flush(5)

        models = [labels["gen_ai.request.model"] for labels in labels_of(reader, "spanscore.quality")]
    assert models == [trace.evaluations[0].attributes["spanscore.request.model"]] == ["plain-1"]
    assert "gen_ai.request.model" not in trace.roots[0].attributes


def labels_of(reader, name):
    return [
        point.attributes
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    ]


def test_flush_does_not_wait_for_new_traffic():
    stop = threading.Event()
    with a_line() as (scorer, _):

        def traffic():
            while not stop.is_set():
                rag().invoke(QUESTION, config=config(scorer))

        threads = [threading.Thread(target=traffic) for _ in range(3)]
        for thread in threads:
            thread.start()
        flushed = scorer.flush(10)
        stop.set()
        for thread in threads:
            thread.join()

    assert flushed


def test_flush_says_when_it_could_not():
    go_on = threading.Event()
    with a_line(Held(go_on)) as (scorer, _):
        rag().invoke(QUESTION, config=config(scorer))

        assert not scorer.flush(0.2)
        go_on.set()


def test_shutdown_releases_what_is_held_and_settles_the_rest():
    with a_line(Slow(30)) as (scorer, trace):
        rag().invoke(QUESTION, config=config(scorer))
        scorer.shutdown(timeout=3)

        assert scorer.status().outcomes["slow"] == {"shutdown": 1}
        assert identity_holds(scorer)
    root = trace.roots[0].attributes
    assert (root["spanscore.status"], root["spanscore.pending.reason"]) == ("pending", "shutdown")


def test_a_run_that_outlives_the_scorer_is_ended_at_its_shutdown():
    with a_line() as (scorer, trace):

        def outlive(question):
            scorer.flush(1)
            scorer.shutdown(timeout=1)
            return question

        RunnableLambda(outlive).invoke(QUESTION, config=config(scorer))
        rag().invoke(QUESTION, config=config(scorer))

        assert scorer.status().outcomes["grounded"] == {"shutdown": 1}
    (root,) = trace.roots
    assert root.attributes["spanscore.outcome.grounded"] == "shutdown"


async def test_four_hundred_concurrent_runs_lose_nothing_in_silence():
    chain = rag()
    with a_line(Slow(0.2), Grounded(), limits=Limits(queue_size=50, event_queue_size=200)) as (scorer, _):
        answers = await asyncio.gather(*(chain.ainvoke(QUESTION, config=config(scorer)) for _ in range(400)))
        assert await asyncio.to_thread(scorer.flush, 30)
        status = scorer.status()

    assert answers == [ANSWER] * 400
    assert status.eligible == {"slow": 400, "grounded": 400}
    assert status.pending == {"slow": 0, "grounded": 0}
    assert sum(status.outcomes["slow"].values()) == 400
    assert status.outcomes["slow"].keys() & {"event_queue_full", "queue_full"}
