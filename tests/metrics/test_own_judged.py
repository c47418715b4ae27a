"""A user's own metric that asks a judge: with public names alone, all that the built-in ones have, and in five lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from doctest import DocTestFinder, DocTestRunner
from typing import Any

import pytest
from pydantic import BaseModel

from spanscore import ConfigurationError, SingleTurnSample
from spanscore.metrics import BINARY, AspectCritic, BinaryAnswer, Example, Finding, JudgedMetric, Rubrics, Step, create
from spanscore.metrics.catalog.cost import cost_of
from spanscore.metrics.catalog.registry import built_ins
from spanscore.testing import ScriptedJudge

SAMPLE = SingleTurnSample(user_input="And of Spain?", response="Madrid, with pleasure.")


class Tone(BaseModel):
    reason: str
    verdict: BinaryAnswer


JUDGE_TONE = Step("judge_tone", "Is the response polite? Give a reason, then 1 for yes or 0 for no.", Tone)


class Polite(JudgedMetric):
    name = "polite"
    scale = BINARY
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("response",)}
    questions = (JUDGE_TONE,)

    async def measure(self, sample: SingleTurnSample) -> Finding:
        tone = await self.ask(JUDGE_TONE, {"response": sample.response})
        return Finding(value=tone.verdict, explanation=tone.reason)


def scripted() -> ScriptedJudge:
    return ScriptedJudge([{"step": "judge_tone", "output": {"reason": "It is glad.", "verdict": 1}}])


def test_it_asks_its_question_and_what_the_judge_says_is_its_score() -> None:
    judge = scripted()

    score = Polite(judge).score_sync(SAMPLE)

    assert (score.metric, score.value, score.label, score.explanation) == ("polite", 1.0, "pass", "It is glad.")
    assert [dict(prompt.evidence) for prompt in judge.calls] == [{"response": "Madrid, with pleasure."}]
    assert len(score.usage.calls) == 1


def test_a_file_names_it_and_gives_it_the_judge_and_words_of_its_own() -> None:
    words = {"judge_tone": {"instruction": "Would a butler say so?"}}

    made = create("tests.metrics.test_own_judged:Polite", judge=scripted(), name="butler", pass_at=1.0, prompts=words)

    assert made.score_sync(SAMPLE).metric == "butler"
    assert made.version != Polite(scripted()).version


class Counted(Polite):
    questions = (replace(JUDGE_TONE, examples=(Example({"response": "Go away."}, {"reason": "Rude.", "verdict": 0}),)),)


def test_what_a_score_costs_is_counted_by_the_answer_of_its_example() -> None:
    cost = cost_of("tests.metrics.test_own_judged:Counted")

    assert (cost.calls, cost.input_tokens > 20, cost.output_tokens > 5) == (1, True, True)
    with pytest.raises(ConfigurationError, match="no answer to judge_tone: give that Step an example"):
        cost_of("tests.metrics.test_own_judged:Polite")


def test_what_only_helps_to_write_one_is_no_built_in() -> None:
    assert "JudgedMetric" not in {kind.__name__ for kind in built_ins().values()}


@pytest.mark.parametrize("metric", [AspectCritic, Rubrics])
def test_a_metric_on_ones_own_words_takes_five_lines(metric: Any) -> None:
    (example,) = DocTestFinder(recurse=False).find(metric, globs={})

    result = DocTestRunner(verbose=False).run(example, out=lambda _: None)

    assert sum(step.source.count("\n") for step in example.examples) <= 5
    assert (result.attempted, result.failed) == (len(example.examples), 0)
