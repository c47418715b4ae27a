"""Evaluation spans: their ids, attributes and resource."""

from __future__ import annotations

import os
import random
import threading
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, TraceFlags
from tests.live import a_line, a_trace, run_rag
from tests.outputs.builders import END_NS, SPAN_ID, TRACE_ID, failed, score, undefined, unit
from tests.outputs.memory import Memory

from spanscore import semconv
from spanscore.core.score import JudgeCall, Outcome, Scale, Usage
from spanscore.outputs.providers import Providers
from spanscore.outputs.score_spans import EvaluationSpans
from spanscore.outputs.spans import OwnIdGenerator, id_generator_of


@pytest.fixture
def memory() -> Memory:
    return Memory()


def only(memory: Memory) -> ReadableSpan:
    (span,) = memory.spans
    return span


def attributes(memory: Memory) -> dict[str, Any]:
    return dict(only(memory).attributes or {})


EXTERNAL = {"service.name": "shop", "telemetry.sdk.language": "java"}


@pytest.mark.parametrize("resource", [None, EXTERNAL], ids=["own", "external"])
def test_it_is_a_child_of_the_units_span_and_linked_to_it_once(memory: Memory, resource: dict[str, str] | None) -> None:
    EvaluationSpans(memory.providers).emit(unit(resource=resource), [score()])

    span = only(memory)
    target = SpanContext(TRACE_ID, SPAN_ID, False, TraceFlags(1))
    assert (span.name, span.kind) == ("evaluation faithfulness", SpanKind.INTERNAL)
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "spanscore"
    assert (span.parent, [link.context for link in span.links]) == (target, [target])
    assert span.context is not None
    assert (span.context.trace_id, span.context.trace_flags & 1) == (TRACE_ID, 1)


@pytest.mark.parametrize(("lasts_ns", "begins_ns"), [(2_000_000_000, 1_000), (1_000, 1_000), (300, 300), (0, 0)])
@pytest.mark.parametrize("resource", [None, EXTERNAL], ids=["own", "external"])
def test_it_is_the_last_microsecond_of_its_unit(
    memory: Memory, resource: dict[str, str] | None, lasts_ns: int, begins_ns: int
) -> None:
    EvaluationSpans(memory.providers).emit(unit(resource=resource, lasts_ns=lasts_ns), [score()])

    assert (only(memory).start_time, only(memory).end_time) == (END_NS - begins_ns, END_NS)


@pytest.mark.parametrize("resource", [None, EXTERNAL], ids=["own", "external"])
def test_its_id_is_the_first_half_of_the_score_id(memory: Memory, resource: dict[str, str] | None) -> None:
    scored = score()

    EvaluationSpans(memory.providers).emit(unit(resource=resource), [scored])

    assert scored.id is not None
    context = only(memory).context
    assert context is not None
    assert f"{context.span_id:016x}" == scored.id[:16]
    assert attributes(memory)[semconv.SCORE_ID] == scored.id


def test_a_external_unit_keeps_its_resource(memory: Memory) -> None:
    EvaluationSpans(memory.providers).emit(unit(resource=EXTERNAL), [score()])

    assert dict(only(memory).resource.attributes) == EXTERNAL


def test_a_unit_of_ours_has_the_providers_resource(memory: Memory) -> None:
    EvaluationSpans(memory.providers).emit(unit(), [score()])

    assert only(memory).resource == memory.tracer_provider.resource


def test_no_span_where_the_trace_is_not_sampled(memory: Memory) -> None:
    EvaluationSpans(memory.providers).emit(unit(flags=0), [score()])

    assert memory.spans == ()


