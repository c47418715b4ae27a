"""Listed metadata are on the root, and readers of the exported spans decide by them as the process did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.capture.callback.tree import Captured, captured
from tests.live import QUESTION, rag

from spanscore import ConfigurationError, OnlineScorer
from spanscore.config import Capture
from spanscore.core.codecs.otlp import json_line, read_spans
from spanscore.core.codecs.sdk import WireAttributes, span_data
from spanscore.metrics import ExactMatch
from spanscore.samples.normalizers.registry import SpanNormalizers

LISTED = ("user_tier", "seats", "trial", "who", "absent")
GIVEN = {"user_tier": "gold", "seats": 3, "trial": False, "who": {"name": "Ada"}, "other": "secret"}


def asked(run: Captured) -> Any:
    rag().invoke(QUESTION, config=run.config(run_name="support", metadata=GIVEN))
    assert run.scorer.flush(10)
    return run.span("invoke_workflow support")


def metadata_of(span: Any) -> dict[str, Any]:
    return {name: value for name, value in span.attributes.items() if name.startswith("spanscore.metadata.")}


def test_the_listed_keys_stand_on_the_root_alone_and_structures_nowhere() -> None:
    with captured(capture=Capture(metadata=LISTED)) as run:
        root = asked(run)

    values = {f"spanscore.metadata.{key}": value for key, value in GIVEN.items() if key in LISTED[:3]}
    assert [metadata_of(span) for span in run.spans if metadata_of(span)] == [values]
    assert metadata_of(root) == values


def test_without_a_list_no_metadata_leave() -> None:
    with captured() as run:
        root = asked(run)

    assert metadata_of(root) == {}


def test_their_texts_are_redacted_and_a_redactor_that_fails_leaves_them_out() -> None:
    def shouting(text: str) -> str:
        if text == "gold":
            raise ValueError(text)
        return text.upper()

    with captured(capture=Capture(metadata=(*LISTED, "other")), redactor=shouting) as run:
        root = asked(run)

    assert metadata_of(root) == {
        "spanscore.metadata.seats": 3,
        "spanscore.metadata.trial": False,
        "spanscore.metadata.other": "SECRET",
    }


def test_a_unit_that_is_not_taken_tells_them_too() -> None:
    with captured(capture=Capture(metadata=["user_tier"]), sample_rate=0.0) as run:
        root = asked(run)

    assert metadata_of(root) == {"spanscore.metadata.user_tier": "gold"}


def test_they_are_metadata_again_in_a_process_and_over_the_wire() -> None:
    with captured(capture=Capture(metadata=LISTED)) as run:
        root = asked(run)

    read = {"user_tier": "gold", "seats": 3, "trial": False}
    assert span_data(root).metadata == read
    assert [span.metadata for span in read_spans([json_line([root])])] == [read]


EXTERNAL = {
    "genai": {"gen_ai.operation.name": "invoke_agent"},
    "openinference": {"openinference.span.kind": "AGENT", "metadata": '{"plan": "b"}'},
    "openllmetry": {"traceloop.span.kind": "workflow"},
}


@pytest.mark.parametrize("written", EXTERNAL)
def test_any_application_may_put_them_on_its_own_spans(written: str) -> None:
    with captured(capture=Capture(metadata=["user_tier"])) as run:
        data = span_data(asked(run))
    external = {"spanscore.metadata.user_tier": "gold", **EXTERNAL[written]}

    translated = SpanNormalizers().translate(replace(data, scope="some.library", attributes=WireAttributes(external)))

    assert translated is not None
    assert translated.metadata["user_tier"] == "gold"
    assert ("plan" in translated.metadata) == (written == "openinference")


def test_a_text_is_no_list_of_keys() -> None:
    with pytest.raises(
        ConfigurationError, match=r"capture\.metadata: is no list \(given: 'user_tier'\); write metadata: \[user_tier\]"
    ):
        OnlineScorer([ExactMatch()], capture=Capture(metadata="user_tier"))
