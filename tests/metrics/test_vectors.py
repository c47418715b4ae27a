"""Every reference case of every built-in metric: reproduced, or deviating exactly as the table of quirks lists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pydantic import ValidationError
from tests.metrics.quirks import check_of
from tests.metrics.quirks.answers import VOTES
from tests.metrics.vectors import FUNCTIONS, VECTORS, cases_of, content_of, run

from spanscore import metrics
from spanscore.core.sample import MultiTurnSample
from spanscore.core.score import Outcome
from spanscore.errors import ConfigurationError, SampleError
from spanscore.judges.ask import REPAIR_STEP
from spanscore.metrics.catalog.registry import built_ins, own_name
from spanscore.testing import ScriptedJudge

TOLERANCE = 1e-6
CRITICS = frozenset({"aspect_critic", "rubrics_score", "simple_criteria_score"})
CONTEXTS = frozenset({"retrieved_contexts", "reference_contexts"})
"""Fields that ragas shows to the judge of a critic, and spanscore only if ``fields`` names them."""
WORDLESS = {
    "bleu_score": ("both_empty-",),
    "chrf_score": ("both_empty-",),
    "rouge_score": ("both_empty-", *(f"unicode-{number:02}" for number in (8, 9, 10, 12, 13, 16))),
}
"""Metric → cases with two texts without a word for it: ragas gives 0, and spanscore has no value."""
CHATTY = ("nv_accuracy", "nv_context_relevance", "nv_response_groundedness")
UNTAGGED = {
    "topic_adherence-random-13": ["Q-TA-REFUSE"],
    "ensember-random-08": ["Q-TIE"],
    **{f"{name}-chatty-01": ["Q-DIGIT"] for name in CHATTY},
}
"""Its one topic was outside and refused, as in all_off_topic_refused; its four voters are divided on one row, as in tie: the
same cases in all but the tag. In the last, a digit in a sentence is read, as in digit_search."""

REMOTE_SCORING = {"Q-RS-NAN", "Q-RS-NEG", "Q-TA-MODE"}
"""Asserted in the tests below: the first two for ``ragas_score``, the last on creation of a metric."""


def cases() -> Iterator[Any]:
    for name in sorted(built_ins()):
        content = content_of(name)
        for case in content["cases"]:
            yield pytest.param(name, _tolerance(content), case, id=case["id"])


def test_every_case_of_every_file_is_run_once() -> None:
    files = {file.stem: json.loads(file.read_text("utf-8")) for file in VECTORS.glob("*.json")}
    run = [case.id for case in cases()] + [case["id"] for function in FUNCTIONS for case in cases_of(function)]

    assert {own_name(name) for name in files} <= {*built_ins(), *FUNCTIONS}
    assert all(content["metric"] == name for name, content in files.items())
    assert sorted(run) == sorted(case["id"] for content in files.values() for case in content["cases"])
    assert len(run) == len(set(run)) == 1418


def test_every_quirk_of_the_reference_is_asserted_by_name() -> None:
    listed = set(re.findall(r"^\| (Q-[A-Z0-9-]+) \|", (VECTORS / "README.md").read_text("utf-8"), re.MULTILINE))
    held = [*cases(), *(pytest.param(name, 0.0, case) for name in FUNCTIONS for case in cases_of(name))]
    shown = {quirk for param in held for quirk in param.values[2].get("quirk", [])}

    assert listed == shown
    for name, _, case in (param.values for param in held):
        for quirk in case.get("quirk", []):
            assert quirk in REMOTE_SCORING or quirk in VOTES or check_of(name, quirk)


def _tolerance(content: dict[str, Any]) -> float:
    """Half a unit of the last decimal, if ragas rounds and spanscore does not."""
    decimals = content.get("ragas_rounds_to_decimals")
    return TOLERANCE if decimals is None else 0.5 * 10.0**-decimals + TOLERANCE


@pytest.mark.parametrize(("name", "tolerance", "case"), list(cases()))
def test_a_reference_case_comes_out_as_it_should(name: str, tolerance: float, case: dict[str, Any]) -> None:
    judge = ScriptedJudge(case["judge"])
    quirks = case.get("quirk") or UNTAGGED.get(case["id"], [])
    if refusal := _refusal(case):
        with pytest.raises(refusal):
            run(name, case, judge)
        return

    score = run(name, case, judge)

    if case["id"].startswith(tuple(f"{name}-{wordless}" for wordless in WORDLESS.get(name, ()))):
        assert (score.value, score.outcome, case["score"]) == (None, Outcome.NO_VALUE, 0)
        return
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

    run(name, case, judge)

    left_out = CONTEXTS if name in CRITICS else frozenset[str]()
    expected = [
        (call["step"], {field: value for field, value in call["input"].items() if field not in left_out})
        for call in case["judge"]
        if "input" in call
    ]
    asked = [
        (call.step, _as_asked_there(name, case, call.evidence)) for call in judge.calls if call.step != REPAIR_STEP
    ]
    assert _in_order(asked) == _in_order(expected) or case["tag"] == "fewer_generations"


@pytest.mark.filterwarnings("ignore:majority_vote")
@pytest.mark.parametrize("case", cases_of("ensember"), ids=lambda case: case["id"])
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
@pytest.mark.parametrize("case", cases_of("ragas_score"), ids=lambda case: case["id"])
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
    """An invalid metric, or an invalid sample, is rejected before there is a score. A whole number is a valid beta."""
    if case["tag"] == "invalid_conversation":
        return ValidationError
    wrong = case["tag"] == "invalid_params" and "beta" not in case["params"]
    return ConfigurationError if wrong or "Q-TA-MODE" in case.get("quirk", []) else None


def _as_asked_there(name: str, case: dict[str, Any], evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Return evidence as the reference has it: a conversation as a text, and an instance rubric's contexts in the question."""
    there = dict(evidence)
    for key in {"user_input", "workflow"} & {key for key, value in there.items() if isinstance(value, list)}:
        sample = MultiTurnSample.model_validate(case["sample"])
        assert there[key] == sample.messages()
        there[key] = sample.pretty()
    if name == "instance_rubrics" and (contexts := there.pop("retrieved_contexts", None)):
        joined = "\n".join(contexts)
        there["user_input"] = f"{there.get('user_input', '')} answer using context: {joined}".strip()
    return there


def _in_order(calls: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    return sorted((step, json.dumps(evidence, sort_keys=True)) for step, evidence in calls)
