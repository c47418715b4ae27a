"""Scores of other evaluators that come with spans are counted once each, under a source of their own."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.capture.otlp.builders import FRAMEWORK
from tests.capture.otlp.results import EVALUATOR, logs, make_span, result, taken_of
from tests.capture.otlp.test_units import Served

from spanscore import semconv
from spanscore.capture.otlp.external_scores import ExternalScores, results_in_logs
from spanscore.core.job import ExternalCount, ExternalCounts
from spanscore.outputs.aggregates import Labels

OWN = ("grounded", "1/gpt/1")


class ExternalReading:
    """A receiver of spans, and its counts of external scores."""

    def __init__(self, **served: Any) -> None:
        self.sums: Counter[tuple[str, Labels]] = Counter()
        self.scores = ExternalScores(self._count, [OWN])
        self.served = Served(**served)
        self.served.receiver.external = self.scores

    def _count(self, name: str, labels: Labels, amount: float) -> None:
        self.sums[name, labels] += amount

    def send(self, *spans: Span, scope: str = "an.app") -> None:
        self.served.receiver.accept(taken_of(*spans, scope=scope))
        self.served.read()

    def send_results(self, *results: dict[str, Any]) -> None:
        self.send(*(make_span({}, one) for one in results))

    def of(self, instrument: str) -> dict[str, float]:
        """Return name and label → sum."""
        sums = {(instrument, labels): amount for (instrument, labels), amount in self.sums.items()}
        assert all(dict(labels)[semconv.EVALUATION_SOURCE] == "external" for _, labels in sums)
        return {
            " ".join(value for key, value in labels if key != semconv.EVALUATION_SOURCE): amount
            for (name, labels), amount in sums.items()
            if name == instrument
        }

    def names(self) -> dict[str, ExternalCount]:
        counts = self.scores.counts()
        return {} if counts is None else dict(counts.names)


def test_what_is_from_0_to_1_has_a_mean_and_all_are_counted() -> None:
    reading = ExternalReading()

    reading.send_results(result("tone", 0.5), result("tone", 1.0), result("tone", None, "calm"))

    assert reading.of(semconv.SCORED) == {"tone": 2, "tone calm": 1}
    assert (reading.of(semconv.WEIGHT), reading.of(semconv.WEIGHT_QUALITY)) == ({"tone": 2.0}, {"tone": 1.5})
    assert reading.names() == {"tone": ExternalCount(3, 0.75, False, {"calm": 1})}


def test_a_score_weighs_what_it_stands_for() -> None:
    reading = ExternalReading()

    reading.send(make_span({}, result("tone", 1.0), state="ot=th:c"), make_span({}, result("tone", 0.0)))

    assert reading.of(semconv.WEIGHT2) == {"tone": 17.0}
    assert reading.names()["tone"].mean == 0.8


@pytest.mark.parametrize("value", [5, -0.1, 1e308, -1e308, 2**62])
def test_a_name_that_had_a_value_of_another_scale_has_no_mean_any_more(value: float) -> None:
    reading = ExternalReading()

    reading.send_results(result("stars", 1.0), result("stars", value), result("stars", 1.0))

    assert reading.of(semconv.SCORED) == {"stars": 3}
    assert reading.of(semconv.WEIGHT) == {"stars": 1.0}
    assert reading.names() == {"stars": ExternalCount(3, None, True, {})}


def test_what_has_neither_value_nor_label_is_undefined() -> None:
    reading = ExternalReading()

    reading.send_results(result("tone", float("nan")), result("tone", "0.5"))
    reading.scores.read_logs(results_in_logs(logs(result("tone", **{semconv.ERROR_TYPE: "timeout"}))))

    assert reading.scores.counts() == ExternalCounts({}, undefined=3, again=0)
    assert not reading.sums


@pytest.mark.parametrize("scope", ["an.app", FRAMEWORK])
def test_an_evaluator_is_heard_in_any_scope_and_is_still_no_unit(scope: str) -> None:
    reading = ExternalReading()
    span = make_span({**EVALUATOR, **result("tone", 0.5), semconv.OUTPUT_MESSAGES: "[]"})

    reading.send(span, scope=scope)
    reading.served.pass_time(5)

    assert reading.of(semconv.SCORED) == {"tone": 1}
    assert (reading.served.units, reading.served.outcomes()) == ([], {})


def test_an_event_on_a_span_of_a_unit_does_nothing_to_the_unit() -> None:
    reading, held = ExternalReading(), {semconv.OPERATION_NAME: "invoke_agent", semconv.OUTPUT_MESSAGES: "[]"}

    reading.send(make_span(held, result("tone", 0.5)))
    reading.served.pass_time(5)

    assert reading.of(semconv.SCORED) == {"tone": 1}
    assert len(reading.served.units) == 1


def test_what_comes_again_is_counted_once() -> None:
    reading, span, records = (
        ExternalReading(),
        make_span({}, result("tone", 0.5)),
        logs(result("tone", 0.5), result("tone", 0.5)),
    )

    for _ in range(2):
        reading.send(span)
        reading.scores.read_logs(results_in_logs(records))

    assert reading.of(semconv.SCORED) == {"tone": 3}
    counts = reading.scores.counts()
    assert counts is not None
    assert counts.again == 3


@pytest.mark.parametrize("ways", [*permutations(["event", "span", "record"])])
def test_what_reports_one_span_in_several_ways_is_counted_once_and_several_of_one_way_are_several(
    ways: tuple[str, ...],
) -> None:
    reading, score = ExternalReading(), result("tone", 0.5)
    scored = make_span({}, score, score)
    evaluators = [make_span({**EVALUATOR, **score}), make_span({**EVALUATOR, **score})]
    for span in evaluators:
        span.trace_id, span.parent_span_id = scored.trace_id, scored.span_id
    records = logs(score, score, of=scored)
    tell = {
        "event": lambda: reading.send(scored, make_span({}, score)),
        "span": lambda: reading.send(*evaluators, make_span({**EVALUATOR, **score})),
        "record": lambda: reading.scores.read_logs(results_in_logs(records)),
    }

    for way in ways:
        tell[way]()

    assert reading.of(semconv.SCORED) == {"tone": 2 + 2}
    counts = reading.scores.counts()
    assert counts is not None
    assert counts.again == 2 + 2


def test_an_evaluator_in_a_trace_of_its_own_tells_of_the_span_that_it_links_to() -> None:
    reading = ExternalReading()
    scored, evaluator = make_span({}, result("tone", 0.5)), make_span({**EVALUATOR, **result("tone", 0.5)})
    evaluator.links.add(trace_id=scored.trace_id, span_id=scored.span_id)

    reading.send(scored, evaluator)

    assert reading.of(semconv.SCORED) == {"tone": 1}


def test_ours_that_come_back_add_nothing_and_those_of_another_spanscore_do() -> None:
    reading = ExternalReading()
    ours, theirs = (
        {
            **EVALUATOR,
            **result("grounded", 0.5, "fail"),
            semconv.QUALITY: 0.5,
            semconv.EVALUATOR_VERSION: evaluator_version,
        }
        for evaluator_version in (OWN[1], "1/other/1")
    )

    reading.send(make_span(ours), make_span(ours), scope=semconv.SCOPE)
    assert reading.scores.counts() is None
    reading.send(make_span(theirs), scope=semconv.SCOPE)

    assert reading.of(semconv.SCORED) == {"grounded fail": 1}
    assert reading.served.receiver.received().ours == 3


def test_what_a_judge_was_asked_is_no_score() -> None:
    reading = ExternalReading()

    reading.send(make_span({**EVALUATOR, **result("grounded", 0.5)}, result("tone", 0.5)), scope=semconv.JUDGE_SCOPE)

    assert reading.scores.counts() is None


def test_a_scope_that_is_ignored_says_nothing() -> None:
    reading = ExternalReading(ignored=["noisy"])

    reading.send(make_span({}, result("tone", 0.5)), scope="noisy.evaluator")

    assert reading.scores.counts() is None


def test_past_a_hundred_names_and_labels_all_are_other_and_have_no_mean() -> None:
    reading = ExternalReading()

    reading.send_results(*(result(f"metric {number}", 0.5, "ok") for number in range(150)))

    sets = reading.of(semconv.SCORED)
    assert (len(sets), sets["other"], reading.names()["other"].mean) == (101, 50, None)
    assert len(reading.of(semconv.WEIGHT)) == 100


@pytest.mark.parametrize("text", ["x" * 65, "two\nlines", "\x1b[2J", "a \u202e word"], ids=ascii)
def test_a_text_that_is_no_name_is_not_kept(text: str) -> None:
    reading = ExternalReading()

    reading.send_results(result(text, 0.5, "ok"), result("tone", 0.5, text))

    assert reading.of(semconv.SCORED) == {"other": 1, "tone other": 1}


def test_an_explanation_is_nowhere() -> None:
    reading = ExternalReading()

    reading.send_results(result("tone", 0.5, **{semconv.EVALUATION_EXPLANATION: "the planted secret"}))

    assert "planted" not in f"{reading.sums} {reading.scores.counts()} {vars(reading.scores)}"


def test_a_span_that_cannot_be_read_is_no_fault_of_the_others() -> None:
    reading, taken = ExternalReading(), taken_of(make_span({}, result("tone", 0.5)), make_span({}, result("tone", 0.5)))
    first, second = taken.spans

    reading.scores.read([first._replace(raw=first.raw + b"J\x01\xff"), second])

    assert reading.of(semconv.SCORED) == {"tone": 1}
