"""Spans → rows: each score once, and a reason for every unit without one."""

from __future__ import annotations

from dataclasses import replace

from tests.report.builders import TEN_O_CLOCK, a_unit_span, evaluations, make_score

from spanscore import semconv
from spanscore.core.score import JudgeCall, Outcome, Scale, Usage
from spanscore.core.span import UnitKey
from spanscore.report import summarize
from spanscore.report.rows import ReportRow, unit_name
from spanscore.report.spans import Spans
from spanscore.testing import make_span

LOWER = Scale(direction="lower")
COSINE = Scale(range=(-1.0, 1.0), negatives_are_zero=True)


def read(*spans: object) -> list[ReportRow]:
    return Spans.read(spans).rows()  # type: ignore[arg-type]


def test_score_on_unit_and_evaluation_span_counts_once_and_tells_all() -> None:
    call = JudgeCall(step="verify", model="m", input_tokens=40, output_tokens=2, cost_usd=0.5)
    score = make_score(
        0.25, explanation="1 of 4", usage=Usage((call,)), judge_model="m", probability=0.5, threshold=1 << 55
    )
    span = a_unit_span(score)

    assert read(*evaluations(span, score), span) == [
        ReportRow(
            unit=unit_name(UnitKey(span.trace_id, span.span_id)),
            metric="faithfulness",
            time_ns=TEN_O_CLOCK,
            value=0.25,
            quality=0.25,
            label="fail",
            explanation="1 of 4",
            probability=0.5,
            range=(0.0, 1.0),
            pass_at=0.5,
            evaluator_version="1",
            judge_model="m",
            input_tokens=40,
            output_tokens=2,
            cost_usd=0.5,
            name="invoke_workflow guide",
            trace_id=f"{span.trace_id:032x}",
        )
    ]


def test_a_name_with_a_slash_that_is_no_unit_has_no_spans() -> None:
    spans = Spans.read([a_unit_span()])

    assert [spans.unit(name) for name in ("user/42", "a/b/c", "/")] == [(UnitKey(0, 0), ())] * 3


def test_what_a_judge_was_asked_is_no_unit() -> None:
    asked = make_span(semconv.CHAT, scope=semconv.JUDGE_SCOPE, attributes={semconv.EVALUATION_NAME: "faithfulness"})

    spans = Spans.read([asked])

    assert (spans.units, spans.evaluations, spans.by_trace) == ({}, {}, {})


def test_what_a_fallback_judged_is_a_metric_of_its_own() -> None:
    score, stands_in = make_score(0.8), make_score(0.2, source="fallback")
    both = a_unit_span(score), a_unit_span(stands_in)
    late = a_unit_span(pending=True)

    rows = read(*both, late, *evaluations(late, stands_in))

    means = {one.metric: one.mean for one in summarize(rows).metrics}
    assert means == {"faithfulness": 0.8, "faithfulness (fallback)": 0.2}


def test_late_score_comes_from_its_evaluation_span() -> None:
    span, score = a_unit_span(pending=True), make_score(0.8)

    (row,) = read(span, *evaluations(span, score))

    assert (row.outcome, row.value, row.time_ns) == ("scored", 0.8, TEN_O_CLOCK)


def test_score_on_its_unit_alone_is_read_with_the_scale_other_units_tell() -> None:
    result, bare = (
        a_unit_span(make_score(0.2, "noise", scale=LOWER)),
        a_unit_span(make_score(0.9, "noise", scale=LOWER)),
    )

    found = {row.value: row for row in read(result, *evaluations(result, make_score(0.2, "noise", scale=LOWER)), bare)}

    assert found[0.9].direction == "lower"
    assert round(found[0.9].quality or 0, 6) == 0.1


def test_quality_of_a_negative_cosine_is_zero() -> None:
    span, score = a_unit_span(), make_score(-0.4, "relevancy", scale=COSINE)

    (row,) = read(span, *evaluations(span, score))

    assert (row.value, row.quality, row.range) == (-0.4, 0.0, (-1.0, 1.0))


