"""``judge.trace``: the judges' prompts are visible, in traces of their own, and are never scored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode
from tests.capture.processor.traced import SCOPE, ask, scoring
from tests.judges.models import Answers, openai_server
from tests.live import QUESTION, Trace, a_line, a_trace, identity_holds, rag, run_rag

from spanscore import semconv
from spanscore.config import Capture, JudgeSettings, Outputs
from spanscore.core.codecs.messages import text_message
from spanscore.errors import JudgeError, JudgeUnavailable
from spanscore.judges import FallingBack, judge
from spanscore.metrics import AspectCritic, Faithfulness, ResponseRelevancy
from spanscore.samples.normalizers.registry import SpanNormalizers
from spanscore.testing import ScriptedJudge, make_span

GOOD, BAD = '{"reason": "kind", "verdict": 1}', '{"reason": "rude", "verdict": 0}'
UNREADABLE = "I would rather not say."


def a_critic(*answers: Any, **asked: Any) -> AspectCritic:
    return AspectCritic(judge(Answers(*(answers or (GOOD,))), **asked), definition="Is it polite?", name="polite")


def scored(*metrics: Any, runs: int = 1, **options: Any) -> Trace:
    """Return the exports of an application's runs, observed as a whole, and of their evaluation by traced judges."""
    with a_line(*metrics, **{"judge": JudgeSettings(trace=True), **options}) as (scorer, trace):
        scorer.install()
        for _ in range(runs):
            rag().invoke(QUESTION)
        assert scorer.flush(10)
        scorer.uninstall()
        assert identity_holds(scorer)
        assert set(scorer.status().eligible.values()) == {runs}
        kept: Trace = trace
    return kept


def calls(trace: Trace) -> list[Any]:
    found = [span for span in trace.spans if span.instrumentation_scope.name == semconv.JUDGE_SCOPE]
    return sorted(found, key=lambda span: span.start_time)


def attributes_of(span: Any, *names: str) -> Mapping[str, Any]:
    return {name: span.attributes[name] for name in names if name in span.attributes}


def test_a_judge_is_not_traced_unless_asked() -> None:
    assert calls(scored(a_critic(), judge=JudgeSettings(trace=False))) == []


def test_a_call_is_a_span_of_a_trace_of_its_own_that_leads_to_the_evaluation() -> None:
    trace = scored(a_critic())

    ((span,), (evaluation,)) = calls(trace), trace.evaluations
    assert (span.name, span.parent, [link.context for link in span.links]) == (
        "chat answers",
        None,
        [evaluation.context],
    )
    assert f"{span.context.trace_id:032x}" == evaluation.attributes["spanscore.score.id"]
    assert span.context.trace_id != evaluation.context.trace_id
    assert span.start_time < span.end_time
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "answers",
        "gen_ai.response.model": "answers-1",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 2,
        "openinference.span.kind": "LLM",
        "gen_ai.evaluation.name": "polite",
        "spanscore.evaluator.version": evaluation.attributes["spanscore.evaluator.version"],
        "spanscore.judge.step": "critique",
        "spanscore.judge.cached_calls": 0,
        "spanscore.score.id": evaluation.attributes["spanscore.score.id"],
    }


def test_a_chat_model_is_named_with_its_provider_and_why_it_stopped() -> None:
    openai = pytest.importorskip("langchain_openai")
    with openai_server() as url:
        model = openai.ChatOpenAI(model="gpt-4o-mini", base_url=url, api_key="sk-none")
        prices = {"gpt-4o-mini": (1.0, 2.0)}
        trace = scored(AspectCritic(judge(model, prices=prices), definition="Is it polite?", name="polite"))

    (span,) = calls(trace)
    assert span.kind is SpanKind.CLIENT
    assert attributes_of(span, semconv.PROVIDER_NAME, semconv.RESPONSE_MODEL, semconv.RESPONSE_FINISH_REASONS) == {
        "gen_ai.provider.name": "openai",
        "gen_ai.response.model": "gpt-4o-mini-2024-07-18",
        "gen_ai.response.finish_reasons": ("stop",),
    }
    assert span.attributes["spanscore.judge.cost_usd"] == pytest.approx((40 * 1.0 + 8 * 2.0) / 1e6)


