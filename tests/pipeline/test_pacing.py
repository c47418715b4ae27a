"""Budgets → factors: from the past alone, never 0, and spread over the window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import pytest

from spanscore.config.judging import Budget, MetricCost, Spent
from spanscore.core.span import SamplingContext, UnitKey
from spanscore.pipeline.sampling import BudgetPacer, RateSampler, largest_factor

MIDNIGHT = 20_000 * 86_400.0
HOURLY = Budget(calls=100, per="1h")
STEP_S = 180.0


@dataclass
class Books:
    """Reports the spending; every sampled unit costs a call immediately."""

    now_s: float = MIDNIGHT
    by_metric: dict[str, MetricCost] = field(default_factory=dict)
    by_window: dict[tuple[Budget, int], float] = field(default_factory=dict)
    not_attempted: int = 0

    def spent(self, budget: Budget) -> float:
        return self.by_window.get((budget, int(self.now_s // budget.window_s)), 0.0)

    def limit(self, budget: Budget) -> float:
        return budget.amount

    def paid(self) -> Mapping[str, MetricCost]:
        return self.by_metric

    def pay(self, metric: str, *budgets: Budget) -> None:
        known = self.by_metric.get(metric, MetricCost())
        self.by_metric[metric] = MetricCost(known.spent.plus(Spent(calls=1.0)))
        for budget in budgets:
            window = budget, int(self.now_s // budget.window_s)
            self.by_window[window] = self.by_window.get(window, 0.0) + 1


def spent_in(books: Books, budgets: list[Budget], *, wanted: int, steps: int, metric: str = "m") -> BudgetPacer:
    """Drive a pacer through steps with these numbers of units, evenly distributed."""
    pacer, random = BudgetPacer(budgets, books, dict, clock=lambda: books.now_s), Random(1)
    for number in range(wanted * steps):
        books.now_s = MIDNIGHT + number * STEP_S / wanted
        taken = random.random() < pacer.factor(metric)
        pacer.count(metric, taken=taken)
        if taken:
            books.pay(metric, *budgets)
    return pacer


def test_a_budget_lasts_to_the_end_of_its_window() -> None:
    books = Books()

    spent_in(books, [HOURLY], wanted=50, steps=60)  # 1,000 an hour: ten times the budget

    last_hour = int(MIDNIGHT // 3600) + 2
    assert 85 <= books.by_window[HOURLY, last_hour] <= 100


def test_a_budget_of_stored_samples_lowers_no_rate() -> None:
    pacer = spent_in(Books(), [Budget(calls=100, per="1h", lowers_rates=False)], wanted=50, steps=60)

    assert pacer.factors() == [1.0]


def test_a_budget_that_is_large_enough_lowers_nothing() -> None:
    books = Books()

    pacer = spent_in(books, [Budget(calls=2_000, per="1h")], wanted=50, steps=40)

    assert pacer.factors() == [1.0]


def test_the_factor_of_a_step_does_not_depend_on_the_units_that_it_takes() -> None:
    books = Books()
    pacer = spent_in(books, [HOURLY], wanted=50, steps=10)
    books.now_s = MIDNIGHT + 10 * STEP_S
    begun = pacer.factor("m")

    for _ in range(500):
        books.now_s += 0.1
        pacer.count("m", taken=False)
        books.pay("m", HOURLY)

    assert pacer.factor("m") == begun


def test_a_factor_rises_by_half_in_a_step_at_most() -> None:
    books = Books()
    pacer = spent_in(books, [HOURLY], wanted=50, steps=20)

    before = pacer.factors()[0]
    books.now_s = MIDNIGHT + 100 * STEP_S  # an hour and more without traffic

    assert pacer.factor("m") == pytest.approx(1.5 * before)


def test_where_nothing_is_left_the_last_factor_above_0_chooses() -> None:
    books = Books()
    pacer = spent_in(books, [HOURLY], wanted=50, steps=5)
    before = pacer.factors()[0]

    books.by_window[HOURLY, int(MIDNIGHT // 3600)] = 100.0
    books.now_s = MIDNIGHT + 6 * STEP_S

    assert pacer.factor("m") == before > 0


def after_two_steps(under_way: int, metric: str = "m") -> float:
    """Return the factor when so many of the units that a metric took still wait for their judge."""
    waiting, books = {metric: 0}, Books()
    pacer = BudgetPacer([Budget(calls=1_000, per="1h", metric="m")], books, lambda: waiting, clock=lambda: books.now_s)
    for second in range(int(2 * STEP_S)):
        books.now_s = MIDNIGHT + second
        pacer.factor("m")
        pacer.count("m", taken=True)
        books.pay("m")
    books.now_s, waiting[metric] = MIDNIGHT + 3 * STEP_S, under_way
    return pacer.factor("m")


def test_units_that_wait_for_their_judge_are_paid_from_what_is_left() -> None:
    assert after_two_steps(under_way=500) < after_two_steps(under_way=0) < 1


def test_units_that_wait_for_the_judge_of_another_metric_take_nothing_from_a_budget() -> None:
    assert after_two_steps(under_way=500, metric="other") == after_two_steps(under_way=0)


def test_a_step_that_has_cost_its_share_ends_before_its_time() -> None:
    books = Books()
    pacer = spent_in(books, [HOURLY], wanted=50, steps=25)
    before = pacer.factors()[0]

    books.now_s = MIDNIGHT + 25 * STEP_S
    pacer.factor("m")
    for _ in range(10):  # twice a step's budget, within ten seconds
        books.now_s += 1
        pacer.count("m", taken=True)
        books.pay("m", HOURLY)

    assert pacer.factor("m") < before / 4


def test_questions_that_were_turned_away_do_not_make_a_unit_look_cheap() -> None:
    books = Books()
    pacer = spent_in(books, [HOURLY], wanted=50, steps=20)
    before = pacer.factors()[0]

    for _ in range(50):  # a step in which units were chosen, and none was asked
        pacer.count("m", taken=True)
    books.not_attempted = 50
    books.now_s = MIDNIGHT + 20 * STEP_S + STEP_S

    assert pacer.factor("m") < 2 * before


def test_of_several_budgets_the_smallest_factor_is_a_metrics() -> None:
    books = Books()
    own = Budget(calls=10, per="1h", metric="m")

    pacer = spent_in(books, [Budget(calls=500, per="1h"), own], wanted=50, steps=40)

    assert pacer.factor("m") == min(pacer.factors()) == pacer.factors()[1]
    assert pacer.factor("other") == pacer.factors()[0]


def test_a_first_answer_that_cost_more_than_the_budget_breaks_no_later_decision() -> None:
    books = Books()
    pacer = BudgetPacer([HOURLY], books, lambda: {"m": 1}, clock=lambda: books.now_s)
    pacer.count("m", taken=True)  # and continues to ask: the cost of a unit is unknown yet
    books.by_window[HOURLY, int(MIDNIGHT // 3600)] = 101

    books.now_s += STEP_S

    assert 0 < pacer.factor("m") <= 1


@pytest.mark.parametrize(
    ("left", "wanted", "factor"),
    [
        (10.0, [(1.0, 20.0)], 0.5),
        (10.0, [(1.0, 10.0)], float("inf")),
        (10.0, [], float("inf")),
        (10.0, [(1.0, 0.0)], float("inf")),
        (10.0, [(0.1, 20.0), (1.0, 20.0)], 0.4),  # 2 go to the one that may have no more, 8 to the other
        (-1.0, [(1.0, 20.0)], 0.0),
        (-1.0, [(1.0, 0.0)], 0.0),
    ],
)
def test_what_one_metric_may_not_have_is_the_others(
    left: float, wanted: list[tuple[float, float]], factor: float
) -> None:
    assert largest_factor(left, wanted) == pytest.approx(factor)


def sampler(books: Books, rate: float = 1.0) -> RateSampler:
    pacer = spent_in(books, [HOURLY], wanted=50, steps=40)
    books.now_s = MIDNIGHT + 40 * STEP_S
    return RateSampler({"m": rate}, pacer=pacer)


def facts(number: int) -> SamplingContext:
    return SamplingContext(key=UnitKey(number, 1), is_trace_root=True)


def test_the_probability_on_a_score_is_the_lowered_rate() -> None:
    lowered = sampler(Books())

    decisions = [lowered.decide(facts(number), "m") for number in range(1, 20_001)]

    taken = [decision for decision in decisions if decision.take]
    (probability,) = {decision.probability for decision in taken}
    assert probability < 0.2
    assert len(taken) / len(decisions) == pytest.approx(probability, rel=0.1)
    assert all((2**56 - one.threshold) / 2**56 == one.probability for one in decisions)


def test_who_only_a_budget_kept_out_has_its_rule() -> None:
    lowered, unlimited = sampler(Books(), rate=0.5), RateSampler({"m": 0.5})

    pairs = [(lowered.decide(facts(n), "m"), unlimited.decide(facts(n), "m")) for n in range(1, 2_001)]

    assert {one.rule for one, other in pairs if other.take and not one.take} == {"budget"}
    assert {one.rule for one, other in pairs if not other.take or one.take} == {"base"}


def test_at_the_start_of_a_unit_the_rate_is_the_unlowered_one() -> None:
    lowered, unlimited = sampler(Books(), rate=0.5), RateSampler({"m": 0.5})

    assert all(lowered.could_sample(facts(n)) == unlimited.could_sample(facts(n)) for n in range(1, 500))
