"""The identity: eligible = Σ outcomes + pending, at any time."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from spanscore.core.job import Decision, Weights
from spanscore.core.score import Outcome
from spanscore.core.span import UnitKey
from spanscore.pipeline.ledger import Ledger

METRICS = ("faithfulness", "harmless")
KEYS = st.integers(min_value=1, max_value=6).map(lambda n: UnitKey(n, n))
STEPS = st.one_of(
    st.tuples(st.just("enter"), KEYS),
    st.tuples(st.just("enter"), KEYS, st.sampled_from([METRICS, METRICS[:1], ("elsewhere",)])),
    st.tuples(st.just("settle"), KEYS, st.sampled_from(METRICS), st.sampled_from(list(Outcome))),
    st.tuples(st.just("settle_all"), KEYS, st.sampled_from(list(Outcome))),
    st.tuples(st.just("record_rejected"), st.sampled_from(list(Outcome)), st.integers(1, 3)),
    st.tuples(st.just("change"), st.sampled_from([METRICS, METRICS[:1], (METRICS[1], "added")])),
)


@given(st.lists(STEPS, max_size=60))
def test_eligible_is_outcomes_plus_pending_after_any_steps(steps):
    ledger = Ledger(METRICS)

    for name, *arguments in steps:
        before, weights = ledger.outcomes(), ledger.excluded()
        getattr(ledger, name)(*arguments)

        ended = Counter()
        for (metric, _), units in ledger.outcomes().items():
            ended[metric] += units
        assert all(ledger.outcomes()[of] >= units for of, units in before.items())
        assert all(ledger.excluded()[of] >= lost for of, lost in weights.items())
        for metric in ledger.eligible():
            assert ledger.eligible()[metric] == ended[metric] + ledger.pending()[metric]


def test_a_change_keeps_the_outcomes_of_units_that_all_entered_with_named_metrics():
    ledger = Ledger(METRICS)
    ledger.enter(UnitKey(1, 1), METRICS)
    ledger.settle_all(UnitKey(1, 1), Outcome.FILTERED)

    ledger.change(["added"])

    assert ledger.outcomes() == {(name, Outcome.FILTERED): 1 for name in METRICS}
    assert ledger.eligible() == {"added": 0, **dict.fromkeys(METRICS, 1)}


def test_units_that_end_together_are_weighed_as_one_after_another():
    together, in_turn = Ledger(METRICS), Ledger(METRICS)

    together.record_rejected(Outcome.EVENT_QUEUE_FULL, 3)
    for _ in range(3):
        in_turn.record_rejected(Outcome.EVENT_QUEUE_FULL)

    assert together.count_units() == in_turn.count_units()


def test_a_unit_times_metric_ends_once():
    ledger = Ledger(METRICS)
    ledger.enter(UnitKey(1, 1))

    assert ledger.settle(UnitKey(1, 1), "harmless", Outcome.SCORED)
    assert not ledger.settle(UnitKey(1, 1), "harmless", Outcome.TIMEOUT)

    assert ledger.outcomes() == {("harmless", Outcome.SCORED): 1}


def test_what_a_fallback_judged_is_counted_apart_and_all_of_it_adds_up():
    ledger = Ledger(["a"])
    for number, source in enumerate([None, "fallback", "fallback"]):
        ledger.enter(UnitKey(1, number))
        ledger.settle(UnitKey(1, number), "a", Outcome.SCORED, source)
    ledger.record_rejected(Outcome.EVENT_QUEUE_FULL)

    assert ledger.outcomes() == {("a", Outcome.SCORED): 3, ("a", Outcome.EVENT_QUEUE_FULL): 1}
    assert ledger.outcomes_by_source() == {
        ("a", Outcome.SCORED, None): 1,
        ("a", Outcome.SCORED, "fallback"): 2,
        ("a", Outcome.EVENT_QUEUE_FULL, None): 1,
    }


def test_every_lost_unit_adds_its_weight_once():
    ledger = Ledger(["a", "b"])
    ledger.record_rejected(Outcome.EVENT_QUEUE_FULL)
    for number, outcome in enumerate([Outcome.SCORED, Outcome.QUEUE_FULL, Outcome.NOT_SAMPLED, Outcome.INCOMPLETE]):
        ledger.enter(UnitKey(1, number))
        ledger.record_probabilities(UnitKey(1, number), {"a": Decision(True, 0.25, 0)})
        ledger.settle(UnitKey(1, number), "a", outcome)
        ledger.settle(UnitKey(1, number), "a", Outcome.SHUTDOWN)  # it has ended
        ledger.settle_all(UnitKey(1, number), outcome)

    once, chosen = Weights(1, 1), Weights(4, 16)
    assert ledger.excluded() == {
        ("a", Outcome.EVENT_QUEUE_FULL, None): once,
        ("b", Outcome.EVENT_QUEUE_FULL, None): once,
        ("a", Outcome.QUEUE_FULL, None): chosen,
        ("b", Outcome.QUEUE_FULL, None): once,
        ("a", Outcome.INCOMPLETE, None): chosen,
        ("b", Outcome.INCOMPLETE, None): once,
    }


def test_the_mean_lacks_what_a_fallback_scored_and_nothing_that_could_have_no_score():
    ledger = Ledger(["a"])
    without = [Outcome.NO_SAMPLE, Outcome.MISSING_FIELD, Outcome.NO_VALUE, Outcome.TRACE_NOT_SAMPLED, Outcome.FILTERED]
    for number, outcome in enumerate(without):
        ledger.enter(UnitKey(1, number))
        ledger.settle(UnitKey(1, number), "a", outcome)
    ledger.enter(UnitKey(2, 1))
    ledger.settle(UnitKey(2, 1), "a", Outcome.SCORED, "fallback")

    assert ledger.excluded() == {("a", Outcome.SCORED, "fallback"): Weights(1, 1)}


def test_a_unit_that_entered_with_other_metrics_counts_for_those():
    ledger = Ledger(["a", "b"])
    ledger.enter(UnitKey(1, 1), ["a", "c"])

    ended = ledger.settle_all(UnitKey(1, 1), Outcome.SHUTDOWN)

    assert ended == {"a", "c"}
    assert ledger.eligible() == {"a": 1, "b": 0, "c": 1}
    assert ledger.outcomes() == {("a", Outcome.SHUTDOWN): 1, ("c", Outcome.SHUTDOWN): 1}
