"""Metrics of ragas as ours. What needs ragas itself is skipped where it is not installed: the extra is heavy."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from spanscore.errors import ConfigurationError, MissingExtraError
from spanscore.metrics.adapters.ragas import RagasMetric
from spanscore.model.sample import AIMessage, HumanMessage, MultiTurnSample, SingleTurnSample, ToolCall, ToolMessage
from spanscore.model.score import Outcome


@pytest.fixture
def ragas(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("RAGAS_DO_NOT_TRACK", "true")
    return pytest.importorskip("ragas.metrics", reason="ragas is not installed")


def test_without_ragas_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ragas", None)

    with pytest.raises(MissingExtraError, match=r"pip install 'spanscore\[ragas\]'"):
        RagasMetric(object())


def test_a_value_and_a_missing_field_come_out_as_ours_do(ragas: Any) -> None:
    metric = RagasMetric(ragas.ExactMatch())

    scored = metric.score_sync(SingleTurnSample(response="a", reference="a"))
    missing = metric.score_sync(SingleTurnSample(response="a"))

    assert (metric.name, scored.value, scored.label) == ("exact_match", 1.0, "pass")
    assert (missing.outcome, missing.value) == (Outcome.MISSING_FIELD, None)


def test_a_conversation_with_calls_reaches_it(ragas: Any) -> None:
    talk = MultiTurnSample(
        user_input=[
            HumanMessage(content="Look it up."),
            AIMessage(tool_calls=[ToolCall(name="lookup", args={"q": "x"}, id="7")]),
            ToolMessage(content="found", tool_call_id="7"),
        ],
        reference_tool_calls=[ToolCall(name="lookup", args={"q": "x"}, id="9")],
    )

    assert RagasMetric(ragas.ToolCallAccuracy()).score_sync(talk).value == 1.0


def test_what_it_raises_is_an_error_and_no_number(ragas: Any) -> None:
    score = RagasMetric(ragas.Faithfulness()).score_sync(
        SingleTurnSample(user_input="q", response="a", retrieved_contexts=["c"])
    )

    assert (score.value, score.outcome) == (None, Outcome.METRIC_ERROR)


def test_a_class_is_no_metric(ragas: Any) -> None:
    with pytest.raises(ConfigurationError, match="no instance"):
        RagasMetric(ragas.ExactMatch)
