"""The sink ``langfuse`` against the published form of Langfuse's score API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.integrations.langfuse_contract import PUBLIC_KEY, SECRET_KEY, Langfuse, find_faults
from tests.live import Failing, Grounded, a_line
from tests.outputs.builders import KEY, score, unit
from tests.servers.server import poll
from tests.wiring.test_feedback import answered

from spanscore import OnlineScorer
from spanscore.config import Capture, Outputs
from spanscore.core.score import Scale
from spanscore.core.span import Unit
from spanscore.scorer import pipeline_of


@pytest.fixture
def langfuse() -> Iterator[Langfuse]:
    with Langfuse() as server:
        yield server


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, langfuse: Langfuse) -> None:
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", PUBLIC_KEY)
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", SECRET_KEY)
    monkeypatch.setenv("LANGFUSE_BASE_URL", langfuse.endpoint)


def emit(scorer: OnlineScorer, unit: Unit, *scores: Any) -> None:
    """Pass scores to the sinks, on the span thread."""
    line = pipeline_of(scorer)
    assert line.span_thread.call(lambda: line.sinks.emit(unit, scores), 10)


def until_sent(scorer: OnlineScorer, number: int) -> None:
    poll(lambda: scorer.status().sinks[0].sent == number, deadline_s=20, what="the requests")


def test_scores_and_labels_of_a_unit_are_scores_of_its_trace_and_span(langfuse: Langfuse) -> None:
    metrics = Grounded(), Failing(ValueError("no"), "failing")
    with a_line(*metrics, outputs=Outputs(sinks=["langfuse"]), capture=Capture(content=True)) as (scorer, _):
        ids = answered(scorer)
        assert scorer.flush(10)
        for value in (True, False):
            assert scorer.feedback(ids.trace_id, value, span_id=ids.span_id, comment="wrong city")
        until_sent(scorer, 3)

    by_name = {score["name"]: score for score in langfuse.scores.values()}
    assert langfuse.faults == []
    assert by_name.keys() == {"grounded", "user_feedback"}
    assert {(score["traceId"], score["observationId"]) for score in by_name.values()} == {ids}
    assert (by_name["grounded"]["value"], by_name["grounded"]["dataType"]) == (1.0, "NUMERIC")
    assert by_name["grounded"]["comment"] == "looked for Paris is the capital of France."
    assert (by_name["user_feedback"]["value"], by_name["user_feedback"]["dataType"]) == (0, "BOOLEAN")
    assert by_name["user_feedback"]["comment"] == "wrong city"


def test_a_repeated_score_and_its_revision_are_one_score_in_langfuse(langfuse: Langfuse) -> None:
    first, revised = score("grounded", 0.75), score("grounded", 0.25, revision=1)
    with a_line(outputs=Outputs(sinks=["langfuse"])) as (scorer, _):
        answered(scorer)
        emit(scorer, unit(), first)
        emit(scorer, unit(), first, revised)
        until_sent(scorer, 4)

    of_unit = [score for score in langfuse.scores.values() if score["traceId"] == f"{KEY.trace_id:032x}"]
    assert [score["value"] for score in of_unit] == [0.25]
    assert langfuse.faults == []


def test_each_kind_of_value_has_its_type(langfuse: Langfuse) -> None:
    words = Scale(kind="categorical", categories=("refund", "order"))
    scores = [
        score("verdict", 1.0, scale=Scale(kind="binary", pass_at=1.0)),
        score("share", 0.5, scale=Scale(kind="binary", pass_at=1.0)),
        score("intent", "refund", scale=words),
        score("none", None),
        score("second", 0.5, source="shadow"),
    ]
    with a_line(outputs=Outputs(sinks=["langfuse"])) as (scorer, _):
        answered(scorer)
        emit(scorer, unit(), *scores)
        emit(scorer, unit(flags=0), score("unsampled"))
        until_sent(scorer, 5)

    kinds = {score["name"]: (score["dataType"], score["value"]) for score in langfuse.scores.values()}
    assert kinds.pop("grounded")
    assert kinds == {
        "verdict": ("BOOLEAN", 1),
        "share": ("NUMERIC", 0.5),
        "intent": ("CATEGORICAL", "refund"),
        "second.shadow": ("NUMERIC", 0.5),
    }
    assert langfuse.faults == []
    assert all("comment" not in score for score in langfuse.scores.values())


def test_an_unknown_evaluator_version_is_left_out(langfuse: Langfuse) -> None:
    with a_line(outputs=Outputs(sinks=["langfuse"])) as (scorer, _):
        answered(scorer)
        emit(scorer, unit(), score("known"), score("unknown", evaluator_version=""))
        until_sent(scorer, 3)

    metadata = {score["name"]: score["metadata"] for score in langfuse.scores.values()}
    assert metadata["known"]["evaluator_version"] == "1+judge"
    assert "evaluator_version" not in metadata["unknown"]


def test_a_wrong_key_is_counted_as_a_drop(langfuse: Langfuse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk-lf-wrong")
    with a_line(outputs=Outputs(sinks=["langfuse"])) as (scorer, _):
        answered(scorer)
        poll(lambda: scorer.status().sinks[0].dropped, deadline_s=20, what="the refusal")

        assert scorer.status().sinks[0].last_loss == "HTTP 401"
        assert "sk-lf" not in str(scorer.status())


@pytest.mark.parametrize(
    "score",
    [
        {"name": "a", "value": True, "dataType": "BOOLEAN", "traceId": "0" * 32, "observationId": "0" * 16},
        {"name": "a", "value": "x", "traceId": "0" * 32, "observationId": "0" * 16},
        {"name": "a", "value": 1, "traceId": "0" * 31, "observationId": "0" * 16},
        {"name": "a", "value": 1, "traceId": "0" * 32, "observationId": "0" * 16, "label": "pass"},
    ],
)
def test_the_contract_refuses_other_forms(score: dict[str, Any]) -> None:
    assert find_faults(score)
