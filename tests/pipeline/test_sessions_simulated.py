"""A part of ``benchmarks/sessions.py``: counted conversations are complete, or marked incomplete."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.sessions import ANY, IDLE_MINUTES, ONE, conversations, false_alarms, found, of_five, turns
from tests.pipeline.conversations import alone, table, turn

VISITS = 500
MINUTE = 60_000_000_000
LATE = (1_000 * MINUTE, -1, 0)


@pytest.mark.parametrize("brings", [False, True])
def test_where_long_conversations_are_worse_their_mean_is_that_of_conversations_and_not_of_turns(brings: bool) -> None:
    mean = found(replace(ONE, brings=brings), VISITS)

    assert abs(mean.bias) <= 0.01
    assert mean.by_turns < mean.true - 0.1
    assert (mean.counted, mean.incomplete) == (1.0, 0.0)


def test_pods_that_think_they_are_one_are_off_and_do_not_know_it() -> None:
    mean = found(replace(ONE, pods=4, brings=True, ends=0.0), VISITS)

    assert mean.bias < -0.01
    assert mean.counted > 2


@pytest.mark.parametrize(("ends", "most"), [(1.0, 0.01), (0.6, 0.03)])  # of 300, chance alone is off by .016
def test_pods_that_know_of_each_other_count_the_conversations_that_end_with_their_last_turn(
    ends: float, most: float
) -> None:
    mean = found(replace(ANY, ends=ends), VISITS)

    assert abs(mean.bias) <= most
    assert mean.counted == pytest.approx(ends, abs=0.05)
    assert mean.incomplete > 1


def test_pods_that_cannot_know_the_whole_of_a_conversation_count_none_and_say_so() -> None:
    mean = found(replace(ANY, brings=False), VISITS)

    assert mean.counted == 0
    assert mean.incomplete > 1


def test_one_score_of_each_conversation_brings_one_false_alarm_in_thirty_days_and_turns_bring_many() -> None:
    by_turns, one_each = (false_alarms(10.0, 2, observed) for observed in (turns, conversations))

    assert by_turns > 10
    assert one_each <= 1


def test_what_is_simulated_of_conversations_of_five_is_what_the_table_tells() -> None:
    good, at = of_five(1.0, 100, 0.85, np.random.default_rng(0))
    subject, result = table(idle_ns=IDLE_MINUTES * MINUTE), []

    turned = sorted((int(end * MINUTE), which, n) for (which, n), end in np.ndenumerate(at))
    for now_ns, which, n in [*turned, LATE]:
        while (due_ns := subject.next_due_ns()) is not None and due_ns <= now_ns:
            result += [due_ns / MINUTE for _ in subject.due(due_ns)]
        subject.take(turn(n, alone(f"q{n}", "a"), id=f"{which}"), now_ns)

    simulated, _ = next(conversations(good, at))
    assert result == pytest.approx(sorted(simulated))
