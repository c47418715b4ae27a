"""A unit with bad feedback is judged in a source of its own, and the population's sums are unchanged."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.live import ANSWER, Failing, Grounded, Held, a_line, identity_holds
from tests.wiring.test_feedback import answered

from spanscore import ConfigurationError, semconv
from spanscore.config import FeedbackSampling, Sampling
from spanscore.core.job import Decision
from spanscore.core.sample import Samples, SingleTurnSample
from spanscore.core.span import SamplingContext
from spanscore.pipeline.sizes import SampleCache
from spanscore.scorer import pipeline_of
from spanscore.testing import make_span, make_unit
from spanscore.wiring import feedback

KEPT = FeedbackSampling(rate=1.0)
TAKEN = Decision(True, 0.5, 1 << 55, "feedback")
S = 1_000_000_000


def results(scorer: Any) -> dict[str, float]:
    sums = pipeline_of(scorer).telemetry.sums(semconv.FEEDBACK)
    return {dict(labels)[semconv.RESULT]: units for labels, units in sums.items() if units}


def judged(trace: Any) -> list[Any]:
    return [
        span for span in trace.evaluations if span.attributes.get(semconv.EVALUATION_SOURCE) == semconv.SOURCE_FEEDBACK
    ]


def weights(scorer: Any, source: str | None) -> float:
    sums = pipeline_of(scorer).telemetry.sums(semconv.WEIGHT)
    return sum(w for labels, w in sums.items() if dict(labels).get(semconv.EVALUATION_SOURCE) == source)


def source_adds_up(scorer: Any) -> bool:
    counted = pipeline_of(scorer).count_units().sources[semconv.SOURCE_FEEDBACK]
    ended = {name: sum(n for (of, *_), n in counted.outcomes.items() if of == name) for name in counted.eligible}
    return all(counted.eligible[name] == ended[name] + counted.pending[name] for name in counted.eligible)


def test_a_unit_that_nobody_took_is_judged_and_stays_unsampled() -> None:
    with a_line(sampling=Sampling(rate=0.0, feedback=KEPT)) as (scorer, trace):
        ids = answered(scorer)
        assert scorer.feedback(ids.trace_id, False)
        assert scorer.flush(10)

        (span,) = judged(trace)
        assert f"{span.parent.span_id:016x}" == ids.span_id
        assert span.attributes[semconv.SAMPLING_RULE] == "feedback"
        assert scorer.status().outcomes == {"grounded": {"not_sampled": 1}}
        assert (results(scorer), weights(scorer, None), weights(scorer, "feedback")) == ({"judged": 1}, 0, 1)
        assert identity_holds(scorer)
        assert source_adds_up(scorer)


def test_a_unit_that_was_scored_counts_in_the_stratum_too_and_is_not_asked_about_again() -> None:
    metric = Grounded()
    with a_line(metric, sampling=Sampling(feedback=KEPT)) as (scorer, trace):
        ids = answered(scorer)
        assert scorer.flush(10)
        scorer.feedback(ids.trace_id, 0.0)
        assert scorer.flush(10)

        assert len(metric.seen) == 1
        assert len({span.context.span_id for span in trace.named("evaluation grounded")}) == 2
        assert (weights(scorer, None), weights(scorer, "feedback")) == (1, 1)
        assert scorer.status().outcomes == {"grounded": {"scored": 1}}


def test_feedback_on_a_unit_that_is_being_scored_waits_for_its_scores() -> None:
    import threading

    go_on, metric = threading.Event(), None
    metric = Held(go_on)
    with a_line(metric, sampling=Sampling(feedback=KEPT)) as (scorer, trace):
        ids = answered(scorer)
        scorer.feedback(ids.trace_id, False)
        go_on.set()
        assert scorer.flush(10)

        assert len(metric.seen) == 1
        assert (len(judged(trace)), results(scorer)) == (1, {"judged": 1})


def test_only_what_is_low_enough_is_judged_and_a_word_counts_by_its_place() -> None:
    labels = {"mood": ["bad", "ok", "good"]}
    with a_line(sampling=Sampling(rate=0.0, feedback=KEPT), feedback_scales=labels) as (scorer, _):
        ids = answered(scorer)
        for word in ("good", "ok"):
            scorer.feedback(ids.trace_id, word, name="mood")
        assert scorer.flush(10)
        assert results(scorer) == {}
        scorer.feedback(ids.trace_id, "bad", name="mood")
        assert scorer.flush(10)

        assert results(scorer) == {"judged": 1}


def test_a_unit_is_judged_once_whatever_else_is_said_of_it() -> None:
    with a_line(sampling=Sampling(rate=0.0, feedback=KEPT)) as (scorer, trace):
        ids = answered(scorer)
        for annotator in ("Ann", "Bob"):
            scorer.feedback(ids.trace_id, False, annotator=annotator)
        assert scorer.flush(10)

        assert (len(judged(trace)), results(scorer)) == (1, {"judged": 1})


def test_of_a_unit_that_was_never_here_it_is_counted_that_nothing_was_kept() -> None:
    with a_line(sampling=Sampling(rate=0.0, feedback=KEPT)) as (scorer, _):
        scorer.feedback(1, False, span_id=1)
        assert scorer.flush(10)

        assert results(scorer) == {"not_kept": 1}


def test_a_sample_that_had_to_go_is_reported_as_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedback, "SampleCache", partial(SampleCache, max_bytes=1))
    with a_line(sampling=Sampling(rate=0.0, feedback=FeedbackSampling(rate=1.0))) as (scorer, _):
        ids = answered(scorer)
        assert scorer.flush(10)
        scorer.feedback(ids.trace_id, False)
        assert scorer.flush(10)

        assert results(scorer) == {"too_late": 1}


def test_what_is_judged_has_been_redacted() -> None:
    metric = Grounded()
    redactor = lambda text: text.replace("Paris", "[city]")  # noqa: E731
    with a_line(metric, sampling=Sampling(rate=0.0, feedback=KEPT), redactor=redactor) as (scorer, _):
        ids = answered(scorer)
        scorer.feedback(ids.trace_id, False)
        assert scorer.flush(10)

        assert [sample.response for sample in metric.seen] == [ANSWER.replace("Paris", "[city]")]


def test_a_judge_that_fails_ends_its_unit_in_the_stratum_alone() -> None:
    with a_line(Failing(RuntimeError("down")), sampling=Sampling(rate=0.0, feedback=KEPT)) as (scorer, _):
        for _ in range(5):
            scorer.feedback(answered(scorer).trace_id, False)
        assert scorer.flush(10)

        counted = pipeline_of(scorer).count_units().sources[semconv.SOURCE_FEEDBACK]
        assert {(str(outcome), n) for (_, outcome, _), n in counted.outcomes.items()} == {("metric_error", 5)}
        assert identity_holds(scorer)
        assert source_adds_up(scorer)


def test_a_shutdown_ends_what_is_judged() -> None:
    import threading

    with a_line(Held(threading.Event()), sampling=Sampling(rate=0.0, feedback=KEPT)) as (scorer, _):
        scorer.feedback(answered(scorer).trace_id, False)
        scorer.shutdown(2)

        counted = pipeline_of(scorer).count_units().sources[semconv.SOURCE_FEEDBACK]
        assert {(str(outcome), n) for (_, outcome, _), n in counted.outcomes.items()} == {("shutdown", 1)}
        assert source_adds_up(scorer)
        assert identity_holds(scorer)


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def keep(kept: SampleCache, answer: str = ANSWER) -> SamplingContext:
    unit = make_unit(make_span())
    kept.on_samples(unit.facts(), unit, Samples.of(SingleTurnSample(user_input="q", response=answer)))
    return unit.facts()


def test_a_sample_is_kept_for_its_time_and_is_what_it_was() -> None:
    clock = Clock()
    kept = SampleCache(lambda _: TAKEN, within_ns=10 * S, max_bytes=1_000_000, clock=clock)
    first, second = keep(kept), keep(kept)

    clock.now = 10 * S - 1
    held = kept.take(first.key)
    clock.now = 10 * S

    assert held is not None
    assert held.samples.single_turn == SingleTurnSample(user_input="q", response=ANSWER)
    assert (kept.take(second.key), kept.was_dropped(second.key), kept.bytes, len(kept)) == (None, True, 0, 0)


def test_the_oldest_makes_room() -> None:
    kept = SampleCache(lambda _: TAKEN, within_ns=10 * S, max_bytes=20_000, clock=Clock())
    units = [keep(kept, "a" * 3_000) for _ in range(10)]

    assert kept.bytes <= 20_000
    assert [kept.was_dropped(unit.key) for unit in units] == [True] * (10 - len(kept)) + [False] * len(kept)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"rate": 0}, "rate"),
        ({"rate": 1, "below": 2}, "below"),
        ({"rate": 1, "max_age": "soon"}, "max_age"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        FeedbackSampling(**wrong)
