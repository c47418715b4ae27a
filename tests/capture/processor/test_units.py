"""Spans of any instrumentation become units. Each is exported once; the root has the scores of its unit."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from tests.capture.processor.traced import SCOPE, Answered, ask, running, scoring, started
from tests.live import Held, identity_holds
from tests.servers.server import poll

from spanscore import Rule, ScoringSpanProcessor, semconv
from spanscore.capture.processor.external_unit import FollowedUnit, OpenUnits
from spanscore.config import Limits, Outputs, RuleCondition, Sampling, Units
from spanscore.core.context import judging
from spanscore.core.span import UnitKey
from spanscore.scorer import pipeline_of, receivers_of
from spanscore.testing import make_span


def test_the_spans_of_a_unit_leave_with_its_scores_each_once() -> None:
    with scoring() as (scorer, exported, provider):
        ask(provider.get_tracer(SCOPE), chats=3)
        assert scorer.flush(5)

    assert sorted(exported.names) == ["agent", "agent chat 0", "agent chat 1", "agent chat 2"]
    assert exported.of("agent").attributes["spanscore.score.answered"] == 1.0
    assert [span.parent.span_id for span in exported.evaluations] == [exported.of("agent").context.span_id]
    assert scorer.status().outcomes == {"answered": {"scored": 1}}


def test_two_runs_under_one_request_are_two_units() -> None:
    with scoring() as (scorer, exported, provider):
        with provider.get_tracer("web").start_as_current_span("POST /chat"):
            ask(provider.get_tracer(SCOPE), "first")
            ask(provider.get_tracer(SCOPE), "second")
        assert scorer.flush(5)

    assert scorer.status().eligible == {"answered": 2}
    assert semconv.STATUS not in exported.of("POST /chat").attributes
    assert {exported.of(name).attributes[semconv.STATUS] for name in ("first", "second")} == {"scored"}


def test_a_span_of_no_unit_goes_on_at_once_and_untouched() -> None:
    seen = []
    with scoring(passed=lambda span: seen.append((threading.current_thread(), span))) as (_, _, provider):
        span = provider.get_tracer("web").start_span("GET /")
        span.end()

    ((thread, left),) = seen
    assert (thread, left.context.span_id) == (threading.current_thread(), span.context.span_id)


def test_a_step_that_is_nobodys_goes_on_at_once_and_its_children_belong_to_the_unit() -> None:
    with scoring() as (scorer, exported, provider):
        tracer = provider.get_tracer(SCOPE)
        with running(tracer):
            with provider.get_tracer("app").start_as_current_span("own step"), running(tracer, semconv.CHAT, "chat"):
                pass
            assert exported.names == ["own step"]
        assert scorer.flush(5)

    assert scorer.status().eligible == {"answered": 1}
    assert sorted(exported.names) == ["agent", "chat", "own step"]


def test_a_unit_that_sampling_excludes_never_waits_and_is_never_read() -> None:
    with scoring(sample_rate=0.0) as (scorer, exported, provider):
        ask(provider.get_tracer(SCOPE))
        assert exported.names == ["agent chat 0", "agent"]

    assert scorer.status().outcomes == {"answered": {"not_sampled": 1}}
    assert not receivers_of(scorer).spans().translator.counted()


def test_a_unit_that_sampling_excludes_is_explained() -> None:
    with scoring(sample_rate=1e-9) as (scorer, exported, provider):
        ask(provider.get_tracer(SCOPE))
        root = exported.of("agent").context
        (unit,) = scorer.explain(root.trace_id)

    explained = unit["metrics"]["answered"]
    assert unit["span_id"] == f"{root.span_id:016x}"
    assert (explained["rates"], explained["outcome"]) == ({"base": 1e-9}, "not_sampled")
    assert explained["randomness"] < explained["threshold_met"]


def test_what_runs_inside_of_a_run_that_began_before_the_processor_was_added_is_no_unit() -> None:
    with scoring() as (scorer, _, _):
        later = TracerProvider()
        with running(later.get_tracer(SCOPE)):
            later.add_span_processor(ScoringSpanProcessor(scorer))
            ask(later.get_tracer(SCOPE), chats=2)
        assert scorer.flush(5)

    assert scorer.status().eligible == {"answered": 0}


def test_what_runs_inside_of_a_span_that_says_later_what_it_is_is_a_unit() -> None:
    with scoring() as (scorer, _, provider):
        with provider.get_tracer("app").start_as_current_span("turn") as turn:
            turn.set_attribute(semconv.OPERATION_NAME, semconv.INVOKE_AGENT)
            ask(provider.get_tracer(SCOPE))
        assert scorer.flush(5)

    assert scorer.status().outcomes == {"answered": {"scored": 1}}


def test_what_runs_inside_of_a_request_that_began_before_the_processor_was_added_is_a_unit() -> None:
    with scoring() as (scorer, _, _):
        later = TracerProvider()
        with later.get_tracer("web").start_as_current_span("POST /chat"):
            later.add_span_processor(ScoringSpanProcessor(scorer))
            ask(later.get_tracer(SCOPE), chats=2)
        assert scorer.flush(5)

    assert scorer.status().outcomes == {"answered": {"scored": 1}}


def test_what_asks_nothing_is_no_unit_at_any_rate() -> None:
    for rate in (0.0, 1.0):
        with scoring(sample_rate=rate) as (scorer, exported, provider):
            for operation in (semconv.CREATE_AGENT, semconv.EMBEDDINGS):
                started(provider.get_tracer(SCOPE), operation, operation).end()
            assert scorer.flush(5)

        assert (scorer.status().eligible, sorted(exported.names)) == ({"answered": 0}, ["create_agent", "embeddings"])


def test_a_unit_waits_for_its_open_spans_and_for_nothing_else() -> None:
    with scoring() as (scorer, exported, provider):
        tracer = provider.get_tracer(SCOPE)
        root = started(tracer)
        child = started(tracer, semconv.CHAT, "chat", context=trace.set_span_in_context(root))
        root.end()
        assert not scorer.flush(0.3)
        assert exported.names == []

        child.end()
        assert scorer.flush(5)

    assert sorted(exported.names) == ["agent", "chat"]


def test_a_span_that_never_ends_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanscore.capture.processor.external_spans.GRACE_NS", 1_000_000)
    with scoring() as (scorer, exported, provider):
        tracer = provider.get_tracer(SCOPE)
        with running(tracer) as root:
            child = started(tracer, semconv.CHAT, "chat")
        assert scorer.flush(5)
        child.end()
        poll(lambda: "chat" in exported.names, deadline_s=5, what="the late span")

    assert exported.of("agent").attributes[semconv.STATUS] == "scored"
    assert receivers_of(scorer).spans().late == 1
    assert root.context.span_id == exported.of("chat").parent.span_id


@pytest.mark.parametrize("others", [0, 300])
def test_work_that_begins_when_its_parent_has_ended_is_a_unit_of_its_own(others: int) -> None:
    with scoring() as (scorer, exported, provider):
        tracer = provider.get_tracer(SCOPE)
        with running(tracer, name="first") as first:
            pass
        for _ in range(others):
            ask(tracer, chats=0)
        left_over = trace.set_span_in_context(first)
        with running(tracer, semconv.CHAT, "next", context=left_over):
            pass
        assert scorer.flush(20)

    assert scorer.status().outcomes == {"answered": {"scored": others + 2}}
    assert exported.of("next").attributes[semconv.STATUS] == "scored"


def test_a_step_that_is_written_after_its_run_is_no_unit_of_its_own() -> None:
    with scoring() as (scorer, exported, provider):
        tracer = provider.get_tracer(SCOPE)
        with running(tracer, name="run") as run:
            pass
        with running(tracer, semconv.CHAT, "step", context=trace.set_span_in_context(run), start_time=run.start_time):
            pass
        assert scorer.flush(20)

    assert scorer.status().outcomes == {"answered": {"scored": 1}}
    assert semconv.STATUS not in exported.of("step").attributes


def test_a_llama_index_agent_that_ends_with_its_first_step_waits_for_the_next() -> None:
    with scoring() as (scorer, exported, provider):
        tracer = provider.get_tracer("opentelemetry.instrumentation.llamaindex")
        run = tracer.start_span("FunctionAgent.workflow", attributes={"traceloop.span.kind": "workflow"})
        run.end()
        poll(lambda: receivers_of(scorer).spans().in_flight(), deadline_s=5, what="the ended run")
        in_run = trace.set_span_in_context(run)
        with tracer.start_as_current_span("BaseWorkflowAgent.task", in_run, attributes={"traceloop.span.kind": "task"}):
            ask(provider.get_tracer(SCOPE))
        assert scorer.flush(20)

    assert scorer.status().outcomes == {"answered": {"scored": 1}}
    assert exported.of("FunctionAgent.workflow").attributes[semconv.STATUS] == "scored"


def test_each_step_of_a_llama_index_agent_puts_off_the_end_of_its_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanscore.capture.processor.external_spans.GRACE_NS", 0)
    with scoring() as (scorer, _, provider):
        receiver, tracer = receivers_of(scorer).spans(), provider.get_tracer("opentelemetry.instrumentation.llamaindex")
        run = tracer.start_span("FunctionAgent.workflow", attributes={"traceloop.span.kind": "workflow"})
        in_run = trace.set_span_in_context(run)
        step = tracer.start_span("BaseWorkflowAgent.task", in_run, attributes={"traceloop.span.kind": "task"})
        run.end()
        poll(receiver.in_flight, deadline_s=5, what="the ended run")
        next_step = tracer.start_span("BaseWorkflowAgent.task", in_run, attributes={"traceloop.span.kind": "task"})
        step.end()
        with trace.use_span(next_step, end_on_exit=True):
            ask(provider.get_tracer(SCOPE))
        assert scorer.flush(20)

    assert scorer.status().outcomes == {"answered": {"scored": 1}}


def test_a_run_below_a_step_that_a_streamed_query_of_llama_index_left_current_is_a_unit() -> None:
    with scoring() as (scorer, _, provider):
        tracer = provider.get_tracer("opentelemetry.instrumentation.llamaindex")
        query = tracer.start_span("RetrieverQueryEngine.workflow", attributes={"traceloop.span.kind": "workflow"})
        step = tracer.start_span("CompactAndRefine.task", trace.set_span_in_context(query))
        run = tracer.start_span("ContextChatEngine.workflow", trace.set_span_in_context(step))
        with trace.use_span(run, end_on_exit=True):
            ask(provider.get_tracer(SCOPE))

    assert scorer.status().outcomes == {"answered": {"shutdown": 1, "scored": 1}}


def test_the_spans_of_a_unit_that_waits_are_remembered() -> None:
    units = OpenUnits()
    waiting, past, last = [FollowedUnit(key=UnitKey(1, number), root=None, processor=None) for number in (1, 2, 3)]
    waiting.root_ended = (make_span(), None, 0)
    for unit, ended_ns in ((waiting, 0), (past, 0), (last, 60_000_000_000)):
        units.begin(unit)
        units.end(unit, ended_ns)

    assert [*units.by_span] == [waiting.key, last.key]


def test_a_rule_on_the_workflow_is_for_what_ran_and_a_root_is_not_ruled_out_before_it_is_known() -> None:
    with scoring(
        sampling=Sampling(rate=0.0, rules=[Rule(rate=1.0, name="vip", when=RuleCondition(workflow="math_agent"))])
    ) as (scorer, exported, provider):
        tracer = provider.get_tracer(SCOPE)
        with running(tracer, name="math_agent.workflow") as span:
            span.set_attribute(semconv.WORKFLOW_NAME, "math_agent")
        ask(tracer, "another")
        assert scorer.flush(5)

    assert scorer.status().outcomes == {"answered": {"scored": 1, "not_sampled": 1}}
    assert semconv.STATUS in exported.of("math_agent.workflow").attributes


def test_a_judges_call_is_no_unit() -> None:
    with scoring() as (scorer, exported, provider), judging():
        ask(provider.get_tracer(SCOPE))

    assert (scorer.status().eligible, len(exported.names)) == ({"answered": 0}, 2)


class RecordOnly(Sampler):
    """Records every span and samples none."""

    def should_sample(
        self,
        parent_context: Any,
        trace_id: int,
        name: str,
        kind: Any = None,
        attributes: Any = None,
        *_: Any,
        **__: Any,
    ) -> SamplingResult:
        return SamplingResult(Decision.RECORD_ONLY, attributes)

    def get_description(self) -> str:
        return "RecordOnly"


def test_spans_that_are_recorded_only_are_passed_on_and_scored_for_the_instruments_alone() -> None:
    passed = []
    with scoring(sampler=RecordOnly(), passed=lambda span: passed.append(span.name)) as (scorer, exported, provider):
        ask(provider.get_tracer(SCOPE))
        assert passed == ["agent chat 0", "agent"]
        assert scorer.flush(5)

    assert scorer.status().outcomes == {"answered": {"scored": 1}}
    assert exported.evaluations == []


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_a_full_inbox_refuses_units_and_their_spans_go_on_at_once() -> None:
    with scoring(limits=Limits(event_queue_size=1)) as (scorer, exported, provider):
        pipeline_of(scorer).event_queue.admits = lambda: False  # type: ignore[method-assign]
        ask(provider.get_tracer(SCOPE))
        assert len(exported.names) == 2
        assert scorer.flush(5)

    assert scorer.status().outcomes == {"answered": {"event_queue_full": 1}}


def test_spans_past_the_hard_bound_go_on_at_once_and_their_unit_is_incomplete() -> None:
    with scoring() as (scorer, exported, provider):
        event_queue = pipeline_of(scorer).event_queue
        with running(provider.get_tracer(SCOPE)):
            event_queue.is_full = lambda: True
            with running(provider.get_tracer(SCOPE), semconv.CHAT, "chat"):
                pass
            assert exported.names == ["chat"]
        assert exported.names == ["chat", "agent"]
        del event_queue.is_full
        assert scorer.flush(5)

    assert scorer.status().outcomes == {"answered": {"incomplete": 1}}


def test_under_a_burst_that_nobody_reads_no_span_is_lost_and_every_unit_is_counted() -> None:
    with scoring(limits=Limits(event_queue_size=5)) as (scorer, exported, provider):
        pipeline_of(scorer).span_thread.ensure = lambda: None  # type: ignore[method-assign]
        for number in range(40):
            ask(provider.get_tracer(SCOPE), f"run {number}")
        pipeline_of(scorer).event_queue.nudge()
        del pipeline_of(scorer).span_thread.ensure
        pipeline_of(scorer).span_thread.ensure()
        assert scorer.flush(10)

    assert len(exported.names) == len(set(exported.names)) == 80
    assert scorer.status().eligible == {"answered": 40}
    assert identity_holds(scorer)


def test_the_spans_of_a_unit_past_its_bound_leave_and_no_flush_waits_for_its_root() -> None:
    with scoring() as (scorer, exported, provider):
        pipeline_of(scorer).assembler.max_spans = 2
        tracer = provider.get_tracer(SCOPE)
        with running(tracer):
            for number in range(2):
                with running(tracer, semconv.CHAT, f"chat {number}"):
                    pass
            poll(lambda: scorer.status().outcomes["answered"], deadline_s=5, what="the unit to be closed")
        assert scorer.flush(5)
        assert sorted(exported.names) == ["agent", "chat 0", "chat 1"]

    assert scorer.status().outcomes == {"answered": {"incomplete": 1}}


def test_roots_that_never_end_are_forgotten_past_a_bound_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanscore.capture.processor.external_unit.MOST_UNITS", 5)
    monkeypatch.setattr("spanscore.capture.processor.external_unit.MOST_SPANS", 8)
    for rate, outcomes in (0.0, {"not_sampled": 15}), (1.0, {"incomplete": 15}):
        with scoring(sample_rate=rate) as (scorer, _, provider):
            begun = [started(provider.get_tracer(SCOPE)).get_span_context()[:2] for _ in range(20)]
            assert scorer.flush(5)

            assert sum(receivers_of(scorer).spans().unit_at(ids) is not None for ids in begun) <= 8
            assert scorer.status().outcomes == {"answered": outcomes}


def test_a_unit_that_runs_at_a_shutdown_is_counted_and_its_spans_go_on_when_they_end() -> None:
    with scoring() as (scorer, exported, provider):
        with running(provider.get_tracer(SCOPE)):
            with running(provider.get_tracer(SCOPE), semconv.CHAT, "chat"):
                pass
            scorer.shutdown(timeout=2)
            assert exported.names == ["chat"]

        assert exported.names == ["chat", "agent"]

    assert scorer.status().outcomes == {"answered": {"shutdown": 1}}


class Waits(Held):
    """Waits until it may go on, and asks for no contexts."""

    requires = Answered.requires

    async def measure(self, sample: Any) -> Any:
        while not self._go_on.is_set():  # noqa: ASYNC110  (another thread sets it)
            await asyncio.sleep(0.01)
        return await Answered().measure(sample)


def test_a_unit_whose_judge_is_slow_leaves_at_its_deadline_as_pending() -> None:
    go_on = threading.Event()
    with scoring(Waits(go_on), outputs=Outputs(hold=0.05)) as (_, exported, provider):
        ask(provider.get_tracer(SCOPE))
        poll(lambda: len(exported.names) == 2, deadline_s=5, what="the spans")
        go_on.set()

    assert exported.of("agent").attributes[semconv.STATUS] == "pending"


def test_spans_of_a_scope_that_is_listed_are_read_and_of_one_that_is_ignored_are_not() -> None:
    listed, ignored = Units(scopes=["mine"]), Units(scopes=["mine"], ignore_scopes=["mine."])
    for units, eligible in (listed, 1), (Units(), 1), (ignored, 0):
        with scoring(Answered(), units=units) as (scorer, _, provider):
            with provider.get_tracer("mine.tracer").start_as_current_span("run") as span:
                span.set_attribute(semconv.OPERATION_NAME, semconv.INVOKE_AGENT)
            assert scorer.flush(5)

            assert scorer.status().eligible == {"answered": eligible}


def test_a_unit_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanscore.capture.processor.external_spans.MAX_AGE_NS", 0)
    with scoring() as (scorer, exported, provider):
        root = started(provider.get_tracer(SCOPE))
        assert scorer.flush(5)
        assert scorer.flush(5)
        assert scorer.status().outcomes == {"answered": {"incomplete": 1}}
        root.end()

    assert exported.names == ["agent"]
    assert scorer.status().eligible == {"answered": 1}


def test_a_unit_that_was_not_chosen_and_never_ends_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanscore.capture.processor.external_spans.MAX_AGE_NS", 0)
    with scoring(sample_rate=0.0) as (scorer, _, provider):
        root = started(provider.get_tracer(SCOPE))
        pipeline_of(scorer).span_thread.ensure()
        poll(
            lambda: scorer.flush(5) and scorer.status().eligible["answered"],
            deadline_s=5,
            what="the unit to be given up",
        )
        root.end()

    assert scorer.status().outcomes == {"answered": {"not_sampled": 1}}
