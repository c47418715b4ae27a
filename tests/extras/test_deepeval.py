"""DeepEvalMetric: the real metrics of DeepEval, with a model of its own kind that answers from a script."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from deepeval import metrics as theirs
from deepeval.models import DeepEvalBaseLLM
from deepeval.telemetry import telemetry_opt_out
from deepeval.test_case import LLMTestCase, MultiTurnParams, SingleTurnParams
from deepeval.tracing import observe, trace_manager

from spanscore.core.context import is_judging
from spanscore.core.sample import AIMessage, HumanMessage, MultiTurnSample, SingleTurnSample, ToolCall, ToolMessage
from spanscore.core.score import Outcome, Scale
from spanscore.errors import ConfigurationError
from spanscore.metrics.adapters import DeepEvalMetric
from spanscore.protocols import Metric

SAMPLE = SingleTurnSample(
    user_input="When did it open?",
    response="It opened in 1931. It is red.",
    retrieved_contexts=["The bridge opened in 1931."],
    reference="In 1931.",
)
TALK = MultiTurnSample(
    user_input=[
        HumanMessage(content="Hello"),
        AIMessage(content="Hello!"),
        HumanMessage(content="When did it open?"),
        AIMessage(content="", tool_calls=[ToolCall(name="lookup", args={"q": "bridge"}, id="1")]),
        ToolMessage(content="1931", tool_call_id="1"),
        AIMessage(content="In 1931."),
    ],
    reference_tool_calls=[ToolCall(name="lookup", args={"q": "bridge"}), ToolCall(name="check", args={})],
)
ANSWERS: dict[str, Any] = {
    "Truths": {"truths": ["The bridge opened in 1931."]},
    "Claims": {"claims": ["It opened in 1931.", "It is red."]},
    "Statements": {"statements": ["It opened in 1931.", "It is red."]},
    "Verdicts": {"verdicts": [{"verdict": "yes"}, {"verdict": "no", "reason": "not said"}]},
    "FaithfulnessScoreReason": {"reason": "One of two is not said."},
    "AnswerRelevancyScoreReason": {"reason": "One of two is beside the question."},
}


class Scripted(DeepEvalBaseLLM):  # type: ignore[misc]
    """Answers in the asked class, by its name; or with one text, or one exception, whatever is asked."""

    def __init__(self, always: Any = None) -> None:
        self.always = always
        self.judging: list[bool] = []
        self.threads: set[str] = set()
        super().__init__("scripted")

    def load_model(self) -> Any:
        return self

    def get_model_name(self) -> str:
        return "scripted"

    def generate(self, prompt: str, schema: Any = None) -> Any:
        self.judging.append(is_judging())
        self.threads.add(threading.current_thread().name)
        if isinstance(self.always, BaseException):
            raise self.always
        if isinstance(self.always, str):
            if schema is not None:
                raise TypeError("no schemas here")
            return self.always
        return schema.model_validate(ANSWERS[schema.__name__])

    async def a_generate(self, prompt: str, schema: Any = None) -> Any:
        await asyncio.sleep(0)  # lets the others in
        return self.generate(prompt, schema)


def faithfulness(model: Any = None, **params: Any) -> Any:
    return theirs.FaithfulnessMetric(model=model or Scripted(), **params)


@pytest.mark.parametrize("kind", [theirs.FaithfulnessMetric, theirs.AnswerRelevancyMetric])
def test_the_score_is_what_deepeval_says(kind: Any, capfd: pytest.CaptureFixture[str]) -> None:
    model = Scripted()
    metric = DeepEvalMetric(kind(model=model, verbose_mode=True))

    score = metric.score_sync(SAMPLE)

    assert isinstance(metric, Metric)
    assert (score.value, score.quality, score.label, score.judge_model) == (0.5, 0.5, "pass", "scripted")
    assert "One of two" in (score.explanation or "")
    assert metric.evaluator_version.endswith("/scripted/1")
    assert set(model.judging) == {True}
    assert model.threads == {"spanscore-external"}
    assert capfd.readouterr() == ("", "")


def test_names_and_required_fields_are_its_own() -> None:
    faithful, relevant = DeepEvalMetric(faithfulness()), DeepEvalMetric(theirs.AnswerRelevancyMetric(model=Scripted()))

    assert (faithful.name, relevant.name) == ("faithfulness", "answer_relevancy")
    assert faithful.requires == {"single_turn": ("user_input", "response", "retrieved_contexts")}
    assert relevant.requires == {"single_turn": ("user_input", "response")}


def test_a_missing_field_is_found_before_it_is_asked_and_an_empty_one_is_undefined() -> None:
    model = Scripted()
    metric = DeepEvalMetric(faithfulness(model))

    missing = metric.score_sync(SingleTurnSample(user_input="q", response="a"))
    empty = metric.score_sync(SAMPLE.model_copy(update={"response": ""}))

    assert (missing.outcome, empty.outcome) == (Outcome.MISSING_FIELD, Outcome.NO_VALUE)
    assert model.judging == []


def test_the_object_itself_is_never_changed_and_serves_many_at_once() -> None:
    own = faithfulness()
    metric = DeepEvalMetric(own)
    before = dict(vars(own))

    async def many() -> list[Any]:
        return await asyncio.gather(*(metric.score(SAMPLE) for _ in range(20)))

    scores = asyncio.run(many())

    assert {score.value for score in scores} == {0.5}
    assert vars(own) == before


def test_a_metric_that_is_not_async_runs_on_a_thread() -> None:
    model = Scripted()

    score = DeepEvalMetric(faithfulness(model, async_mode=False)).score_sync(SAMPLE)

    assert score.value == 0.5
    assert all(name.startswith("spanscore-judge") for name in model.threads)


@pytest.mark.parametrize(
    ("error", "outcome", "error_type"),
    [
        (ConnectionRefusedError("SECRET"), Outcome.JUDGE_ERROR, "ConnectionRefusedError"),
        (TimeoutError("SECRET"), Outcome.TIMEOUT, "timeout"),
        (RuntimeError("SECRET"), Outcome.METRIC_ERROR, "RuntimeError"),
        ("I would rather not.", Outcome.JUDGE_ERROR, "unparseable"),
    ],
)
def test_what_goes_wrong_is_an_outcome(error: Any, outcome: Outcome, error_type: str) -> None:
    score = DeepEvalMetric(faithfulness(Scripted(error))).score_sync(SAMPLE)

    assert (score.value, score.outcome, score.error_type) == (None, outcome, error_type)
    assert "SECRET" not in f"{score.reason}{score.explanation}"


def test_threshold_and_strictness_are_the_scale() -> None:
    lenient, strict = DeepEvalMetric(faithfulness(threshold=0.3)), DeepEvalMetric(faithfulness(strict_mode=True))

    assert (lenient.scale.kind, lenient.scale.range, lenient.scale.pass_at) == ("continuous", (0.0, 1.0), 0.3)
    assert (strict.scale.kind, strict.scale.pass_at) == ("binary", 1.0)
    assert strict.score_sync(SAMPLE).value == 0.0
    assert DeepEvalMetric(faithfulness(), scale=Scale(direction="lower"), pass_at=0.9).scale.pass_at == 0.9


def test_version_tells_library_and_parameters() -> None:
    plain, same, other = faithfulness(), faithfulness(), faithfulness(penalize_ambiguous_claims=True)
    same.score = 0.3  # its last measurement is not a parameter

    versions = [DeepEvalMetric(metric).version for metric in (plain, same, other)]

    assert versions[0] == versions[1] != versions[2]
    assert DeepEvalMetric(plain).library.startswith("deepeval ")


class Longer(theirs.BaseMetric):  # type: ignore[misc]
    """A user's own, as DeepEval's documentation writes one: blocking, lower is better, no required parameters."""

    def __init__(self, threshold: float = 0.8) -> None:
        self.threshold = threshold
        self.async_mode = False

    def measure(self, test_case: LLMTestCase) -> float:
        self.score = min(1.0, len(test_case.actual_output or "") / 58)
        return self.score

    def is_successful(self) -> bool:
        return self.score <= self.threshold

    @property
    def __name__(self) -> str:
        return "Longer than Needed"


def test_a_metric_of_the_user_s_own_keeps_its_direction() -> None:
    metric = DeepEvalMetric(Longer())

    score = metric.score_sync(SAMPLE)

    assert (metric.name, metric.scale.direction) == ("longer_than_needed", "lower")
    assert metric.scale.pass_at == pytest.approx(0.2)
    assert (score.value, score.label) == (0.5, "pass")


def test_geval_needs_the_fields_it_was_given() -> None:
    params = [SingleTurnParams.ACTUAL_OUTPUT, SingleTurnParams.EXPECTED_OUTPUT]
    geval = theirs.GEval(
        name="Correct", criteria="?", evaluation_steps=["Compare."], evaluation_params=params, model=Scripted()
    )

    metric = DeepEvalMetric(geval)

    assert metric.name == "correct_geval"
    assert metric.requires == {"single_turn": ("response", "reference")}


def test_tool_calls_come_from_the_last_turn_of_a_conversation() -> None:
    metric = DeepEvalMetric(theirs.ToolCorrectnessMetric(model=Scripted()))

    score = metric.score_sync(TALK)

    assert metric.requires == {"multi_turn": ("user_input", "reference_tool_calls")}
    assert score.value == 0.5, score.reason


class Turns(theirs.BaseConversationalMetric):  # type: ignore[misc]
    """Keeps the test case it was given."""

    seen: Any = None
    _required_test_case_params = (MultiTurnParams.CONTENT, MultiTurnParams.ROLE)

    async def a_measure(self, test_case: Any, *_: Any, **__: Any) -> float:
        Turns.seen = test_case
        return 1.0

    def measure(self, test_case: Any, *_: Any, **__: Any) -> float:
        raise AssertionError("not the blocking side")


def test_a_conversation_becomes_turns_with_their_tools() -> None:
    metric = DeepEvalMetric(Turns(), constants={"chatbot_role": "guide"})

    score = metric.score_sync(TALK)

    said = [(turn.role, turn.content) for turn in Turns.seen.turns]
    called = Turns.seen.turns[-1].tools_called
    assert (metric.name, metric.requires, score.value) == ("turns", {"multi_turn": ("user_input",)}, 1.0)
    assert said == [
        ("user", "Hello"),
        ("assistant", "Hello!"),
        ("user", "When did it open?"),
        ("assistant", "In 1931."),
    ]
    assert [(call.name, call.input_parameters, call.output) for call in called] == [("lookup", {"q": "bridge"}, "1931")]
    assert Turns.seen.chatbot_role == "guide"


def test_what_cannot_be_scored_online_is_a_wrong_setting() -> None:
    role = theirs.RoleAdherenceMetric(model=Scripted())

    with pytest.raises(ConfigurationError, match=r"chatbot_role.*constants="):
        DeepEvalMetric(role)
    with pytest.raises(ConfigurationError, match="object is no metric of DeepEval"):
        DeepEvalMetric(object())
    assert DeepEvalMetric(role, constants={"chatbot_role": "guide"}).requires == {"multi_turn": ("user_input",)}


def test_nothing_is_reported_and_the_application_s_own_trace_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFIDENT_TRACE_INTERNAL", "true")  # DeepEval then traces its own metrics, below an open span
    own = faithfulness()
    metric = DeepEvalMetric(own)

    assert telemetry_opt_out()
    assert _children(lambda: metric.score_sync(SAMPLE)) == []
    assert _children(lambda: asyncio.run(own.a_measure(_case(), _show_indicator=False))) != []  # so it would be seen


def _children(work: Any) -> list[str]:
    """Return the names of the spans that DeepEval makes below one of an application."""
    found: list[str] = []

    @observe()  # type: ignore[untyped-decorator]
    def application() -> None:
        work()
        (span,) = [span for span in trace_manager.active_spans.values() if span.name == "application"]
        found.extend(child.name for child in span.children)

    application()
    return found


def _case() -> Any:
    return LLMTestCase(input="q", actual_output="It opened.", retrieval_context=["The bridge opened."])