def test_failed_evaluation_has_no_value_and_its_error_type() -> None:
    score = make_score(None, error_type="unavailable")
    span = a_unit_span(score)

    (row,) = read(span, *evaluations(span, score))

    assert (row.outcome, row.value, row.quality, row.reason) == ("judge_error", None, None, "unavailable")


def test_metric_that_was_never_begun_has_the_outcome_that_is_left() -> None:
    failed = make_score(None, "harmless")
    scored = a_unit_span(make_score(1.0))
    span = a_unit_span(failed, others={"faithfulness": Outcome.MISSING_FIELD})

    found = {(row.unit, row.metric): row.outcome for row in read(scored, span, *evaluations(span, failed))}

    of_span = unit_name(UnitKey(span.trace_id, span.span_id))
    assert {key[1]: outcome for key, outcome in found.items() if key[0] == of_span} == {
        "harmless": "judge_error",
        "faithfulness": "missing_field",
    }


def test_each_metric_of_a_unit_has_the_outcome_that_its_span_says_of_it() -> None:
    lacking = make_score(None, "recall", outcome=Outcome.MISSING_FIELD, missing=("reference",))
    span = a_unit_span(make_score(1.0, "a"), lacking, others={"b": Outcome.NOT_SAMPLED, "c": Outcome.QUEUE_FULL})
    scored = a_unit_span(make_score(1.0, "a"), make_score(1.0, "b"))

    found = {row.metric: (row.outcome, row.reason) for row in read(scored, span) if row.value is None}

    assert found == {
        "recall": ("missing_field", "needs reference"),
        "c": ("queue_full", None),
    }


def test_unit_without_any_score_is_there_when_no_metric_is_known() -> None:
    assert [(row.metric, row.outcome) for row in read(a_unit_span(others={"a": Outcome.NOT_SAMPLED}))] == [
        ("", "not_sampled")
    ]


def test_pending_score_that_never_came_is_pending() -> None:
    scored = a_unit_span(make_score(1.0))

    assert [row.outcome for row in read(scored, a_unit_span(pending=True))] == ["scored", "pending"]


def test_metric_of_another_scorer_is_not_missed() -> None:
    assert len(read(a_unit_span(make_score(1.0, "a")), a_unit_span(make_score(1.0, "b")))) == 2


def test_span_that_comes_twice_counts_once() -> None:
    score = make_score(0.5)
    span = a_unit_span(score)
    both = [span, *evaluations(span, score)]

    assert len(read(*both, *both)) == 1


def test_highest_revision_wins_in_any_order() -> None:
    span, first, second = a_unit_span(), make_score(0.1, revision=0), make_score(0.9, revision=1)

    (row,) = read(*evaluations(span, second), span, *evaluations(span, first))

    assert row.value == 0.9


def test_evaluation_of_a_unit_that_is_not_in_the_file_is_read() -> None:
    assert [row.value for row in read(*evaluations(a_unit_span(), make_score(0.5)))] == [0.5]


def test_probability_comes_from_the_threshold_where_there_is_no_value() -> None:
    score = make_score(None, threshold=3 << 54)

    (row,) = read(*evaluations(a_unit_span(), score))

    assert row.probability == 0.25


def test_what_is_no_number_is_no_score() -> None:
    hostile = a_unit_span(
        **{semconv.SCORE + "a": "<script>", semconv.SCORE + "b": float("nan"), semconv.SCORE + "c": True}
    )

    assert read(hostile) == []


def test_metric_of_another_service_is_not_missing_here() -> None:
    remote_scoring = replace(a_unit_span(make_score(1.0, "theirs")), resource={"service.name": "other"})
    ours = a_unit_span(make_score(1.0, "ours"))

    found = read(remote_scoring, ours, a_unit_span(others={"ours": Outcome.NOT_SAMPLED}))

    assert [(row.metric, row.outcome) for row in found if row.value is None] == [("ours", "not_sampled")]
