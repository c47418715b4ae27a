"""People's labels of a unit: below it by its ids alone, once, and changed when they change their mind."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf, nan
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.tracers.context import collect_runs
from opentelemetry.trace import SpanContext, TraceFlags
from tests.live import EXTERNAL, QUESTION, a_line, rag
from tests.outputs.memory import Memory

from spanscore import ConfigurationError, OnlineScorer, ScoringSpanProcessor, semconv
from spanscore.config import Capture, Outputs
from spanscore.core.event_queue import steady_ns
from spanscore.core.sample import Annotation, UnitId
from spanscore.metrics import ExactMatch
from spanscore.scorer import pipeline_of
from spanscore.testing import ManualClock

SCALE = {"user_feedback": ["bad", "ok", "good"]}
IDS = UnitId("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
WHEN = datetime(2026, 3, 1, tzinfo=UTC)


def answered(scorer: Any, **metadata: Any) -> UnitId:
    with collect_runs() as runs:
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler], "metadata": metadata})
    ids = scorer.unit_id(runs.traced_runs[0].id)
    assert ids is not None
    return ids


def label_of(span: Any) -> tuple[Any, ...]:
    attributes = span.attributes
    return attributes[semconv.EVALUATION_SCORE_LABEL], attributes[semconv.SCORE_REVISION]


def under(span: Any) -> tuple[str, str]:
    return f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}"


def test_a_label_stands_under_a_unit_of_which_nothing_is_known_but_its_ids() -> None:
    with a_line(sample_rate=0.0) as (scorer, trace):
        assert scorer.feedback(IDS.trace_id, True, span_id=IDS.span_id, when=WHEN)
        assert scorer.flush(10)

        (span,) = trace.named("evaluation user_feedback")
        target = SpanContext(int(IDS.trace_id, 16), int(IDS.span_id, 16), True, TraceFlags(1))
        assert (span.parent, [link.context for link in span.links]) == (target, [target])
        assert span.attributes[semconv.OPENINFERENCE_EVALUATION + "annotator_kind"] == "HUMAN"
        assert span.attributes[semconv.EVALUATION_SCORE_LABEL] == "pass"
        assert span.start_time == WHEN.timestamp() * 1e9
        assert span.instrumentation_scope.name == semconv.SCOPE


def test_the_same_call_is_one_span_and_in_another_process_one_id() -> None:
    spans = []
    for _ in range(2):
        with a_line(feedback_scales=SCALE) as (scorer, trace):
            for _ in range(2):
                assert scorer.feedback(int(IDS.trace_id, 16), "bad", span_id=int(IDS.span_id, 16))
            assert scorer.flush(10)
            spans += trace.named("evaluation user_feedback")

    assert len(spans) == 2
    assert len({span.context.span_id for span in spans}) == 1


def test_a_changed_vote_is_the_next_revision_of_the_same_label() -> None:
    memory = Memory()
    providers = {"tracer_provider": memory.tracer_provider, "meter_provider": memory.meter_provider}
    with OnlineScorer([ExactMatch()], feedback_scales=SCALE, **providers) as scorer:
        for word in ("good", "bad", "good"):
            assert scorer.feedback(IDS.trace_id, word, span_id=IDS.span_id)
        assert scorer.flush(10)

        assert [label_of(span) for span in memory.spans] == [("good", 0), ("bad", 1), ("good", 2)]
        assert len({span.context.span_id for span in memory.spans if span.context}) == 3
        name = (semconv.EVALUATION_NAME, "user_feedback")
        good, bad = ((semconv.EVALUATION_SCORE_LABEL, word) for word in ("good", "bad"))
        assert memory.values(semconv.ANNOTATIONS) == {(name, good): 1}
        assert memory.values(semconv.ANNOTATION_CHANGES) == {(name, bad): 1, (name, good): 1}


def test_a_trace_is_enough_where_one_unit_of_it_is_known() -> None:
    with a_line(sample_rate=0.0) as (scorer, trace):
        ids = answered(scorer)
        assert scorer.feedback(ids.trace_id, 0.25)  # at once, and when the span thread has seen it
        assert scorer.flush(10)
        assert scorer.feedback(ids.trace_id, 1)
        assert scorer.flush(10)

        assert [under(span) for span in trace.named("evaluation user_feedback")] == [tuple(ids)] * 2


def test_of_several_units_of_a_trace_all_are_listed_and_of_none_the_span_is_asked_for() -> None:
    with a_line(sample_rate=0.0) as (scorer, trace):
        with trace.provider.get_tracer("app").start_as_current_span("POST /chat"):
            first, second = answered(scorer), answered(scorer)
        with pytest.raises(ValueError, match="2 units") as raised:
            scorer.feedback(first.trace_id, True)
        with pytest.raises(ValueError, match="give span_id"):
            scorer.feedback(IDS.trace_id, True)

        assert first.span_id in str(raised.value)
        assert second.span_id in str(raised.value)


def test_a_key_of_the_application_finds_its_unit_and_stands_on_it() -> None:
    with a_line() as (scorer, trace):
        ids = answered(scorer, feedback_key="order-4711")
        assert scorer.feedback(key="order-4711", value=False)
        assert scorer.flush(10)

        (span,) = trace.named("evaluation user_feedback")
        assert under(span) == tuple(ids)
        assert span.attributes[semconv.FEEDBACK_KEY] == "order-4711"
        assert [root.attributes[semconv.FEEDBACK_KEY] for root in trace.roots] == ["order-4711"]


def test_a_key_on_a_span_of_another_library_finds_its_unit() -> None:
    with a_line() as (scorer, trace):
        trace.provider.add_span_processor(ScoringSpanProcessor(scorer))
        named = {"gen_ai.operation.name": "invoke_agent", semconv.FEEDBACK_KEY: "order-4711"}
        with trace.provider.get_tracer(EXTERNAL).start_as_current_span("agent", attributes=named) as span:
            pass
        assert scorer.flush(10)
        assert scorer.feedback(key="order-4711", value=True)
        assert scorer.flush(10)

        (label,) = trace.named("evaluation user_feedback")
        assert label.parent.span_id == span.get_span_context().span_id


def test_an_early_label_waits_for_a_unit_with_an_open_span() -> None:
    with a_line() as (scorer, trace):
        pipeline_of(scorer).span_thread.now_ns = clock = ManualClock(steady_ns())
        trace.provider.add_span_processor(ScoringSpanProcessor(scorer))
        tracer = trace.provider.get_tracer(EXTERNAL)
        named = {"gen_ai.operation.name": "invoke_agent", semconv.FEEDBACK_KEY: "order-4711"}
        with tracer.start_as_current_span("agent", attributes=named) as span:
            tracer.start_span("chat", attributes={"gen_ai.operation.name": "chat"})  # never ends
        assert scorer.feedback(key="order-4711", value=True)
        for seconds in (4.9, 0.2):
            _look_after(seconds, scorer, clock)
        assert scorer.flush(10)

        (label,) = trace.named("evaluation user_feedback")
        assert label.parent.span_id == span.get_span_context().span_id


def test_a_label_whose_unit_is_nowhere_waits_only_while_a_unit_is_open() -> None:
    with a_line() as (scorer, trace):
        pipeline_of(scorer).span_thread.now_ns = clock = ManualClock(steady_ns())
        assert scorer.feedback(key="order-1", value=True)
        _look_after(1.1, scorer, clock)
        assert unplaced(scorer) == 1

        trace.provider.add_span_processor(ScoringSpanProcessor(scorer))
        tracer = trace.provider.get_tracer(EXTERNAL)
        with tracer.start_as_current_span("agent", attributes={"gen_ai.operation.name": "invoke_agent"}):
            assert scorer.feedback(key="order-2", value=True)
            _look_after(5.9, scorer, clock)
            assert unplaced(scorer) == 1
            assert scorer.feedback(key="order-3", value=True)
            _look_after(0.2, scorer, clock)
            assert unplaced(scorer) == 2


def unplaced(scorer: Any) -> int:
    return pipeline_of(scorer).annotation_writer.unplaced


def _look_after(seconds: float, scorer: Any, clock: ManualClock) -> None:
    """Have the span thread read its events, and do the work that is due after a time."""
    for passed in (0, seconds):
        clock.advance(passed)
        for _ in range(2):  # posted work precedes a tick's last work
            assert pipeline_of(scorer).span_thread.call(lambda: None, 5)


def test_a_key_that_nobody_knows_leaves_as_an_event_and_is_reported() -> None:
    memory = Memory()
    providers = {"tracer_provider": memory.tracer_provider, "logger_provider": memory.logger_provider}
    with OnlineScorer([ExactMatch()], **providers) as scorer:
        assert scorer.feedback(key="order-4711", value=True)
        assert scorer.flush(10)

        (event,) = memory.events
        assert (event.event_name, event.trace_id) == (semconv.EVALUATION_EVENT, 0)
        assert event.attributes[semconv.FEEDBACK_KEY] == "order-4711"
        assert memory.spans == ()
        assert any("1 labels have a key" in note for note in scorer.status().notes)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"trace_id": "4bf92f"}, "32 hex digits"),
    ({"trace_id": 0}, "not all 0"),
    ({"trace_id": True}, "32 hex digits"),
    ({"trace_id": "-" + IDS.trace_id[1:]}, "32 hex digits"),
    ({"span_id": "xyz"}, "16 hex digits"),
    ({"trace_id": None, "span_id": None}, "32 hex digits"),
    ({"value": nan}, "a number"),
    ({"value": 10**400}, "a number"),
    ({"value": inf}, "a number"),
    ({"value": None}, "a word of a declared scale"),
    ({"value": "soso"}, "bad, ok, good"),
    ({"value": True}, "bad, ok, good"),
    ({"value": "good", "name": "mood"}, "feedback_scales="),
    ({"value": 4, "name": "stars"}, "0, worst, to 1"),
    ({"name": "User Feedback"}, "lower case"),
    ({"name": "grounded"}, "is a metric"),
    ({"annotator": ""}, "non-empty text"),
    ({"when": datetime(2026, 3, 1)}, "time zone"),
    ({"when": 1_772_323_200_000}, "seconds since 1970"),
    ({"key": " "}, "non-empty text"),
]


@pytest.mark.parametrize(("wrong", "allowed"), WRONG, ids=[str(wrong)[:60] for wrong, _ in WRONG])
def test_what_is_wrong_is_refused_with_what_is_allowed(wrong: dict[str, Any], allowed: str) -> None:
    right: dict[str, Any] = {"trace_id": IDS.trace_id, "span_id": IDS.span_id, "value": "good"}
    with a_line(feedback_scales=SCALE) as (scorer, _), pytest.raises(ValueError, match=allowed):
        scorer.feedback(**right | wrong)


@pytest.mark.parametrize(
    "labels", [{"Mood": ["a", "b"]}, {"mood": ["good"]}, {"mood": ["a", "a"]}, {"exact_match": ["a", "b"]}]
)
def test_a_scale_that_is_none_is_refused_at_once(labels: dict[str, list[str]]) -> None:
    with pytest.raises(ConfigurationError, match=r"feedback_scales"):
        OnlineScorer([ExactMatch()], feedback_scales=labels)


def test_refused_labels_take_none_of_the_allowed_names() -> None:
    with a_line() as (scorer, _):
        for number in range(101):
            with pytest.raises(ValueError, match="is not a value"):
                scorer.feedback("1" * 32, 7, span_id="1" * 16, name=f"question_{number}")

        assert scorer.feedback("1" * 32, True, span_id="1" * 16)


def test_stars_are_words_of_a_scale_however_they_are_given() -> None:
    with a_line(feedback_scales={"stars": [1, 2, 3, 4, 5]}) as (scorer, trace):
        for stars in (4, "4", 4.0):
            assert scorer.feedback(IDS.trace_id, stars, span_id=IDS.span_id, name="stars")
        assert scorer.flush(10)

        (span,) = trace.named("evaluation stars")
        assert (*label_of(span), span.attributes[semconv.QUALITY]) == ("4", 0, 0.75)


@pytest.mark.parametrize(("content", "expected"), [(False, None), (True, "not what [who] asked")])
def test_a_comment_leaves_only_where_content_does_and_redacted(content: bool, expected: str | None) -> None:
    redactor = lambda text: text.replace("Ann", "[who]")  # noqa: E731
    with a_line(capture=Capture(content=content), redactor=redactor) as (scorer, trace):
        scorer.feedback(
            IDS.trace_id, 1, span_id=IDS.span_id, comment="not what Ann asked", annotator="Ann", key="Ann-1"
        )
        assert scorer.flush(10)

        (span,) = trace.named("evaluation user_feedback")
        assert span.attributes.get(semconv.EVALUATION_EXPLANATION) == expected
        assert (span.attributes[semconv.ANNOTATOR], span.attributes[semconv.FEEDBACK_KEY]) == ("[who]", "[who]-1")
        assert "Ann" not in trace.text()


def test_a_redactor_that_raises_lets_nothing_personal_leave() -> None:
    def redactor(text: str) -> str:
        raise RuntimeError(text)

    with a_line(capture=Capture(content=True), redactor=redactor) as (scorer, trace):
        scorer.feedback(IDS.trace_id, 1, span_id=IDS.span_id, comment="Ann", annotator="Ann", key="Ann-1")
        assert scorer.flush(10)

        (span,) = trace.named("evaluation user_feedback")
        assert span.attributes[semconv.ANNOTATOR] == "HUMAN"
        assert "Ann" not in trace.text()


def test_a_redactor_keeps_a_comment_that_is_the_word_for_an_unnamed_annotator() -> None:
    with a_line(capture=Capture(content=True), redactor=lambda text: text) as (scorer, trace):
        scorer.feedback(IDS.trace_id, 1, span_id=IDS.span_id, comment="HUMAN", key="HUMAN")
        assert scorer.flush(10)

        (span,) = trace.named("evaluation user_feedback")
        assert span.attributes[semconv.EVALUATION_EXPLANATION] == "HUMAN"
        assert span.attributes[semconv.FEEDBACK_KEY] == "HUMAN"


def test_labels_touch_no_count_of_the_metrics() -> None:
    with a_line() as (scorer, _):
        ids = answered(scorer)
        assert scorer.flush(10)
        before = scorer.status()
        scorer.feedback(ids.trace_id, False)
        assert scorer.flush(10)

        after = scorer.status()
        assert (after.outcomes, after.means, after.eligible) == (before.outcomes, before.means, before.eligible)


def test_the_status_counts_one_label_per_unit_and_annotator() -> None:
    with a_line(sample_rate=0.0) as (scorer, _):
        for annotator in ("Ann", "Bob"):
            for value in (False, True, True):  # changed, then repeated
                scorer.feedback(IDS.trace_id, value, span_id=IDS.span_id, annotator=annotator)
        assert scorer.flush(10)

        assert scorer.status().labels == {"user_feedback": 2}
        assert "labels: 2 of user_feedback" in str(scorer.status())


def test_a_closed_scorer_takes_nothing() -> None:
    with a_line() as (scorer, trace):
        pass

    assert not scorer.feedback(IDS.trace_id, True, span_id=IDS.span_id)
    assert trace.named("evaluation user_feedback") == []


def test_a_run_is_found_by_each_id_that_its_caller_may_have() -> None:
    with a_line() as (scorer, _):
        own = uuid4()
        ids = None
        for event in _events(scorer, own):
            ids = ids or scorer.unit_id(event["run_id"])
            assert scorer.unit_id(event["run_id"]) == ids
        assert scorer.flush(10)

        assert ids is not None
        assert scorer.unit_id(own) == scorer.unit_id(str(own)) == ids
        assert scorer.unit_id(uuid4()) is None
        with pytest.raises(ValueError, match="run_id is 'run-1'; allowed is a UUID"):
            scorer.unit_id("run-1")


def _events(scorer: Any, run_id: Any) -> list[Any]:
    import asyncio

    async def streamed() -> list[Any]:
        config: Any = {"callbacks": [scorer.handler], "run_id": run_id}
        return [event async for event in rag().astream_events(QUESTION, config=config, version="v2")]

    return asyncio.run(streamed())


class Taking:
    """A user's sink that takes labels, too."""

    def __init__(self) -> None:
        self.labels: list[Annotation] = []

    def emit(self, unit: Any, scores: Any) -> None:
        """Take scores."""

    def label(self, label: Annotation) -> None:
        """Take a label."""
        self.labels.append(label)

    def shutdown(self) -> None:
        """Hold nothing back."""


def test_a_users_own_sink_takes_labels_where_it_wants_them() -> None:
    sink = Taking()
    with a_line(outputs=Outputs(sinks=[sink]), feedback_scales=SCALE) as (scorer, _):
        scorer.feedback(IDS.trace_id, "ok", span_id=IDS.span_id)
        assert scorer.flush(10)

    assert [(label.value, label.quality, label.revision) for label in sink.labels] == [("ok", 0.5, 0)]


def test_what_was_said_before_a_shutdown_leaves() -> None:
    with a_line() as (scorer, trace):
        for said in range(20):
            scorer.feedback(said + 1, True, span_id=IDS.span_id)
        scorer.feedback(key="order-1", value=True)
        scorer.shutdown()

        assert len(trace.named("evaluation user_feedback")) == 20
