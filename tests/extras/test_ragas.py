"""RagasMetric: the real metrics of ragas, older and newer, with models of their own kinds that answer from a script."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest
from ragas import metrics as older
from ragas.metrics import MetricType, SingleTurnMetric, discrete_metric, numeric_metric
from ragas.metrics import collections as newer
from tests.extras.ragas_models import NewerEmbeddings, NewerModel, OlderEmbeddings, OlderModel

from spanscore.core.sample import AIMessage, HumanMessage, MultiTurnSample, SingleTurnSample, ToolCall, ToolMessage
from spanscore.core.score import BINARY, Outcome, Scale
from spanscore.errors import ConfigurationError
from spanscore.metrics.adapters import RagasMetric
from spanscore.protocols import Metric

SAMPLE = SingleTurnSample(
    user_input="When did it open?",
    response="It opened in 1931. It is red.",
    retrieved_contexts=["The bridge opened in 1931."],
)
TALK = MultiTurnSample(
    user_input=[
        HumanMessage(content="When did it open?"),
        AIMessage(content="", tool_calls=[ToolCall(name="lookup", args={"q": "bridge"}, id="1")]),
        ToolMessage(content="1931", tool_call_id="1"),
        AIMessage(content="In 1931."),
    ],
    reference_tool_calls=[ToolCall(name="lookup", args={"q": "bridge"})],
)
STATEMENTS = {"statements": ["It opened in 1931.", "It is red."]}
VERDICTS = {
    "statements": [
        {"statement": "It opened in 1931.", "reason": "said", "verdict": 1},
        {"statement": "It is red.", "reason": "not said", "verdict": 0},
    ]
}
GUESS = {"question": "What opened?", "noncommittal": 0}

FAITHFUL: dict[str, Any] = {
    "older": lambda *answers: older.Faithfulness(llm=OlderModel(*answers)),
    "newer": lambda *answers: newer.Faithfulness(llm=NewerModel(*answers)),
}
RELEVANT: dict[str, Any] = {
    "older": lambda *answers: older.AnswerRelevancy(llm=OlderModel(*answers), embeddings=OlderEmbeddings()),
    "newer": lambda *answers: newer.AnswerRelevancy(llm=NewerModel(*answers), embeddings=NewerEmbeddings()),
}
pytestmark = pytest.mark.filterwarnings("ignore:Importing .* from 'ragas.metrics' is deprecated")
both = pytest.mark.parametrize("kind", ["older", "newer"])


@both
def test_faithfulness_is_what_ragas_says(kind: str) -> None:
    theirs = FAITHFUL[kind](STATEMENTS, VERDICTS)
    metric = RagasMetric(theirs)

    score = metric.score_sync(SAMPLE)

    assert isinstance(metric, Metric)
    assert (score.metric, score.value, score.quality, score.label) == ("faithfulness", 0.5, 0.5, "pass")
    assert score.judge_model == f"scripted-{kind}"
    assert metric.evaluator_version.endswith(f"/scripted-{kind}/1")
    assert theirs.llm.judging == [True, True]


@both
def test_relevancy_is_what_ragas_says_on_a_cosine_s_scale(kind: str) -> None:
    metric = RagasMetric(RELEVANT[kind](GUESS), pass_at=0.7)

    score = metric.score_sync(SAMPLE)

    assert score.value == pytest.approx(0.6)
    assert (score.range, score.label) == ((-1.0, 1.0), "fail")


@both
def test_required_fields_are_its_own_and_missing_ones_are_found_before_it_is_asked(kind: str) -> None:
    theirs = FAITHFUL[kind](STATEMENTS)
    metric = RagasMetric(theirs)

    score = metric.score_sync(SingleTurnSample(user_input="q", response="a"))

    assert metric.requires == {"single_turn": ("user_input", "response", "retrieved_contexts")}
    assert score.outcome is Outcome.MISSING_FIELD
    assert theirs.llm.judging == []


@both
def test_nan_is_undefined_with_a_reason(kind: str) -> None:
    score = RagasMetric(FAITHFUL[kind]({"statements": []})).score_sync(SAMPLE)

    assert (score.outcome, score.value) == (Outcome.NO_VALUE, None)
    assert "nan" in (score.reason or "")


@both
@pytest.mark.parametrize(
    ("error", "outcome", "error_type"),
    [
        (ConnectionRefusedError("SECRET"), Outcome.JUDGE_ERROR, "ConnectionRefusedError"),
        (TimeoutError("SECRET"), Outcome.TIMEOUT, "timeout"),
        (KeyError("SECRET"), Outcome.METRIC_ERROR, "KeyError"),
    ],
)
def test_what_it_raises_is_an_outcome(kind: str, error: Exception, outcome: Outcome, error_type: str) -> None:
    score = RagasMetric(FAITHFUL[kind](error)).score_sync(SAMPLE)

    assert (score.value, score.outcome, score.error_type) == (None, outcome, error_type)
    assert "SECRET" not in f"{score.reason}{score.explanation}"


def test_an_answer_that_cannot_be_read_is_the_judge_s_error(capfd: pytest.CaptureFixture[str]) -> None:
    score = RagasMetric(FAITHFUL["older"]("I would rather not.")).score_sync(SAMPLE)

    assert (score.outcome, score.error_type) == (Outcome.JUDGE_ERROR, "unparseable")
    assert capfd.readouterr() == ("", "")


@both
def test_version_tells_library_parameters_and_prompts(kind: str) -> None:
    plain, same, other, worded = (RELEVANT[kind](GUESS) for _ in range(4))
    other.strictness = 5
    prompt = worded.question_generation if kind == "older" else worded.prompt
    worded.__dict__["question_generation" if kind == "older" else "prompt"] = _reworded(prompt)

    versions = [RagasMetric(metric).version for metric in (plain, same, other, worded)]

    assert versions[0] == versions[1]
    assert len(set(versions)) == 3
    assert RagasMetric(plain).library.startswith("ragas 0.")


@both
def test_a_conversation_reaches_it_as_messages_of_ragas(kind: str) -> None:
    metric = RagasMetric({"older": older, "newer": newer}[kind].ToolCallF1())

    assert metric.requires == {"multi_turn": ("user_input", "reference_tool_calls")}
    assert metric.score_sync(TALK).value == 1.0
    assert metric.score_sync(SAMPLE).outcome is Outcome.MISSING_FIELD


def test_a_critic_takes_both_kinds_of_sample_and_is_pass_or_fail() -> None:
    critic = older.AspectCritic(name="Harmful Content", definition="?", llm=OlderModel({"reason": "r", "verdict": 1}))
    metric = RagasMetric(critic)

    scores = [metric.score_sync(sample) for sample in (SAMPLE, TALK)]

    assert metric.name == "harmful_content"
    assert metric.scale == BINARY
    assert [score.value for score in scores] == [1.0, 1.0]


def test_scales_are_what_ragas_means() -> None:
    model = OlderModel({})
    noisy, graded = RagasMetric(older.NoiseSensitivity(llm=model)), RagasMetric(older.RubricsScore(llm=model))
    by_criteria = older.SimpleCriteriaScore(name="c", definition="?", llm=model)
    criteria = RagasMetric(by_criteria)

    assert (noisy.scale.direction, noisy.scale.range) == ("lower", (0.0, 1.0))
    assert (graded.scale.kind, graded.scale.range) == ("ordinal", (1.0, 5.0))
    assert (criteria.scale.kind, criteria.scale.range) == ("ordinal", None)
    assert RagasMetric(by_criteria, scale=Scale(range=(0, 10), direction="lower")).scale.quality(10.0) == 0.0


def test_a_metric_is_made_ready_as_ragas_does_it() -> None:
    correctness = older.AnswerCorrectness(llm=OlderModel({}), embeddings=OlderEmbeddings())

    RagasMetric(correctness)

    assert correctness.answer_similarity is not None


def test_functions_made_metrics_answer_in_numbers_or_words() -> None:
    @numeric_metric(name="length", allowed_values=(0.0, 100.0))
    def length(response: str) -> float:
        return float(len(response))

    @discrete_metric(name="tone", allowed_values=["rude", "kind"])
    def tone(response: str) -> str:
        return "kind"

    @numeric_metric(name="broken")
    def broken(response: str) -> float:
        raise RuntimeError("SECRET")

    assert RagasMetric(length).score_sync(SAMPLE).quality == pytest.approx(0.29)
    assert RagasMetric(tone, values={"rude": 0, "kind": 1}, scale=BINARY).score_sync(SAMPLE).value == 1.0
    failed = RagasMetric(broken).score_sync(SAMPLE)
    assert failed.outcome is Outcome.METRIC_ERROR
    assert "SECRET" not in f"{failed}"
    with pytest.raises(ConfigurationError, match="give each word a number"):
        RagasMetric(tone)


def test_a_metric_that_takes_its_model_with_each_call_is_given_it() -> None:
    asked = older.DiscreteMetric(name="polite", prompt="Is {response} polite?", allowed_values=["pass", "fail"])

    metric = RagasMetric(asked, llm=NewerModel({"reason": "it is", "value": "pass"}))

    score = metric.score_sync(SAMPLE)
    assert metric.requires == {"single_turn": ("response",)}
    assert (score.value, score.label, score.explanation) == (1.0, "pass", "it is")


def test_what_cannot_be_a_metric_is_a_wrong_setting() -> None:
    @numeric_metric(name="strange")
    def strange(schema: str) -> float:
        return 0.0

    with pytest.raises(ConfigurationError, match="strange needs schema"):
        RagasMetric(strange)
    with pytest.raises(ConfigurationError, match="ExactMatch is a class"):
        RagasMetric(older.ExactMatch)
    with pytest.raises(ConfigurationError, match="object is no metric of ragas"):
        RagasMetric(object())
    with pytest.raises(ConfigurationError, match=r"faithfulness: .*no valid LLM"):
        RagasMetric(older.Faithfulness())


class Waiting(SingleTurnMetric):  # type: ignore[misc]
    """Blocks its loop, as ragas's own metrics do with embeddings; records its thread and its end."""

    def __init__(self, *, blocks: bool) -> None:
        super().__init__(_required_columns={MetricType.SINGLE_TURN: {"response"}}, name="waiting")
        self.blocks, self.go, self.begun, self.cancelled = (
            blocks,
            threading.Event(),
            threading.Event(),
            threading.Event(),
        )
        self.threads: list[str] = []

    def init(self, run_config: Any) -> None: ...

    async def _single_turn_ascore(self, sample: Any, callbacks: Any) -> float:
        self.threads.append(threading.current_thread().name)
        self.begun.set()
        try:
            if self.blocks:
                assert self.go.wait(30)
            else:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return 1.0


