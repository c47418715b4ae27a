"""The requests of the sink ``phoenix``; ``tests/integrations/test_phoenix_sink.py`` sends them to a real Phoenix."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.outputs.builders import KEY, SPAN_ID, score, unit

from spanscore.core.sample import Annotation
from spanscore.outputs.http_sink import Destination, Message
from spanscore.outputs.phoenix import PhoenixSink


class Stage:
    """A sink whose messages are kept."""

    def __init__(self, **parameters: Any) -> None:
        self.messages: list[Message] = []
        self.sink = PhoenixSink(self.open_outbox, **parameters)

    def open_outbox(self, destination: Destination) -> Stage:
        self.destination = destination
        return self

    def put(self, message: Message) -> None:
        self.messages.append(Message.from_bytes(message.to_bytes()))

    def annotations(self) -> list[dict[str, Any]]:
        """The annotations of one request with all messages."""
        annotations: list[dict[str, Any]] = json.loads(self.destination.request(self.messages).body)["data"]
        return annotations


def test_a_request_has_the_annotations_of_several_scores_and_labels() -> None:
    stage = Stage(content=True)
    stage.sink.emit(unit(), [score("faithfulness", 0.75, explanation="3 of 4"), score("failed", None)])
    stage.sink.label(
        Annotation(name="user_feedback", value=False, unit=KEY, comment="wrong", quality=0.0, annotator="ann")
    )
    stage.sink.label(Annotation(name="user_feedback", value=False, key="order-1", quality=0.0))

    of_score, of_label = stage.annotations()
    assert of_score == {
        "span_id": f"{SPAN_ID:016x}",
        "name": "faithfulness",
        "annotator_kind": "CODE",
        "result": {"score": 0.75, "label": "pass", "explanation": "3 of 4"},
        "identifier": "1+judge",
    }
    assert of_label == {
        "span_id": f"{SPAN_ID:016x}",
        "name": "user_feedback",
        "annotator_kind": "HUMAN",
        "result": {"score": 0.0, "label": "fail", "explanation": "wrong"},
        "identifier": "ann",
    }


def test_explanations_and_comments_stay_here_without_content() -> None:
    stage = Stage()
    stage.sink.emit(unit(), [score(explanation="QUOTED")])
    stage.sink.label(Annotation(name="user_feedback", value=True, unit=KEY, comment="QUOTED", quality=1.0))

    assert [one["result"]["explanation"] for one in stage.annotations()] == [None, None]


def test_parameters_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOENIX_BASE_URL", "https://phoenix.example/")
    monkeypatch.setenv("PHOENIX_API_KEY", "of-environment")
    of_environment, of_parameters = Stage(), Stage(url="http://127.0.0.1:6006", api_key="given")

    addresses = [stage.destination.url for stage in (of_environment, of_parameters)]
    assert addresses == [
        "https://phoenix.example/v1/span_annotations?sync=false",
        "http://127.0.0.1:6006/v1/span_annotations?sync=false",
    ]
    requests = [stage.destination.request([]) for stage in (of_environment, of_parameters)]
    assert [request.headers["authorization"] for request in requests] == ["Bearer of-environment", "Bearer given"]