@pytest.mark.parametrize("content", [False, True])
def test_prompt_and_answer_are_there_only_where_content_is_exported(content: bool) -> None:
    (span,) = calls(scored(a_critic(), capture=Capture(content=content)))

    assert {name for name in span.attributes if semconv.is_content(name)} == (
        {semconv.SYSTEM_INSTRUCTIONS, semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES} if content else set()
    )
    if content:
        (asked,), (said,) = (json.loads(span.attributes[n]) for n in (semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES))
        assert "Paris is the capital" in asked["parts"][0]["content"]
        assert "Is it polite?" in asked["parts"][0]["content"]
        assert said["parts"] == [{"type": "text", "content": GOOD}]
        assert "never an instruction" in span.attributes[semconv.SYSTEM_INSTRUCTIONS]


def test_what_the_redactor_takes_out_is_not_in_the_prompt() -> None:
    (span,) = calls(
        scored(a_critic(), capture=Capture(content=True), redactor=lambda text: text.replace("Paris", "[city]"))
    )

    assert "Paris" not in str(dict(span.attributes))
    assert "[city]" in span.attributes[semconv.INPUT_MESSAGES]


def test_each_attempt_is_a_span_and_the_question_stands_on_the_last() -> None:
    critic = a_critic(JudgeUnavailable("it is away"), GOOD, max_attempts=2)

    first, last = calls(scored(critic, capture=Capture(content=True)))

    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "it is away")
    assert attributes_of(first, semconv.ERROR_TYPE, semconv.INPUT_MESSAGES) == {"error.type": "unavailable"}
    assert last.status.status_code is StatusCode.UNSET
    assert semconv.INPUT_MESSAGES in last.attributes
    assert first.context.trace_id == last.context.trace_id


def test_an_answer_that_cannot_be_read_is_seen_with_its_repair() -> None:
    unread, repair = calls(scored(a_critic(UNREADABLE, json.dumps({"text": GOOD})), capture=Capture(content=True)))

    assert attributes_of(unread, semconv.ERROR_TYPE, semconv.RESPONSE_MODEL) == {
        "error.type": "unparseable",
        "gen_ai.response.model": "answers-1",
    }
    assert UNREADABLE in unread.attributes[semconv.OUTPUT_MESSAGES]
    assert repair.attributes[semconv.JUDGE_STEP] == "fix_output_format"


def test_a_judge_that_fails_is_seen_with_what_it_was_asked() -> None:
    trace = scored(
        a_critic(JudgeError("there is no such model", error_type="no_such_model")), capture=Capture(content=True)
    )

    (span,) = calls(trace)
    assert (span.status.description, span.attributes[semconv.ERROR_TYPE]) == ("there is no such model", "no_such_model")
    assert semconv.RESPONSE_MODEL not in span.attributes
    assert semconv.INPUT_MESSAGES in span.attributes
    assert trace.evaluations[0].attributes[semconv.ERROR_TYPE] == "no_such_model"


def test_a_fallback_is_seen_under_its_own_name() -> None:
    stand_in = Answers(GOOD)
    stand_in.model = "stand-in"
    falling = FallingBack(Answers(BAD), [stand_in], is_away=lambda one: one is not stand_in)

    (span,) = calls(scored(AspectCritic(falling, definition="Is it polite?", name="polite")))

    assert attributes_of(span, semconv.REQUEST_MODEL, semconv.EVALUATION_SOURCE) == {
        "gen_ai.request.model": "stand-in",
        "spanscore.evaluation.source": "fallback",
    }


def test_a_second_judge_is_seen_beside_the_first() -> None:
    other = AspectCritic(Answers(BAD), definition="Is it rude?", name="polite")

    trace = scored(a_critic(), judge=JudgeSettings(trace=True, shadows=[other]))

    spans, evaluations = calls(trace), {span.context.span_id: span for span in trace.evaluations}
    assert {span.attributes.get(semconv.EVALUATION_SOURCE) for span in spans} == {None, "shadow"}
    for span in spans:
        evaluation = evaluations[span.links[0].context.span_id]
        assert evaluation.attributes.get(semconv.EVALUATION_SOURCE) == span.attributes.get(semconv.EVALUATION_SOURCE)


def test_each_vote_of_a_score_is_seen() -> None:
    votes = AspectCritic(Answers(GOOD, BAD, GOOD), definition="Is it polite?", name="polite", strictness=3)

    trace = scored(votes, capture=Capture(content=True))

    said = [span.attributes[semconv.OUTPUT_MESSAGES] for span in calls(trace)]
    assert sorted("rude" in one for one in said) == [False, False, True]
    assert len({span.context.trace_id for span in calls(trace)}) == 1


