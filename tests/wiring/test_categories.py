"""A scorer with categories: spans, status, collected cases, and settings that need a quality."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.live import a_line

from spanscore import ConfigurationError, OnlineScorer, SingleTurnSample, metric, semconv
from spanscore.config import Collect, Rule, RuleCondition, Sampling

QUESTIONS = ["Hello", "Hello again", "When does it leave?"]


@metric(requires=["user_input"], categories=["greeting", "question", "other"])
def opening(sample: Any) -> str:
    return "greeting" if sample.user_input.startswith("Hello") else "question"


def test_the_word_is_on_the_units_span_and_its_share_in_the_status() -> None:
    with a_line(opening) as (scorer, trace):
        for question in QUESTIONS:
            scorer.submit(SingleTurnSample(user_input=question, response="Yes."))
        assert scorer.flush(5)
        status = scorer.status()

    words = [span.attributes.get(semconv.EVALUATION_SCORE_LABEL) for span in trace.evaluations]
    assert sorted(words) == ["greeting", "greeting", "question"]
    assert {word: share[0] for word, share in status.shares["opening"].items()} == pytest.approx(
        {"greeting": 2 / 3, "question": 1 / 3, "other": 0.0}
    )
    assert "opening: greeting 67 %" in str(status)


def test_the_units_of_a_category_become_cases(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    with a_line(opening, collect=Collect(when=["opening=question"], out=file)) as (scorer, _):
        for question in QUESTIONS:
            scorer.submit(SingleTurnSample(user_input=question, response="Yes."))
        assert scorer.flush(5)

    (case,) = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert (case["user_input"], case["scores"]["opening"]["value"]) == ("When does it leave?", "question")


def test_a_sampling_rule_needs_a_quality() -> None:
    rule = Rule(rate=1.0, name="low", when=RuleCondition(score={"metric": "opening", "below": 0.5}))

    with pytest.raises(ConfigurationError, match="whose categories have no quality; name the bad ones in bad"):
        OnlineScorer([opening], sampling=Sampling(rates={"opening": 1.0}, rules=[rule]))
