"""A failing metric of the user: its score names the line, and never the error's text."""

from __future__ import annotations

import json
import logging
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.live import a_trace, run_rag

from spanscore import OnlineScorer, SingleTurnSample, metric
from spanscore.core.score import UNIT_INTERVAL
from spanscore.metrics import BaseMetric

SAMPLE = SingleTurnSample(user_input="q", response="a secret")


@metric
def divides(sample: Any) -> float:
    return len(sample.response) / 0


@metric
def asks_a_library(sample: Any) -> float:
    return float(json.loads(sample.response))


class Bare:
    """Follows the protocol by itself."""

    name, version, evaluator_version, cpu_bound, scale = "bare", "1", "1/none/1", False, UNIT_INTERVAL
    requires = {"single_turn": ()}  # noqa: RUF012

    async def score(self, sample: Any) -> Any:
        raise LookupError(sample.response)


def line_of(text: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip().startswith(text))


@pytest.mark.parametrize(
    ("failing", "error", "line"),
    [(divides, "ZeroDivisionError", "return len("), (asks_a_library, "JSONDecodeError", "return float(json")],
)
async def test_the_reason_names_class_file_and_line_of_the_users_own(failing: Any, error: str, line: str) -> None:
    score = await failing.score(SAMPLE)

    assert (score.outcome, score.error_type) == ("metric_error", error)
    assert score.reason == f"{failing.name} raised {error} at test_own_failures.py:{line_of(line)}"


@pytest.mark.parametrize("given", ["0.5", "good", b"1", [1.0], {}, 1j])
async def test_what_is_no_number_is_refused_by_a_sentence_that_says_what_is_one(given: Any) -> None:
    score = await metric(name="own")(lambda sample: given).score(SAMPLE)

    assert (score.outcome, score.error_type) == ("metric_error", "no_number")
    assert score.reason == (
        f"own gave {type(given).__name__}; a metric gives a number, a bool, None, a Finding or a Score"
        + ("; a metric that gives a text needs categories=[…]" if isinstance(given, str) else "")
    )


@pytest.mark.parametrize("given", [1, True, 0.5, Decimal("0.5")])
async def test_any_number_is_a_value(given: Any) -> None:
    assert (await metric(name="own")(lambda sample: given).score(SAMPLE)).value == float(given)


def test_the_log_and_the_status_name_it_and_quote_nothing(caplog: pytest.LogCaptureFixture) -> None:
    trace = a_trace()
    with (
        caplog.at_level(logging.WARNING, "spanscore"),
        OnlineScorer([divides, Bare()], tracer_provider=trace.provider) as scorer,
    ):
        run_rag(scorer, answer="a secret")
        status = str(scorer.status())

    place = "test_own_failures.py:" + str(line_of("return len("))
    assert f"divides raised ZeroDivisionError at {place}" in caplog.text
    assert "ZeroDivisionError at test_own_failures.py" in status
    assert "LookupError at test_own_failures.py" in status
    assert "secret" not in caplog.text + status + str([dict(span.attributes) for span in trace.spans])


def test_a_class_may_be_one_too() -> None:
    class Own(BaseMetric):
        name = "own"
        requires = {"single_turn": ()}  # noqa: RUF012

        async def measure(self, sample: Any) -> Any:
            return "yes"

    score = Own().score_sync(SAMPLE)

    assert score.reason is not None
    assert score.reason.startswith("own gave str;")