def test_it_carries_all_that_the_conventions_and_we_have_for_a_score(memory: Memory) -> None:
    calls = (
        JudgeCall(step="verify", model="judge-1", input_tokens=100, output_tokens=7, cost_usd=0.002, duration_s=0.5),
        JudgeCall(
            step="verify",
            model="judge-1",
            input_tokens=50,
            output_tokens=3,
            duration_s=0.25,
            input_truncated_ratio=0.25,
        ),
        JudgeCall(step="verify", model="judge-1", cached=True),
    )
    of = unit(**{semconv.CONVERSATION_ID: "c1", semconv.REQUEST_MODEL: "app-model", semconv.PROMPT_VERSION: "7"})

    EvaluationSpans(memory.providers).emit(of, [score(usage=Usage(calls), explanation="the secret answer")])

    assert attributes(memory) == {
        "gen_ai.conversation.id": "c1",
        "gen_ai.workflow.name": "support",
        "gen_ai.request.model": "judge-1",
        "spanscore.request.model": "app-model",
        "gen_ai.prompt.version": "7",
        "gen_ai.operation.name": "evaluation",
        "gen_ai.evaluation.name": "faithfulness",
        "gen_ai.evaluation.score.value": 0.75,
        "gen_ai.evaluation.score.label": "pass",
        "openinference.span.kind": "EVALUATOR",
        "evaluations.0.evaluation.name": "faithfulness",
        "evaluations.0.evaluation.score": 0.75,
        "evaluations.0.evaluation.label": "pass",
        "evaluations.0.evaluation.annotator_kind": "LLM",
        "evaluations.0.evaluation.identifier": "1+judge",
        "spanscore.score.faithfulness": 0.75,
        "spanscore.label.faithfulness": "pass",
        "spanscore.probability.faithfulness": 0.5,
        "spanscore.verdict": "pass",
        "spanscore.quality": 0.75,
        "spanscore.metric.version": "1",
        "spanscore.metric.kind": "continuous",
        "spanscore.metric.direction": "higher",
        "spanscore.metric.range": (0.0, 1.0),
        "spanscore.metric.pass_at": 0.5,
        "spanscore.sampling.rule": "base",
        "spanscore.sampling.threshold": "80000000000000",
        "spanscore.evaluator.id": "faithfulness",
        "spanscore.evaluator.type": "llm_judge",
        "gen_ai.evaluation.target": "support",
        "spanscore.evaluator.version": "1+judge",
        "spanscore.score.id": score().id,
        "spanscore.score.revision": 0,
        "spanscore.judge.model": "judge-1",
        "spanscore.judge.input_tokens": 150,
        "spanscore.judge.output_tokens": 10,
        "spanscore.judge.cost_usd": 0.002,
        "spanscore.judge.calls": 3,
        "spanscore.judge.cached_calls": 1,
        "spanscore.judge.input.truncated_ratio": 0.25,
        "spanscore.judge.duration": 0.75,
    }


def test_whole_numbers_leave_as_doubles(memory: Memory) -> None:
    rubric = Scale(kind="ordinal", range=(1, 5))

    EvaluationSpans(memory.providers).emit(unit(), [score(value=4, scale=rubric)])

    values = attributes(memory)
    doubles = ["spanscore.score.faithfulness", "gen_ai.evaluation.score.value", "evaluations.0.evaluation.score"]
    assert [type(values[key]) for key in doubles] == [float] * 3


def test_a_failed_evaluation_is_an_error_and_has_no_value(memory: Memory) -> None:
    EvaluationSpans(memory.providers).emit(unit(), [failed()])

    values = attributes(memory)
    assert only(memory).status.status_code is StatusCode.ERROR
    assert only(memory).status.description == "the judge did not answer"
    assert (values["error.type"], values["spanscore.evaluation.outcome"]) == ("timeout", "judge_error")
    assert not [key for key in values if "score.value" in key or key.startswith("spanscore.score.f")]


@pytest.mark.parametrize("of", [score(value=0.0), undefined()], ids=["low", "undefined"])
def test_neither_a_low_nor_an_undefined_score_is_an_error(memory: Memory, of: Any) -> None:
    EvaluationSpans(memory.providers).emit(unit(), [of])

    assert only(memory).status.status_code is StatusCode.UNSET
    assert "error.type" not in attributes(memory)


def test_an_undefined_score_says_so(memory: Memory) -> None:
    EvaluationSpans(memory.providers).emit(unit(), [undefined()])

    assert attributes(memory)["spanscore.evaluation.outcome"] == "no_value"


@pytest.mark.parametrize("of", [score(explanation="quote"), failed(explanation="quote")], ids=["scored", "failed"])
def test_explanations_stay_home_unless_asked(memory: Memory, of: Any) -> None:
    EvaluationSpans(memory.providers, content=False).emit(unit(), [of])

    assert not [key for key in attributes(memory) if key.endswith("explanation")]


def test_explanations_leave_cut_where_content_is_on(memory: Memory) -> None:
    EvaluationSpans(memory.providers, content=True).emit(unit(), [score(explanation="x" * 3000)])

    values = attributes(memory)
    assert values["gen_ai.evaluation.explanation"] == "x" * 1999 + "…"
    assert values["evaluations.0.evaluation.explanation"] == values["gen_ai.evaluation.explanation"]


def test_a_rule_based_metric_is_code(memory: Memory) -> None:
    EvaluationSpans(memory.providers).emit(unit(), [score()])

    assert attributes(memory)["evaluations.0.evaluation.annotator_kind"] == "CODE"


def test_the_model_of_an_evaluation_without_a_judge_is_nobodys(memory: Memory) -> None:
    EvaluationSpans(memory.providers).emit(unit(**{semconv.REQUEST_MODEL: "app-model"}), [score()])

    assert "gen_ai.request.model" not in attributes(memory)
    assert attributes(memory)["spanscore.request.model"] == "app-model"


