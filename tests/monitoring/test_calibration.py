"""A judge's quality by a human's labels, and its true pass rate; compared with other libraries and by simulation.

The reference numbers are those of ppi-python 0.2.3, truescore 0.7.4 and statsmodels 0.15.0 for the same labels. They bring half
a gigabyte along, so they are no dependency of the tests.
"""

from __future__ import annotations

import random
from math import sqrt
from statistics import NormalDist

import pytest

from spanscore.errors import ConfigurationError
from spanscore.monitoring.calibration import AnnotatedPair, Calibration, Estimated
from spanscore.monitoring.estimates import Moments, moments

Z = NormalDist().inv_cdf(0.975)
JUDGED, PASSED = 5_000, 3_950
RAW = Moments(JUDGED, JUDGED, PASSED, JUDGED, PASSED, PASSED)
COUNTS = {(True, True): 150, (True, False): 12, (False, True): 9, (False, False): 29}


def pairs(counts: dict[tuple[bool, bool], int], probability: float | None = None) -> list[AnnotatedPair]:
    return [AnnotatedPair(*verdicts, probability) for verdicts, count in counts.items() for _ in range(count)]


CALIBRATION = Calibration.of(pairs(COUNTS))


def test_the_corrected_rate_is_rogan_and_gladens() -> None:
    truescore = 0.80274399

    assert CALIBRATION.corrected(RAW).value == pytest.approx(truescore, abs=1e-8)


def test_its_interval_is_lang_and_reiczigels() -> None:
    n, p = JUDGED + Z**2, (PASSED + Z**2 / 2) / (JUDGED + Z**2)
    se, sp, j = 151 / 164, 30 / 40, 151 / 164 + 30 / 40 - 1
    rate = (p + sp - 1) / j
    of_se, of_sp = se * (1 - se) / 164, sp * (1 - sp) / 40
    middle = rate + 2 * Z**2 * (rate * of_se - (1 - rate) * of_sp)
    half = Z * sqrt(p * (1 - p) / n + rate**2 * of_se + (1 - rate) ** 2 * of_sp) / j

    assert CALIBRATION.corrected(RAW)[1:] == pytest.approx((middle - half, middle + half), abs=1e-12)


def test_the_rate_of_fresh_labels_is_that_of_ppi_plus_plus() -> None:
    ppi_py, low, high = 0.80680444, 0.76575711, 0.84785177

    fresh = CALIBRATION.fresh(RAW)

    assert fresh.value == pytest.approx(ppi_py, abs=1e-5)
    assert (fresh.low, fresh.high) == pytest.approx((low, high), abs=0.004)  # theirs is plain normal


def test_kappa_and_its_interval_are_those_of_other_libraries() -> None:
    with_half_a_label_more = 0.52967706, 0.79112379

    assert CALIBRATION.kappa.value == pytest.approx(0.66887417, abs=1e-8)
    assert CALIBRATION.kappa[1:] == pytest.approx(with_half_a_label_more, abs=1e-8)


def test_sensitivity_specificity_and_j_are_shares_of_the_human_classes() -> None:
    result = CALIBRATION.sensitivity.value, CALIBRATION.specificity.value, CALIBRATION.informedness.value

    assert result == pytest.approx((150 / 162, 29 / 38, 150 / 162 + 29 / 38 - 1))
    assert CALIBRATION.informedness.low > 0.5


def test_labels_drawn_by_verdict_count_by_their_probability() -> None:
    drawn = {
        (True, True): pairs({(True, True): 15}, 0.1),
        (False, True): pairs({(False, True): 1}, 0.1),
        (True, False): pairs({(True, False): 12}, 1.0),
        (False, False): pairs({(False, False): 29}, 1.0),
    }

    weighted = Calibration.of(pair for some in drawn.values() for pair in some)

    assert (weighted.sensitivity.value, weighted.specificity.value) == pytest.approx((150 / 162, 29 / 39))
    assert weighted.sensitivity.high - weighted.sensitivity.low > 0
    assert not weighted.assumed_random


