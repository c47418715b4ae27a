"""A judge is taught by human labels, and changed only if that is shown to help."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from benchmarks.fitting import cell
from tests.metrics.kit.classroom import HABIT, Pupil, labels, polite

from spanscore.core.prompt import Example, Prompt, Reply
from spanscore.core.sample import Annotation, SingleTurnSample
from spanscore.core.score import Outcome
from spanscore.errors import ConfigurationError, JudgeError
from spanscore.metrics import (
    AspectCritic,
    ContextPrecision,
    ContextRelevance,
    Faithfulness,
    InstanceRubrics,
    JudgedMetric,
    Rubrics,
)
from spanscore.metrics.kit.tuned_prompts import TuningSample
from spanscore.metrics.kit.tuning import FittingProgress, agreements_in
from spanscore.testing import make_score


def test_a_judge_that_can_be_taught_is_changed() -> None:
    fitted = polite(Pupil()).fit_sync(labels(150))

    assert fitted.kept
    assert fitted.tested is not None
    assert (fitted.tested.after, fitted.tested.labels) == (52, 52)
    assert len(fitted.prompts["critique"]["examples"]) == 4
    assert str(fitted).startswith("polite: kept. On 52 held-out labels, the chosen candidate was right on 52")


def test_a_judge_that_cannot_be_taught_stays_as_it_is() -> None:
    metric = polite(Pupil(learns=False))

    fitted = metric.fit_sync(labels(150))

    assert (fitted.kept, fitted.metric, fitted.prompts, fitted.evaluator_version) == (
        False,
        metric,
        {},
        metric.evaluator_version,
    )
    assert "None of 16 candidates was right more often" in str(fitted)


def test_a_fitted_metric_is_a_new_series_and_the_one_that_was_fitted_is_as_before() -> None:
    metric = polite(Pupil())
    before = metric.evaluator_version

    fitted = metric.fit_sync(labels(150))

    assert (
        fitted.metric.evaluator_version
        == fitted.evaluator_version
        != before
        == metric.evaluator_version
        == fitted.evaluator_version_before
    )
    assert metric.steps["critique"].examples == ()


def test_labels_may_be_records_and_their_faults_are_named() -> None:
    given = [{**one.sample.model_dump(), "human": one.human} for one in labels(40) if one.sample]

    fitted = polite(Pupil()).fit_sync(given, candidates=1)

    assert sum(fitted.labels) == 40
    with pytest.raises(ConfigurationError, match="the labels: 1 wrong line\n  line 2: no such key: 'humam'"):
        polite(Pupil()).fit_sync([given[0], {"humam": True}])


async def test_it_can_be_awaited_on_any_loop() -> None:
    fitted = await polite(Pupil()).fit(labels(60))

    assert fitted.labels == (18, 21, 21)


def test_the_third_part_is_judged_once_and_not_shown_before() -> None:
    judge = Pupil()

    fitted = polite(judge).fit_sync(labels(150), candidates=4)

    first, second, third = fitted.labels
    assert len(judge.asked) == fitted.judge_calls == 5 * second + 2 * third
    last = {str(prompt.evidence) for prompt in judge.asked[-2 * third :]}
    assert last.isdisjoint({str(prompt.evidence) for prompt in judge.asked[: -2 * third]})
    assert last.isdisjoint({str(one.evidence) for prompt in judge.asked for one in prompt.examples})
    assert first + second + third == 150


def test_a_gain_that_is_not_shown_says_how_many_labels_would_show_it() -> None:
    fitted = polite(Pupil()).fit_sync(labels(40, share=0.12, seed=4))

    assert not fitted.kept
    assert "not kept, unchanged" in str(fitted)
    assert (
        "2 gained, 0 lost, p = 0.25; at most 0.05 is required). About 140 labels in all would show such a gain"
        in str(fitted)
    )
    assert any("40 labels are few" in note for note in fitted.notes)


class _Reluctant(Pupil):
    """Gives no answer if it is shown some demonstrations."""

    def __init__(self, *silent: int) -> None:
        super().__init__()
        self.silent, self.sets = silent, list[str]()

    async def ask(self, prompt: Prompt) -> Reply:
        shown = str(prompt.examples)
        if prompt.examples and shown not in self.sets:
            self.sets.append(shown)
        if prompt.examples and self.sets.index(shown) in self.silent:
            raise JudgeError("the prompt is too long")
        return await super().ask(prompt)


def test_what_was_not_judged_is_reported() -> None:
    fitted = polite(_Reluctant(1, 2)).fit_sync(labels(40), candidates=4)

    silent = 2 * fitted.labels[1]
    assert any(note.startswith(f"{silent} of ") and "the prompt is too long" in note for note in fitted.notes)


def test_one_candidate_without_an_answer_does_not_end_the_fit() -> None:
    assert polite(_Reluctant(0)).fit_sync(labels(150)).kept
    with pytest.raises(JudgeError, match="none of 106 labelled samples could be judged: the prompt is too long"):
        polite(_Reluctant(0, 1)).fit_sync(labels(150), candidates=2)


def test_votes_are_as_the_metric_has_them() -> None:
    judge = Pupil()

    polite(judge, strictness=3).fit_sync(labels(40), candidates=1)

    assert {prompt.vote_index for prompt in judge.asked} == {0, 1, 2}


def test_progress_tells_samples_and_judge_calls() -> None:
    reported: list[FittingProgress] = []

    fitted = polite(Pupil()).fit_sync(labels(40), candidates=2, progress=reported.append)

    assert (reported[-1].done, reported[-1].judge_calls) == (reported[-1].total, fitted.judge_calls)
    assert [one.done for one in reported] == [*range(1, len(reported) + 1)]


def test_a_labels_comment_is_the_demonstrations_reason() -> None:
    said = Annotation(name="polite", value=True, comment="It greets.")
    given = [label._replace(label=replace(said, value=label.human)) for label in labels(150)]

    fitted = polite(Pupil()).fit_sync(given)

    shown = fitted.prompts["critique"]["examples"]
    assert {one["output"]["reason"] for one in shown} == {"It greets."}


def test_the_redactor_runs_on_all_that_a_judge_is_shown() -> None:
    judge = Pupil()
    said = Annotation(name="polite", value=True, comment="Says Answer.")
    given = [label._replace(label=said) for label in labels(150)]

    polite(judge).fit_sync(given, redactor=lambda text: text.replace("Answer", "[name]"))

    assert not [prompt for prompt in judge.asked if "Answer" in f"{prompt.evidence}{prompt.examples}"]


def test_a_redactor_that_fails_lets_nothing_out() -> None:
    judge = Pupil()

    with pytest.raises(ConfigurationError, match="line 1: the redactor raised ZeroDivisionError"):
        polite(judge).fit_sync(labels(40), redactor=lambda text: str(1 / 0))

    assert judge.asked == []


def test_labels_of_one_session_stay_together() -> None:
    given = [label._replace(group=f"session {label.line % 30}") for label in labels(150)]
    judge = Pupil()

    fitted = polite(judge).fit_sync(given, candidates=2)

    third = fitted.labels[2]
    sessions = [int(str(prompt.evidence["user_input"])[9:-1]) % 30 for prompt in judge.asked]
    assert set(sessions[-2 * third :]).isdisjoint(sessions[: -2 * third])


def test_labels_without_a_sample_teach_nothing_and_are_reported() -> None:
    given = [*labels(60), *(label._replace(sample=None) for label in labels(5))]

    fitted = polite(Pupil()).fit_sync(given)

    assert sum(fitted.labels) == 60
    assert "5 of 65 labels are left out: the label has no sample" in fitted.notes


def test_an_equal_sample_does_not_teach_and_test_at_once() -> None:
    given = [*labels(60), *(label._replace(line=label.line + 60, group="later") for label in labels(10))]

    fitted = polite(Pupil()).fit_sync(given)

    assert sum(fitted.labels) == 60
    assert any(
        note.startswith("10 of 70 labels are left out: an equal sample comes before it") for note in fitted.notes
    )


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        (Faithfulness, "extract_statements"),
        (ContextPrecision, "judge_context"),
        (ContextRelevance, "judge_relevance_2"),
    ],
)
def test_a_step_that_cannot_be_taught_is_named(kind: type[JudgedMetric], step: str) -> None:
    judge = Pupil()

    with pytest.raises(ConfigurationError, match=f"its step {step} cannot be taught by a label of the whole sample"):
        kind(judge).fit_sync(labels(60))

    assert judge.asked == []


def test_a_grade_is_taught_by_grades_and_by_nothing_else() -> None:
    rubrics = Rubrics(Pupil(), rubrics={"score1_description": "Rude.", "score3_description": "Polite."})

    with pytest.raises(ConfigurationError, match="line 1: the judge gives grades") as refused:
        rubrics.fit_sync(labels(60))
    with pytest.raises(ConfigurationError, match="line 1: 4 is not on the scale, 1 to 3"):
        rubrics.fit_sync([label._replace(human=4.0) for label in labels(60)])

    assert "  and 55 more" in str(refused.value)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (labels(9), {}, "9 labelled samples are too few to fit polite: give 20 or more"),
        ([one._replace(human=True) for one in labels(40)], {}, "all 40 labels are equal"),
        ([one._replace(group="s") for one in labels(40)], {}, "have too few sessions or traces"),
        (labels(40), {"candidates": 0}, "candidates is 0"),
        (labels(40), {"demonstrations": -1}, "demonstrations is -1"),
        (labels(40), {"demonstrations": 0}, "nothing to try"),
    ],
)
def test_what_cannot_be_fitted_is_refused_before_anybody_is_asked(given: Any, options: Any, message: str) -> None:
    judge = Pupil()

    with pytest.raises(ConfigurationError, match=message):
        polite(judge).fit_sync(given, **options)

    assert judge.asked == []


def test_the_offline_judge_is_not_taught() -> None:
    with pytest.raises(ConfigurationError, match="the offline judge reads no instruction and no example"):
        AspectCritic("lexical", definition="The response is polite.").fit_sync(labels(40))


def test_a_judge_that_gives_no_verdict_at_all_is_an_error_and_no_gain() -> None:
    class Away(Pupil):
        async def ask(self, prompt: Prompt) -> Reply:
            raise JudgeError("nobody is there", error_type="connection")

    with pytest.raises(JudgeError, match="none of 14 labelled samples could be judged: nobody is there") as raised:
        polite(Away()).fit_sync(labels(40))

    assert raised.value.error_type == "connection"


def test_a_lower_is_better_verdict_is_turned_round() -> None:
    rude = AspectCritic(Pupil(), name="rude", definition="It is rude.", direction="lower")

    fitted = rude.fit_sync([one._replace(human=not one.human) for one in labels(150)])

    habit = [one for one in fitted.prompts["critique"]["examples"] if HABIT in json.dumps(one)]
    assert fitted.kept
    assert {one["output"]["verdict"] for one in habit} == {0}


@pytest.mark.parametrize("kind", [Rubrics, InstanceRubrics])
def test_grades_are_taught_by_grades(kind: type[JudgedMetric]) -> None:
    grades = {"score1_description": "Rude.", "score3_description": "Polite."}
    given = [
        one._replace(
            human=3.0 if one.human else 1.0, sample=one.sample and one.sample.model_copy(update={"rubrics": grades})
        )
        for one in labels(150)
    ]

    fitted = kind(Grading()).fit_sync(given)

    assert fitted.kept
    assert {one["output"]["score"] for one in fitted.prompts["score_rubric"]["examples"]} == {1, 3}


class Grading(Pupil):
    """The same judge, that gives grades."""

    async def ask(self, prompt: Prompt) -> Reply:
        verdicts = [Example(one.evidence, {"verdict": one.output["score"] == 3}) for one in prompt.examples]
        answer = await super().ask(replace(prompt, examples=tuple(verdicts)))
        score = 3 if json.loads(answer.text)["verdict"] else 1
        return replace(answer, text=json.dumps({"feedback": "", "score": score}))


@pytest.mark.parametrize(("labels", "runs"), [(60, 20), (150, 6)])
def test_without_any_true_gain_a_candidate_looks_better_and_is_not_kept(labels: int, runs: int) -> None:
    of = cell(labels, 0.0, runs)

    assert of.kept <= 0.05
    assert of.looked >= 0.8
    assert of.promised >= 0.04


def test_a_true_gain_of_twelve_points_is_kept_as_often_as_labels_allow() -> None:
    assert cell(150, 0.12, 6).kept >= 0.4
    assert cell(400, 0.12, 2).kept >= 0.9


PASSES = TuningSample(SingleTurnSample(response="Please."), {}, verdict=1, group=1, example=None)
RIGHT = make_score(1.0)
FAILED = replace(
    RIGHT, outcome=Outcome.TIMEOUT, value=None, quality=None, label=None, error_type="timeout", reason="late"
)


def test_a_failure_and_the_verdict_of_a_fallback_are_no_answers() -> None:
    wrong, of_fallback = replace(RIGHT, value=0.0), replace(RIGHT, source="fallback")

    assert agreements_in([RIGHT, wrong, FAILED, of_fallback], [PASSES] * 4) == [True, False, None, None]
