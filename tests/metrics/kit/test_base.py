"""A measurement, or a failure, becomes a Score; no exception is raised."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from tests.judges.models import Answers

from spanscore.core import loop
from spanscore.core.sample import MultiTurnSample, SingleTurnSample
from spanscore.core.score import Outcome, Scale, Score
from spanscore.errors import JudgeError, JudgeTimeout, JudgeUnavailable, SpanscoreError
from spanscore.judges import recorded_calls
from spanscore.metrics import BaseMetric, Faithfulness, Finding
from spanscore.testing import ScriptedJudge

SAMPLE = SingleTurnSample(user_input="q", response="a", retrieved_contexts=["c"])
STATEMENTS = {"step": "extract_statements", "output": {"statements": ["one", "two"]}}
VERDICTS = {
    "step": "verify_statements",
    "output": {"statements": [{"statement": "one", "verdict": 1}, {"statement": "two", "reason": "no", "verdict": 0}]},
}


class Measuring(BaseMetric):
    """Returns or raises the given value."""

    name = "measuring"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("response",)}

    def __init__(self, result: Any = 0.5, *, scale: Scale | None = None, weight: float = 1.0) -> None:
        self._result = result
        self.weight = weight
        if scale:
            self.scale = scale

    async def measure(self, sample: Any) -> Any:
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result


def test_a_score_carries_value_quality_label_version_series_and_usage() -> None:
    score = Faithfulness(ScriptedJudge([STATEMENTS, VERDICTS])).score_sync(SAMPLE)

    assert (score.metric, score.value, score.quality, score.label) == ("faithfulness", 0.5, 0.5, "pass")
    assert score.explanation == "1 of 2 statements are supported.\nNot supported: two (no)"
    assert score.evaluator_version == f"{score.version}/scripted/1"
    assert score.judge_model == "scripted"
    assert [call.step for call in score.usage.calls] == ["extract_statements", "verify_statements"]


@pytest.mark.parametrize(
    ("result", "value"), [(1, 1.0), (True, 1.0), (0.25, 0.25), (Finding(value=0.75), 0.75), (1 + 1e-12, 1.0)]
)
def test_a_number_is_a_value(result: Any, value: float) -> None:
    assert Measuring(result).score_sync(SAMPLE).value == value


@pytest.mark.parametrize(
    "result", [None, float("nan"), Finding(value=None, reason="nothing"), Finding(value=float("nan"))]
)
def test_no_number_is_undefined(result: Any) -> None:
    score = Measuring(result).score_sync(SAMPLE)

    assert (score.value, score.outcome) == (None, Outcome.NO_VALUE)
    assert score.reason


def test_a_users_own_score_is_passed_on_under_the_metrics_name() -> None:
    score = Measuring(Score(metric="?", version="?", outcome=Outcome.SCORED, value=0.9, quality=0.9)).score_sync(SAMPLE)

    assert (score.metric, score.version, score.value) == ("measuring", Measuring().version, 0.9)


@pytest.mark.parametrize("result", [1.5, -0.1, float("inf"), float("-inf")])
def test_a_value_outside_its_range_is_an_error_and_no_value(result: float) -> None:
    score = Measuring(result).score_sync(SAMPLE)

    assert (score.value, score.outcome, score.error_type) == (None, Outcome.METRIC_ERROR, "out_of_range")


def test_an_open_scale_has_values_and_no_quality() -> None:
    score = Measuring(17.0, scale=Scale(kind="ordinal", range=None)).score_sync(SAMPLE)

    assert (score.value, score.quality, score.label) == (17.0, None, None)


@pytest.mark.parametrize(
    ("raised", "outcome", "error_type"),
    [
        (JudgeError("m", error_type="http_401"), Outcome.JUDGE_ERROR, "http_401"),
        (JudgeUnavailable("m"), Outcome.JUDGE_ERROR, "unavailable"),
        (JudgeTimeout("m"), Outcome.TIMEOUT, "timeout"),
        (ZeroDivisionError("SECRET"), Outcome.METRIC_ERROR, "ZeroDivisionError"),
        (RecursionError("SECRET"), Outcome.METRIC_ERROR, "RecursionError"),
    ],
)
def test_what_is_raised_becomes_an_outcome(raised: Exception, outcome: Outcome, error_type: str) -> None:
    score = Measuring(raised).score_sync(SAMPLE)

    assert (score.value, score.outcome, score.error_type) == (None, outcome, error_type)
    assert "SECRET" not in (score.reason or "")


async def test_a_cancellation_is_passed_on() -> None:
    with pytest.raises(asyncio.CancelledError):
        await Measuring(asyncio.CancelledError()).score(SAMPLE)


def test_a_missing_field_is_named_before_the_judge_is_paid() -> None:
    judge = ScriptedJudge([STATEMENTS])

    score = Faithfulness(judge).score_sync(SingleTurnSample(user_input="q", response="a"))

    assert (score.outcome, score.error_type) == (Outcome.MISSING_FIELD, None)
    assert score.reason == "faithfulness needs retrieved_contexts, which the sample does not have"
    assert judge.calls == []


def test_an_empty_context_list_is_not_missing() -> None:
    sample = SingleTurnSample(user_input="q", response="a", retrieved_contexts=[])

    assert Faithfulness(ScriptedJudge([STATEMENTS, VERDICTS])).score_sync(sample).value == 0.5


def test_a_conversation_is_no_sample_for_a_single_turn_metric() -> None:
    score = Measuring().score_sync(MultiTurnSample(user_input=[]))

    assert (score.outcome, score.reason) == (
        Outcome.MISSING_FIELD,
        "measuring needs a single-turn sample, not a multi_turn one",
    )


def test_calls_paid_before_a_failure_are_on_the_score() -> None:
    score = Faithfulness(ScriptedJudge([STATEMENTS])).score_sync(SAMPLE)

    assert score.outcome is Outcome.JUDGE_ERROR
    assert [(c.step, c.error_type) for c in score.usage.calls] == [
        ("extract_statements", None),
        ("verify_statements", "script_ended"),
    ]


async def test_whoever_cuts_a_score_short_sees_what_was_paid() -> None:
    class Hanging(Faithfulness):
        async def measure(self, sample: SingleTurnSample) -> Finding:
            await super().measure(sample)
            await asyncio.Event().wait()
            raise AssertionError

    with recorded_calls() as calls:
        task = asyncio.ensure_future(Hanging(ScriptedJudge([STATEMENTS, VERDICTS])).score(SAMPLE))
        await asyncio.wait({task}, timeout=0.2)
        task.cancel()

    assert [call.step for call in calls] == ["extract_statements", "verify_statements"]


async def test_judges_are_asked_on_the_one_loop_whoever_asks() -> None:
    threads: set[str] = set()

    class Where(Answers):
        async def ask(self, prompt: Any) -> Any:
            threads.add(threading.current_thread().name)
            return await super().ask(prompt)

    metric = Faithfulness(Where('{"statements": []}'))
    await metric.score(SAMPLE)
    await asyncio.to_thread(metric.score_sync, SAMPLE)
    await asyncio.wrap_future(loop.submit(metric.score(SAMPLE)))

    assert threads == {"spanscore-loop"}


def test_a_host_that_debugs_its_loops_gets_no_warning_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """In debug mode asyncio logs a line about steps of a tenth of a second, with the beginnings of their arguments."""
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")

    async def debugs() -> bool:
        return asyncio.get_running_loop().get_debug()

    assert not loop.LoopThread("debugged-loop", pool="debugged").submit(debugs()).result(10)


async def test_score_sync_works_inside_a_running_loop() -> None:
    assert Measuring(0.5).score_sync(SAMPLE).value == 0.5


def test_score_sync_on_our_own_loop_says_what_to_do_instead() -> None:
    async def wrong() -> None:
        Measuring().score_sync(SAMPLE)

    with pytest.raises(SpanscoreError, match=r"await score\(\)"):
        loop.run(wrong())


def test_a_cpu_bound_metric_computes_in_the_callers_thread() -> None:
    class Computing(Measuring):
        cpu_bound = True

        async def measure(self, sample: Any) -> Any:
            return float(threading.current_thread() is threading.main_thread())

    assert Computing().score_sync(SAMPLE).value == 1.0


def test_public_attributes_are_parameters_and_change_the_version() -> None:
    assert Measuring(weight=1.0).version == Measuring(0.9, weight=1.0).version
    assert Measuring(weight=1.0).version != Measuring(weight=2.0).version


def test_an_object_among_the_parameters_does_not_make_the_version_depend_on_the_process() -> None:
    assert Measuring(weight=object()).version == Measuring(weight=object()).version  # type: ignore[arg-type]
