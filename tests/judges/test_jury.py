"""A jury: several judges of one metric, their mean or majority, and one more judge if they disagree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.live import a_line, run_rag

from spanscore import ConfigurationError, JudgeError, Score, SingleTurnSample, judge
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.score import JuryVotes, Outcome
from spanscore.errors import JudgeTimeout
from spanscore.judges import Jury
from spanscore.metrics import AspectCritic, ContextRecall, Faithfulness, SimpleCriteria
from spanscore.testing import ScriptedJudge

SAMPLE = SingleTurnSample(user_input="And of Spain?", response="Madrid, with pleasure.")


class Failing:
    """A judge that never answers."""

    def __init__(self, model: str, error: Exception) -> None:
        self.model = model
        self._error = error

    async def ask(self, _: Prompt) -> Reply:
        raise self._error


def juror(model: str, verdict: int, reason: str = "") -> ScriptedJudge:
    return ScriptedJudge([{"step": "critique", "output": {"reason": reason, "verdict": verdict}}] * 9, model=model)


def grader(model: str, grade: int) -> ScriptedJudge:
    return ScriptedJudge([{"step": "score_criteria", "output": {"reason": "", "score": grade}}] * 9, model=model)


def away(model: str) -> Failing:
    return Failing(model, JudgeError("no answer"))


def polite(*judges: Any, **settings: Any) -> Score:
    critic = AspectCritic(Jury(judges, **settings), name="polite", definition="The response is polite.")
    return critic.score_sync(SAMPLE)


def graded(*judges: Any, bounds: tuple[int, int] | None = (1, 5), **settings: Any) -> Score:
    jury = Jury(judges, **settings)
    return SimpleCriteria(jury, name="tone", definition="Grade the tone.", range=bounds).score_sync(SAMPLE)


def test_a_verdict_is_that_of_the_majority_and_every_juror_is_on_the_score() -> None:
    score = polite(juror("a", 1, "Pleased."), juror("b", 0, "Curt."), juror("c", 1, "Kind."))

    assert (score.value, score.label, score.judge_model) == (1.0, "pass", "a+b+c")
    assert score.jury == JuryVotes(models=("a", "b", "c"), values=(1.0, 0.0, 1.0), disagreement=1.0)
    assert score.explanation == "a 1: Pleased.; b 0: Curt.; c 1: Kind."


def test_a_grade_is_the_mean_and_the_disagreement_is_the_spread_of_the_quality() -> None:
    score = graded(grader("a", 5), grader("b", 4), grader("c", 3))

    assert (score.value, score.quality) == (4.0, 0.75)
    assert score.jury is not None
    assert score.jury.disagreement == 0.5


def test_an_even_jury_that_ties_has_no_value() -> None:
    score = polite(juror("a", 1), juror("b", 0))

    assert (score.outcome, score.reason) == (Outcome.NO_VALUE, "the jury is tied: 1 of 2 jurors for each verdict")
    assert score.jury is not None
    assert score.jury.disagreement == 1.0


def test_a_juror_that_fails_is_left_out_and_named() -> None:
    score = polite(juror("a", 1), away("b"), juror("c", 1))

    assert score.value == 1.0
    assert score.jury == JuryVotes(models=("a", "c"), values=(1.0, 1.0), left_out=("b judge_error",), disagreement=0.0)


def test_fewer_than_two_answers_are_a_judge_error_that_names_the_others() -> None:
    score = polite(juror("a", 1), away("b"), Failing("c", JudgeTimeout("late")))

    assert (score.outcome, score.error_type) == (Outcome.JUDGE_ERROR, "jury_incomplete")
    assert score.reason == ("1 of 3 jurors answered, and a score needs 2; left out: b judge_error, c timeout")


def test_a_jury_whose_metric_fails_for_every_juror_ends_as_the_metric_does() -> None:
    class Broken(AspectCritic):
        async def measure(self, sample: Any) -> Any:
            raise KeyError(sample.response)

    broken = Broken(Jury([juror("a", 1), juror("b", 1)]), definition="It is polite.")

    assert broken.score_sync(SAMPLE).outcome is Outcome.METRIC_ERROR


@pytest.mark.parametrize(("verdicts", "asked", "value"), [((1, 1), 0, 1.0), ((1, 0), 1, 0.0)])
def test_another_judge_is_asked_only_if_the_jurors_differ(verdicts: tuple[int, int], asked: int, value: float) -> None:
    big = juror("big", 0)
    score = polite(juror("a", verdicts[0]), juror("b", verdicts[1]), then=big, when="disagree")

    assert (len(big.calls), score.value) == (asked, value)


@pytest.mark.parametrize(("grades", "asked"), [((4, 5), 0), ((3, 5), 1)])
def test_grades_disagree_if_they_are_more_than_a_quarter_of_the_scale_apart(
    grades: tuple[int, int], asked: int
) -> None:
    big = grader("big", 4)
    graded(*(grader(name, grade) for name, grade in zip("ab", grades, strict=True)), then=big)

    assert len(big.calls) == asked


def test_values_of_an_open_scale_disagree_if_they_differ_and_have_no_disagreement_in_numbers() -> None:
    big = grader("big", 9)
    score = graded(grader("a", 4), grader("b", 5), then=big, bounds=None)

    assert (len(big.calls), score.value) == (1, 6.0)
    assert score.jury is not None
    assert score.jury.disagreement is None


def conditional(*applies: int) -> Score:
    answers = [{"applies": 1, "reason": "", "verdict": 1} if each else {"applies": 0} for each in applies]
    judges = [
        ScriptedJudge([{"step": "critique", "output": answer}], model=name)
        for name, answer in zip("abc", answers, strict=False)
    ]
    return AspectCritic(Jury(judges), definition="It is polite.", applies_when="somebody answers").score_sync(SAMPLE)


APPLIES: Mapping[tuple[int, ...], tuple[Outcome, bool | None]] = {
    (1, 1, 0): (Outcome.SCORED, True),
    (1, 0, 0): (Outcome.NOT_APPLICABLE, False),
    (0, 0): (Outcome.NOT_APPLICABLE, False),
    (1, 0): (Outcome.NO_VALUE, None),
}


@pytest.mark.parametrize("applies", APPLIES)
def test_most_jurors_decide_whether_a_condition_holds(applies: tuple[int, ...]) -> None:
    score = conditional(*applies)

    assert (score.outcome, score.applies) == APPLIES[applies]


def test_each_juror_answers_all_questions_of_its_own_score() -> None:
    def steps(model: str, *verdicts: int) -> ScriptedJudge:
        rows = [{"statement": f"s{n}", "reason": "", "verdict": verdict} for n, verdict in enumerate(verdicts)]
        texts = [f"s{n}" for n in range(len(verdicts))]
        answers: list[Mapping[str, Any]] = [
            {"step": "extract_statements", "output": {"statements": texts}},
            {"step": "verify_statements", "output": {"statements": rows}},
        ]
        return ScriptedJudge(answers, model=model)

    sample = SingleTurnSample(user_input="q", response="r", retrieved_contexts=["c"])
    score = Faithfulness(Jury([steps("a", 1, 0), steps("b", 1, 1, 1, 0)])).score_sync(sample)

    assert score.value == 0.625
    assert sorted(call.model for call in score.usage.calls) == ["a", "a", "b", "b"]


def test_jurors_are_part_of_the_evaluator_version_and_their_order_is_not() -> None:
    a, b, c = (juror(name, 1) for name in "abc")
    one, same, more = (
        AspectCritic(jury, definition="d").evaluator_version
        for jury in (Jury([a, b]), Jury([b, a]), Jury([a, b], then=c))
    )

    assert one == same
    assert [version.split("/")[1] for version in (one, more)] == ["a+b", "a+b then c"]


REFUSED = {
    "a jury of 1: judges takes 2 or more": lambda: Jury([juror("a", 1)]),
    "a jury of 0": lambda: Jury([]),
    "2 judges of a jury are 'a'; each is of a different model": lambda: Jury([juror("a", 1), juror("a", 1)]),
    "2 judges of a jury are 'b'": lambda: Jury([juror("a", 1), juror("b", 1)], then=juror("b", 1)),
    "when is 'always'; allowed is 'disagree'": lambda: Jury([juror("a", 1), juror("b", 1)], when="always"),  # type: ignore[arg-type]
    "a jury is among the judges of a jury": lambda: Jury([Jury([juror("a", 1), juror("b", 1)]), juror("c", 1)]),
    "cache is given around a jury": lambda: judge(Jury([juror("a", 1), juror("b", 1)]), cache="memory"),
    "a jury takes no fallback": lambda: judge(juror("x", 1), fallback=[Jury([juror("a", 1), juror("b", 1)])]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_jury_that_cannot_be_is_refused_in_one_line(message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as refused:
        REFUSED[message]()

    assert "\n" not in str(refused.value)


def test_a_jury_is_not_fitted() -> None:
    metric = ContextRecall(Jury([juror("a", 1), juror("b", 1)]))

    with pytest.raises(ConfigurationError, match="its judge is a jury"):
        metric.fit_sync([])


def disagreements(reader: InMemoryMetricReader) -> list[tuple[str, int, float]]:
    data = reader.get_metrics_data()
    assert data is not None
    return [
        (str(point.attributes["gen_ai.evaluation.name"]), point.count, point.sum)
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        if metric.name == "spanscore.jury.disagreement"
        for point in metric.data.data_points
    ]


def test_the_evaluation_span_and_an_instrument_have_the_disagreement() -> None:
    reader = InMemoryMetricReader()
    critic = AspectCritic(Jury([juror("a", 1), juror("b", 0), juror("c", 1), away("d")]), definition="It is polite.")
    with a_line(critic, meter_provider=MeterProvider([reader])) as (scorer, trace):
        run_rag(scorer, 2)
        assert disagreements(reader) == [("aspect_critic", 2, 2.0)]
        assert scorer.status().judges["aspect_critic"] == "a+b+c+d"

    attributes = trace.evaluations[0].attributes
    assert {name.removeprefix("spanscore.jury."): attributes[name] for name in attributes if ".jury." in name} == {
        "size": 3,
        "models": ("a", "b", "c"),
        "values": (1.0, 0.0, 1.0),
        "left_out": ("d judge_error",),
        "disagreement": 1.0,
    }
    assert (attributes["spanscore.judge.model"], attributes["spanscore.judge.calls"]) == ("a+b+c+d", 4)