def test_a_unit_that_was_judged_rarely_weighs_as_much_as_it_stood_for() -> None:
    rare = [pair._replace(weight=20.0) for pair in pairs({(True, True): 10, (False, False): 10})]

    found = Calibration.of([*pairs({(True, False): 100, (False, True): 40}), *rare])

    assert (found.sensitivity.value, found.specificity.value) == pytest.approx((200 / 300, 200 / 240))
    assert found.assumed_random


def test_a_wider_sample_of_the_window_makes_the_interval_wider() -> None:
    even = CALIBRATION.corrected(moments([(1.0, 1.0)] * 300 + [(0.0, 1.0)] * 100))
    uneven = CALIBRATION.corrected(moments([(1.0, 1.0)] * 150 + [(1.0, 0.05)] * 150 + [(0.0, 0.1)] * 100))

    assert uneven.high - uneven.low > even.high - even.low


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({(True, True): 96, (False, False): 4}, "humans passed 96 and failed 4"),
        ({(True, True): 3, (False, False): 40}, "humans passed 3 and failed 40"),
        ({}, "humans passed 0 and failed 0"),
        ({(True, True): 80, (False, True): 7, (False, False): 3}, "J is 0.30"),
        ({(True, True): 50, (False, True): 50}, "failed 0 of 50 human fails, so J is 0.00"),
    ],
)
def test_labels_that_say_too_little_are_refused_with_the_counts(
    counts: dict[tuple[bool, bool], int], expected: str
) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        Calibration.of(pairs(counts))


def test_labels_of_which_some_have_a_probability_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="38 of 200 labels have no probability"):
        Calibration.of(
            [
                *pairs({k: n for k, n in COUNTS.items() if k[0]}, 0.5),
                *pairs({k: n for k, n in COUNTS.items() if not k[0]}),
            ]
        )


@pytest.mark.parametrize("by_verdict", [False, True])
@pytest.mark.parametrize("true", [0.85, 0.95])
def test_intervals_hold_the_truth_as_often_as_they_say(true: float, by_verdict: bool) -> None:
    rng = random.Random(7)
    held = [one for _ in range(150) if (one := _simulated(rng, true, by_verdict=by_verdict)) is not None]

    for name in ("corrected", "fresh"):
        covered = sum(one[name].low <= true <= one[name].high for one in held) / len(held)
        assert covered >= 0.9, name  # .93 and more over the thousands of runs of benchmarks/calibration.py
    assert sum(one["corrected"].value for one in held) / len(held) == pytest.approx(true, abs=0.02)


def test_fresh_labels_of_all_that_failed_are_no_surer_of_what_passed() -> None:
    failed = pairs({(True, False): 200, (False, False): 400}, 1.0)
    passed = pairs({(True, True): 17, (False, True): 3}, 0.05)

    fresh = Calibration.of([*failed, *passed]).fresh(Moments(1_000, 1_000, 400, 1_000, 400, 400))

    of_passed = Z * sqrt(0.95 * 0.85 * 0.15 / 20)
    assert (fresh.high - fresh.low) / 2 >= 0.4 * of_passed


def _simulated(rng: random.Random, true: float, *, by_verdict: bool) -> dict[str, Estimated] | None:
    """Return the estimates of 200 labels among 2,000 judged units, of a judge that is right in 90 and 80 % of the cases."""
    units = [(human := rng.random() < true, rng.random() < (0.9 if human else 0.2)) for _ in range(2_000)]
    raw = moments([(float(judge), 1.0) for _, judge in units])
    share = {verdict: min(1.0, 100 / sum(judge is verdict for _, judge in units)) for verdict in (True, False)}
    taken = [(unit, share[unit[1]] if by_verdict else 0.1) for unit in units]
    drawn = [AnnotatedPair(*unit, probability) for unit, probability in taken if rng.random() < probability]
    try:
        found = Calibration.of(drawn)
    except ConfigurationError:
        return None
    return {"corrected": found.corrected(raw), "fresh": found.fresh(raw)}
