"""Every reference case of every built-in metric: reproduced, or deviating exactly as METRICS.md section 5 recommends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.metrics.quirks import check_of
from tests.metrics.quirks.answers import VOTES

from spanscore import metrics
from spanscore.errors import ConfigurationError, SampleError
from spanscore.metrics.registry import BUILT_IN
from spanscore.model.sample import MultiTurnSample, Sample, SingleTurnSample
from spanscore.model.score import Score
from spanscore.testing import ScriptedEmbeddings, ScriptedJudge, build_metric

VECTORS = Path(__file__).parents[3] / "shared" / "vectors"

TOLERANCE = 1e-6
UNTAGGED = {"topic_adherence-random-13": ["Q-TA-REFUSE"], "ensember-random-08": ["Q-TIE"]}
"""Its one topic was outside and refused, as in all_off_topic_refused; its four voters are divided on one row, as in tie: the
same cases in all but the tag."""

pytestmark = pytest.mark.skipif(not VECTORS.is_dir(), reason="the reference vectors (../shared/vectors) are not here")


def cases() -> Iterator[Any]:
    for name in sorted(BUILT_IN):
        file = VECTORS / f"{name}.json"
        content = json.loads(file.read_text("utf-8")) if file.exists() else {"cases": []}
        for case in content["cases"]:
            yield pytest.param(name, _tolerance(content), case, id=case["id"])


def _cases_of(function: str) -> list[dict[str, Any]]:
    file = VECTORS / f"{function}.json"
    return list(json.loads(file.read_text("utf-8"))["cases"]) if file.exists() else []


def _tolerance(content: dict[str, Any]) -> float:
    """Where ragas rounds and we do not, half a unit of its last decimal."""
    decimals = content.get("ragas_rounds_to_decimals")
    return TOLERANCE if decimals is None else 0.5 * 10.0**-decimals + TOLERANCE


@pytest.mark.parametrize(("name", "tolerance", "case"), list(cases()))
def test_a_reference_case_comes_out_as_it_should(name: str, tolerance: float, case: dict[str, Any]) -> None:
    judge = ScriptedJudge(case["judge"])
    quirks = case.get("quirk") or UNTAGGED.get(case["id"], [])
    if refusal := _refusal(case):
        with pytest.raises(refusal):
            _run(name, case, judge)
        return

    score = _run(name, case, judge)

    for quirk in quirks:
        check_of(name, quirk)(case, score, judge)
    if not quirks:
        assert score.value == (None if case["score"] is None else pytest.approx(case["score"], abs=tolerance))


@pytest.mark.parametrize(("name", "tolerance", "case"), list(cases()))
def test_the_judge_is_asked_with_the_evidence_of_the_reference(
    name: str, tolerance: float, case: dict[str, Any]
) -> None:
    judge = ScriptedJudge(case["judge"])
    if case.get("quirk") or case.get("via") == "votes" or case.get("error"):
        return  # other questions are asked, or more, or fewer
    if case["judge"] and not any("input" in call for call in case["judge"]):
        return  # the reference asks in free text: there are no variables to compare

    _run(name, case, judge)

    expected = [(call["step"], call["input"]) for call in case["judge"] if "input" in call]
    asked = [(prompt.step, dict(prompt.evidence)) for prompt in judge.calls if prompt.step != "fix_output_format"]
    assert _in_order(asked) == _in_order(expected) or case["tag"] == "fewer_generations"


@pytest.mark.filterwarnings("ignore:majority_vote")
@pytest.mark.parametrize("case", _cases_of("ensember"), ids=lambda case: case["id"])
def test_a_vote_comes_out_as_it_should(case: dict[str, Any]) -> None:
    if case.get("error"):
        with pytest.raises(IndexError, match="no voter"):
            metrics.majority_vote(case["sample"]["inputs"], **case["params"])
        return

    rows = metrics.majority_vote(case["sample"]["inputs"], **case["params"])

    quirks = case.get("quirk") or UNTAGGED.get(case["id"], [])
    for quirk in quirks:
        VOTES[quirk](case, rows)
    if not quirks:
        assert rows == case["score"]


@pytest.mark.filterwarnings("ignore:ragas_score")
@pytest.mark.parametrize("case", _cases_of("ragas_score"), ids=lambda case: case["id"])
def test_a_ragas_score_comes_out_as_it_should(case: dict[str, Any]) -> None:
    values, binary = case["sample"]["scores"], case["sample"]["binary_columns"]
    if "Q-RS-NEG" in case.get("quirk", []):
        with pytest.raises(SampleError, match="between 0 and 1"):
            metrics.ragas_score(values, binary_columns=binary)
        return

    score = metrics.ragas_score(values, binary_columns=binary)

    if "Q-RS-NAN" in case.get("quirk", []):
        means = [sum(known) / len(known) for known in ([v for v in c if v is not None] for c in values.values())]
        assert score == pytest.approx(len(means) / sum(1 / mean for mean in means))
    else:
        assert score == (None if case["score"] is None else pytest.approx(case["score"], abs=TOLERANCE))


def _refusal(case: dict[str, Any]) -> type[Exception] | None:
    """What is no metric, or no sample, is refused before there is a score. A whole number is a beta like any other."""
    if case["tag"] == "invalid_conversation":
        return ValidationError
    wrong = case["tag"] == "invalid_params" and "beta" not in case["params"]
    return ConfigurationError if wrong or "Q-TA-MODE" in case.get("quirk", []) else None


def _run(name: str, case: dict[str, Any], judge: ScriptedJudge) -> Score:
    embeddings = ScriptedEmbeddings(case.get("embeddings") or {})
    metric: Any = build_metric(name, judge=judge, embeddings=embeddings, **case["params"])
    score: Score = metric.score_sync(_sample(case["sample"]))
    return score


def _sample(fields: dict[str, Any]) -> Sample:
    kind = MultiTurnSample if isinstance(fields.get("user_input"), list) else SingleTurnSample
    return kind.model_validate(fields)


def _in_order(calls: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    return sorted((step, json.dumps(evidence, sort_keys=True)) for step, evidence in calls)