def test_a_cached_answer_is_seen_as_one_for_which_nobody_was_asked() -> None:
    trace = scored(a_critic(cache="memory"), runs=2, capture=Capture(content=True))

    asked = {span.attributes[semconv.JUDGE_CACHED_CALLS]: span for span in calls(trace)}
    assert asked.keys() == {0, 1}
    assert semconv.USAGE_INPUT_TOKENS not in asked[1].attributes
    assert GOOD in json.loads(asked[1].attributes[semconv.OUTPUT_MESSAGES])[0]["parts"][0]["content"]


def test_the_calls_of_a_score_add_up_to_what_its_evaluation_says() -> None:
    script = ScriptedJudge(
        [
            {"step": "extract_statements", "output": {"statements": ["Paris is the capital of France."]}},
            {"step": "verify_statements", "output": {"verdicts": [{"statement": 0, "reason": "", "verdict": 1}]}},
        ]
    )

    trace = scored(Faithfulness(script))

    (evaluation,) = trace.evaluations
    assert len(calls(trace)) == evaluation.attributes[semconv.JUDGE_CALLS_ATTRIBUTE] > 1


def test_embeddings_are_seen_as_what_they_are() -> None:
    from langchain_core.embeddings import DeterministicFakeEmbedding

    guessed = {"question": "Which city is it?", "noncommittal": 0}
    guesses = Answers(json.dumps(guessed))
    relevancy = ResponseRelevancy(judge(guesses), DeterministicFakeEmbedding(size=8))

    operations = [
        span.attributes[semconv.OPERATION_NAME] for span in calls(scored(relevancy, capture=Capture(content=True)))
    ]

    assert {"chat", "embeddings"} == set(operations)


@pytest.mark.parametrize("sampler", [TraceIdRatioBased(0.5), ParentBased(TraceIdRatioBased(0.5))])
def test_the_head_sampler_decides_once_for_a_run_and_what_its_judge_was_asked(sampler: Any) -> None:
    trace = a_trace(sampler=sampler)
    with a_line(a_critic(), trace=trace, judge=JudgeSettings(trace=True)) as (scorer, _):
        run_rag(scorer, 20)

    asked = {f"{span.context.trace_id:032x}" for span in calls(trace)}
    assert asked == {span.attributes[semconv.SCORE_ID] for span in trace.evaluations}
    assert 0 < len(asked) < 20


def test_a_processor_in_the_applications_provider_makes_no_unit_of_them() -> None:
    with scoring(a_critic(), judge=JudgeSettings(trace=True), capture=Capture(content=True), observe=True) as (
        scorer,
        exported,
        provider,
    ):
        ask(provider.get_tracer(SCOPE))
        for _ in range(2):  # exports caused by a judge's span would have arrived by then
            assert scorer.flush(10)

    asked = [span for span in exported.spans if span.instrumentation_scope.name == semconv.JUDGE_SCOPE]
    assert (len(asked), scorer.status().eligible) == (1, {"polite": 1})


@pytest.mark.parametrize("scope", sorted(semconv.EVALUATOR_SCOPES))
def test_no_translation_reads_them_from_a_file_or_the_wire(scope: str) -> None:
    kind = {"openinference.span.kind": "LLM", semconv.INPUT_MESSAGES: [text_message("user", "Is it polite?")]}

    assert SpanNormalizers().translate(make_span(semconv.CHAT, scope=scope, attributes=kind)) is None


def test_without_evaluation_spans_the_unit_itself_is_linked() -> None:
    trace = scored(a_critic(), outputs=Outputs(evaluation_span=False, event=False, instruments=False))

    assert [link.context for link in calls(trace)[0].links] == [trace.roots[0].context]


def test_a_file_says_it_too(tmp_path: Any) -> None:
    from spanscore import OnlineScorer

    file = tmp_path / "spanscore.yaml"
    file.write_text("judge: {model: lexical, trace: true}\nmetrics: [faithfulness]\n")
    trace = a_trace()
    with OnlineScorer.from_config(file, tracer_provider=trace.provider) as scorer:
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})

    assert {span.kind for span in calls(trace)} == {SpanKind.INTERNAL}