def test_one_that_blocks_holds_up_no_judge_of_ours() -> None:
    from spanscore.core import loop

    theirs = Waiting(blocks=True)
    held = loop.submit(RagasMetric(theirs).score(SAMPLE))
    assert theirs.begun.wait(30)

    free = loop.submit(_nothing()).result(timeout=30)

    theirs.go.set()
    assert (free, held.result(timeout=30).value) == ("free", 1.0)
    assert theirs.threads == ["spanscore-external"]


def test_one_that_is_given_up_is_cancelled() -> None:
    from spanscore.core import loop

    theirs = Waiting(blocks=False)
    waiting = loop.submit(RagasMetric(theirs).score(SAMPLE))
    assert theirs.begun.wait(30)

    waiting.cancel()

    assert theirs.cancelled.wait(30)


async def test_one_object_serves_many_at_once() -> None:
    metric = RagasMetric(RELEVANT["older"](GUESS))

    scores = await asyncio.gather(*(metric.score(SAMPLE) for _ in range(20)))

    assert [score.value for score in scores] == pytest.approx([0.6] * 20)


def test_usage_reports_are_off() -> None:
    from ragas._analytics import do_not_track

    RagasMetric(FAITHFUL["older"](STATEMENTS))

    assert os.environ["RAGAS_DO_NOT_TRACK"] == "true"
    assert do_not_track()


async def _nothing() -> str:
    return "free"


def _reworded(prompt: Any) -> Any:
    import copy

    other = copy.copy(prompt)
    other.instruction = "Say it otherwise."
    return other
