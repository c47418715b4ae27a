"""``assert_quality``: passes good answers, and shows the worst of others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spanscore.errors import ConfigurationError
from spanscore.metrics import Faithfulness
from spanscore.stored.evaluation import evaluate_sync
from spanscore.testing import ScriptedJudge, assert_quality

ROOT = Path(__file__).parents[2]
FACT = "The ferry to Oslo sails at nine."


def sample(number, response=FACT):
    return {"id": f"case-{number}", "user_input": "When?", "retrieved_contexts": [FACT], "response": response}


GOOD = [sample(number) for number in range(20)]
BAD = [sample(number, "It sank in 1912." if number < 6 else FACT) for number in range(20)]


def test_good_answers_pass_and_their_result_is_returned():
    result = assert_quality(GOOD, [Faithfulness("lexical")], least={"faithfulness": 0.9})

    assert result.mean("faithfulness") == 1.0


def test_a_failure_shows_the_worst_cases():
    with pytest.raises(AssertionError, match=r"mean quality 0\.700 is below 0\.9") as failed:
        assert_quality(BAD, [Faithfulness("lexical")], least={"faithfulness": 0.9})

    assert "case-0: 0.00" in str(failed.value)


def test_the_same_cases_are_compared_with_a_baseline(tmp_path):
    baseline = tmp_path / "base.jsonl"
    evaluate_sync(GOOD, [Faithfulness("lexical")]).to_jsonl(baseline)

    assert_quality(GOOD, [Faithfulness("lexical")], baseline=baseline, max_drop={"faithfulness": 0.03})
    with pytest.raises(AssertionError, match=r"fell by 0\.300"):
        assert_quality(BAD, [Faithfulness("lexical")], baseline=baseline, max_drop={"faithfulness": 0.03})


def test_a_judge_that_fails_is_no_verdict():
    with pytest.raises(AssertionError, match=r"20 cases \(100%\) have no score: judge_error 20"):
        assert_quality(GOOD, [Faithfulness(ScriptedJudge())], least={"faithfulness": 0.9})


def test_answers_that_are_missing_are_no_pass():
    samples = [*GOOD[:2], *({**one, "response": None} for one in GOOD[2:])]

    with pytest.raises(AssertionError, match="missing_field 18") as failed:
        assert_quality(samples, [Faithfulness("lexical")], least={"faithfulness": 0.9})

    assert "applies_when" in str(failed.value)


def test_a_test_that_holds_nothing_is_refused():
    with pytest.raises(ConfigurationError, match="a bound"):
        assert_quality(GOOD, [Faithfulness("lexical")])


@pytest.mark.parametrize("bound", [float("nan"), -0.1, 1.1, float("inf"), "0.9"])
@pytest.mark.parametrize("name", ["least", "max_drop", "max_unscored"])
def test_a_bound_that_is_no_number_from_0_to_1_is_refused_before_anything_is_scored(name, bound):
    bounds = {"least": {"faithfulness": 0.9}, name: bound if name == "max_unscored" else {"faithfulness": bound}}
    judge = ScriptedJudge()

    with pytest.raises(ConfigurationError, match=rf"{name}.* is {bound!r}; write a number from 0 to 1"):
        assert_quality(GOOD, [Faithfulness(judge)], **bounds)

    assert judge.calls == []


def test_the_example_passes():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/test_quality.py"]

    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stdout + run.stderr
