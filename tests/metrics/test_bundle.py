"""``bundle``: the criteria of several metrics in one question; each has its verdict, its version and a part of the cost."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from langchain_openai import ChatOpenAI
from tests.live import a_line, run_rag
from tests.servers.openai_api import OpenAIServer

from spanscore import ConfigurationError, Score, SingleTurnSample, evaluate_sync, judge
from spanscore.config import Budget, JudgeSettings
from spanscore.core import loop
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.score import JudgeCall, Outcome
from spanscore.errors import JudgeTimeout
from spanscore.judges import Jury, recorded_calls
from spanscore.metrics import AspectCritic, Rubrics, SimpleCriteria
from spanscore.metrics.catalog.registry import by_name
from spanscore.testing import MemorySink, ScriptedJudge

SAMPLE = SingleTurnSample(user_input="And of Spain?", response="Madrid, with pleasure.")
POLITE, TONE = {"reason": "Pleased.", "verdict": 1}, {"reason": "Warm.", "score": 4}
WHOLE = {"polite": POLITE, "tone": TONE, "fit": {"feedback": "Right.", "score": 5}}


def scripted(*answers: Mapping[str, Any], model: str = "scripted") -> ScriptedJudge:
    return ScriptedJudge([{"step": "judge_criteria", "output": answer} for answer in answers], model=model)


def critics(llm: Any, **settings: Any) -> list[Any]:
    return [
        AspectCritic(llm, name="polite", definition="The response is polite.", bundle=True, **settings),
        SimpleCriteria(llm, name="tone", definition="Grade the tone.", range=(1, 5), bundle=True, **settings),
        Rubrics(llm, name="fit", bundle=True, **settings),
    ]


def scored(metrics: list[Any], sample: SingleTurnSample = SAMPLE) -> list[Score]:
    async def score_all() -> list[Score]:
        return await asyncio.gather(*(metric.score(sample) for metric in metrics))

    return loop.run(score_all())


def test_one_question_gives_each_metric_its_verdict_with_its_reason() -> None:
    asked = scripted(WHOLE)

    scores = scored(critics(asked))

    assert [(score.metric, score.value, score.explanation) for score in scores] == [
        ("polite", 1.0, "Pleased."),
        ("tone", 4.0, "Warm."),
        ("fit", 5.0, "Right."),
    ]
    assert [[*prompt.criteria] for prompt in asked.calls] == [["polite", "tone", "fit"]]


@pytest.mark.parametrize("lacking", [{"polite": POLITE, "tone": TONE}, {**WHOLE, "fit": {"feedback": "", "score": 9}}])
def test_a_verdict_that_is_missing_or_invalid_is_asked_for_alone(lacking: Mapping[str, Any]) -> None:
    asked = scripted(lacking, {"fit": WHOLE["fit"]})

    scores = scored(critics(asked))

    assert [score.value for score in scores] == [1.0, 4.0, 5.0]
    assert [[*prompt.criteria] for prompt in asked.calls] == [["polite", "tone", "fit"], ["fit"]]
    assert [len(score.usage.calls) for score in scores] == [1, 1, 2]


def test_an_answer_without_any_verdict_is_repaired_as_a_whole() -> None:
    asked = ScriptedJudge(
        [{"step": "judge_criteria", "raw": "Fine, all of it."}, {"step": "fix_output_format", "output": WHOLE}]
    )

    assert [score.value for score in scored(critics(asked))] == [1.0, 4.0, 5.0]
    assert len(asked.calls) == 2


def test_a_judge_that_fails_fails_every_metric_and_is_asked_once() -> None:
    class Late:
        model = "late"
        asked = 0

        async def ask(self, _: Prompt) -> Reply:
            self.asked += 1
            raise JudgeTimeout("late")

    late = Late()

    assert {score.outcome for score in scored(critics(late))} == {Outcome.TIMEOUT}
    assert late.asked == 1


class Hanging:
    """A judge that never answers; ``asked`` is set when it is asked."""

    model = "hanging"

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def ask(self, _: Prompt) -> Reply:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


def test_a_question_that_all_metrics_give_up_is_paid_once() -> None:
    async def give_up(number: int) -> list[JudgeCall]:
        hanging = Hanging()
        llm = judge(hanging, prices={"hanging": (1.0, 1.0)})
        with recorded_calls() as calls:
            tasks = [asyncio.ensure_future(metric.score(SAMPLE)) for metric in critics(llm)]
            await hanging.asked.wait()
            for task in tasks[:number]:
                task.cancel()
            await asyncio.sleep(0)
            for task in tasks[number:]:
                task.cancel()
            await asyncio.wait(tasks)
        return calls

    together, one_by_one = loop.run(give_up(3)), loop.run(give_up(1))

    assert [call.estimated for call in together] == [True]
    assert [call.input_tokens for call in together] == [call.input_tokens for call in one_by_one]
    assert together[0].input_tokens > 0


def test_strictness_asks_the_whole_bundle_several_times() -> None:
    asked = scripted(WHOLE, {**WHOLE, "polite": {"reason": "", "verdict": 0}}, WHOLE)

    scores = scored(critics(asked, strictness=3))

    assert [score.value for score in scores] == [1.0, 4.0, 5.0]
    assert [(prompt.vote_index, len(prompt.criteria)) for prompt in asked.calls] == [(0, 3), (1, 3), (2, 3)]


def test_a_metric_with_one_vote_joins_the_first_vote_of_the_others() -> None:
    asked = scripted({"once": POLITE, "often": POLITE}, {"often": POLITE}, {"often": POLITE})
    once, often = (
        AspectCritic(asked, name=name, definition="d", strictness=votes, bundle=True)
        for name, votes in (("once", 1), ("often", 3))
    )
    scored([once, often])

    assert [[*prompt.criteria] for prompt in asked.calls] == [["once", "often"], ["often"], ["often"]]


@pytest.mark.filterwarnings("error")
def test_a_metric_may_have_the_name_of_an_attribute_of_the_answers_class() -> None:
    asked = scripted({"copy": POLITE, "json": {"reason": "", "verdict": 7}}, {"json": POLITE})

    scores = scored([AspectCritic(asked, name=name, definition="d", bundle=True) for name in ("copy", "json")])

    assert [score.value for score in scores] == [1.0, 1.0]


def test_a_condition_holds_for_its_own_criterion_alone() -> None:
    asked = scripted({"polite": POLITE, "kind": {"applies": 0}})
    kind = AspectCritic(asked, name="kind", definition="d", applies_when="somebody is sad", bundle=True)

    polite, conditional = scored([critics(asked)[0], kind])

    assert (polite.outcome, conditional.outcome) == (Outcome.SCORED, Outcome.NOT_APPLICABLE)


def test_other_evidence_is_another_question() -> None:
    asked = scripted({"polite": POLITE}, {"tone": TONE})
    polite, tone, _ = critics(asked)

    async def score_both() -> None:
        await asyncio.gather(polite.score(SAMPLE), tone.score(SingleTurnSample(user_input="q", response="r")))

    loop.run(score_both())

    assert [[*prompt.criteria] for prompt in asked.calls] == [["polite"], ["tone"]]


def test_the_version_names_the_bundle_and_differs_from_the_single_metric() -> None:
    llm = scripted()
    single = AspectCritic(llm, name="polite", definition="The response is polite.")
    bundled = critics(llm)[0]

    assert "bundled" in bundled.version
    assert "bundled" not in single.version


def test_each_juror_is_asked_about_the_whole_bundle() -> None:
    jurors = [scripted(WHOLE, model="a"), scripted(WHOLE, model="b")]

    assert [score.value for score in scored(critics(Jury(jurors)))] == [1.0, 4.0, 5.0]
    assert [len(juror.calls) for juror in jurors] == [1, 1]


def answering(request: dict[str, Any]) -> str:
    names = [name for name in WHOLE if f'"{name}"' in json.dumps(request["messages"]).replace("\\", "")]
    return json.dumps({name: WHOLE[name] for name in names})


def test_the_tokens_that_one_question_wrote_to_a_cache_are_shared_too() -> None:
    class Caching(ScriptedJudge):
        async def ask(self, prompt: Prompt) -> Reply:
            reply = await super().ask(prompt)
            return replace(reply, input_tokens=300, cached_input_tokens=50, cache_write_tokens=200)

    judge = Caching([{"step": "judge_criteria", "output": WHOLE}])
    calls = [call for score in scored(critics(judge)) for call in score.usage.calls]

    assert sum(call.cached_input_tokens for call in calls) == 50
    assert sum(call.cache_write_tokens for call in calls) == 200


def test_live_traffic_and_evaluate_ask_one_question_and_share_its_cost() -> None:
    prices = {"gpt-4o-mini": (1.0, 1.0)}
    sink = MemorySink()
    with OpenAIServer(answering) as server:
        llm = judge(ChatOpenAI(model="gpt-4o-mini", base_url=server.url, api_key="none"), prices=prices)  # type: ignore[arg-type]
        with a_line(*critics(llm), outputs={"sinks": [sink]}) as (scorer, trace):
            run_rag(scorer)
        asked_live = len(server.requests)
        result = evaluate_sync([SAMPLE], critics(llm))

    assert (asked_live, len(server.requests)) == (1, 2)
    assert [score.value for score in sink.scores] == [1.0, 4.0, 5.0]
    assert {row.outcome for row in result.rows} == {Outcome.SCORED}
    tokens = [score.usage.input_tokens + score.usage.output_tokens for score in sink.scores]
    assert max(tokens) - min(tokens) <= 2
    assert sum(score.usage.cost_usd or 0 for score in sink.scores) == pytest.approx(sum(tokens) / 1e6)
    assert len(trace.evaluations) == 3


def test_a_budget_of_calls_counts_a_bundle_once_and_a_metric_with_a_budget_of_its_own_is_asked_apart() -> None:
    def requests_within(*budgets: Budget) -> tuple[int, Counter[Outcome]]:
        asked, sink = scripted(*[WHOLE] * 9), MemorySink()
        settings = JudgeSettings(budget=budgets)
        with a_line(*critics(asked), judge=settings, outputs={"sinks": [sink]}) as (scorer, _):
            run_rag(scorer)
        return len(asked.calls), Counter(score.outcome for score in sink.scores)

    assert requests_within(Budget(calls=1, per="1d")) == (1, Counter({Outcome.SCORED: 3}))
    assert requests_within(Budget(calls=9, per="1d", metric="tone")) == (2, Counter({Outcome.SCORED: 3}))


REFUSED = {
    "polite and other have different fields": lambda llm: by_name(
        [critics(llm)[0], AspectCritic(llm, name="other", definition="d", fields=["response"], bundle=True)]
    ),
    "polite and other have different judges": lambda llm: by_name(
        [critics(llm)[0], AspectCritic(scripted(), name="other", definition="d", bundle=True)]
    ),
    "shows no examples": lambda llm: critics(
        llm, prompts={"critique": {"examples": [{"evidence": {"response": "r"}, "output": POLITE}]}}
    ),
    "bundle is 'yes'; it is true or false": lambda llm: AspectCritic(llm, definition="d", bundle="yes"),  # type: ignore[arg-type]
    "fit it without bundle": lambda llm: critics(llm)[0].fit_sync([]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_bundle_that_cannot_be_is_refused_in_one_line(message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as refused:
        REFUSED[message](scripted())

    assert "\n" not in str(refused.value)


def test_the_offline_judge_scores_a_bundle_as_it_scores_the_metrics_alone() -> None:
    metrics = critics("lexical")
    bundled = scored(metrics)
    alone = [type(metric)("lexical", **PARAMETERS[metric.name]).score_sync(SAMPLE) for metric in metrics]

    assert [score.value for score in bundled] == [score.value for score in alone]


PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "polite": {"name": "polite", "definition": "The response is polite."},
    "tone": {"name": "tone", "definition": "Grade the tone.", "range": (1, 5)},
    "fit": {"name": "fit"},
}