def test_other_spans_of_the_tracer_and_of_the_application_keep_their_own_ids(memory: Memory) -> None:
    EvaluationSpans(memory.providers).emit(unit(), [score()])
    random.seed(7)
    expected = [random.getrandbits(128), random.getrandbits(64)]

    random.seed(7)
    context = memory.tracer_provider.get_tracer("app").start_span("GET /").get_span_context()
    later = memory.providers.tracer("spanscore").start_span("another").get_span_context()

    assert [context.trace_id, context.span_id] == expected
    assert later.span_id != score_span_id()
    assert later.trace_flags == context.trace_flags


def score_span_id() -> int:
    identity = score().id
    assert identity is not None
    return int(identity[:16], 16)


def test_two_scorers_on_one_provider_give_each_span_its_own_id(memory: Memory) -> None:
    sinks = [EvaluationSpans(Providers(memory.tracer_provider)) for _ in range(2)]
    names = [[f"metric_{which}_{n}" for n in range(100)] for which in range(2)]
    start = threading.Barrier(2)

    def emit(which: int) -> None:
        start.wait()
        for name in names[which]:
            sinks[which].emit(unit(), [score(name)])

    threads = [threading.Thread(target=emit, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = {span.name: f"{span.context.span_id:016x}" for span in memory.spans if span.context}
    expected = {f"evaluation {name}": (score(name).id or "")[:16] for name in names[0] + names[1]}
    assert found == expected


def test_a_tracer_that_is_not_the_sdks_gets_spans_all_the_same() -> None:
    started: list[str] = []

    class Tracer:
        def start_span(self, name: str, **_: Any) -> trace.Span:
            started.append(name)
            return trace.INVALID_SPAN

    class Provider(trace.TracerProvider):
        def get_tracer(self, *_: Any, **__: Any) -> Any:
            return Tracer()

    EvaluationSpans(Providers(Provider())).emit(unit(resource=EXTERNAL), [score()])

    assert started == ["evaluation faithfulness"]


@pytest.mark.parametrize("resource", [None, EXTERNAL], ids=["own", "external"])
def test_the_providers_limits_hold_for_every_unit(resource: dict[str, str] | None) -> None:
    limits = SpanLimits(max_span_attribute_length=8)
    memory = Memory(TracerProvider(span_limits=limits, shutdown_on_exit=False))

    EvaluationSpans(memory.providers, content=True).emit(unit(resource=resource), [score(explanation="x" * 9)])

    assert attributes(memory)[semconv.EVALUATION_EXPLANATION] == "x" * 8


def test_a_superseding_score_is_another_span(memory: Memory) -> None:
    sink = EvaluationSpans(memory.providers)

    sink.emit(unit(), [score()])
    sink.emit(unit(), [score(revision=1)])

    assert len({span.context.span_id for span in memory.spans if span.context}) == 2


def test_outcomes_that_failed_without_an_error_type_name_the_outcome(memory: Memory) -> None:
    EvaluationSpans(memory.providers).emit(unit(), [failed(outcome=Outcome.BUDGET_EXHAUSTED, error_type=None)])

    assert attributes(memory)["error.type"] == "budget_exhausted"


def test_the_applications_random_numbers_stay_what_they_are():
    with a_line() as (scorer, _):
        random.seed(7)
        before = [random.random() for _ in range(3)]
        random.seed(7)
        after = []
        for _ in range(3):
            run_rag(scorer)
            after.append(random.random())

    assert after == before


def test_ids_fill_their_bits_and_differ():
    ids = OwnIdGenerator()
    spans, traces = [ids.generate_span_id() for _ in range(500)], [ids.generate_trace_id() for _ in range(500)]

    assert len({*spans}) == len({*traces}) == 500
    assert max(spans).bit_length() == 64
    assert max(traces).bit_length() == 128
    assert ids.is_trace_id_random()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_draws_other_ids():
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.write(write, str(OwnIdGenerator().generate_trace_id()).encode())
        os._exit(0)
    os.waitpid(child, 0)

    assert int(os.read(read, 64)) != OwnIdGenerator().generate_trace_id()


def test_a_generator_that_somebody_chose_is_asked():
    class Numbered(RandomIdGenerator):
        def generate_trace_id(self):
            return 0xA1

    assert isinstance(id_generator_of(TracerProvider().get_tracer("any")), OwnIdGenerator)
    chosen: IdGenerator = Numbered()
    assert id_generator_of(TracerProvider(id_generator=chosen).get_tracer("any")) is chosen
    with a_line(trace=a_trace(id_generator=chosen)) as (scorer, trace):
        run_rag(scorer)
    assert {span.context.trace_id for span in trace.spans} == {0xA1}
