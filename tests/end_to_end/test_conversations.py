"""An agent in two processes, a thumb down from a third: session scores and labels are with the traces."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from tests.end_to_end.talking import LATER_S, SERVICE
from tests.servers.jaeger import Jaeger, Traces
from tests.servers.server import fetch_json, poll

pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]

Units = dict[str, list[tuple[str, str]]]
CONVERSATIONS = {"Brest": 4, "Cork": 2, "Vigo": 3}


def run(*arguments: str) -> str:
    """Run a process of the application to its end; return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.end_to_end.talking", *arguments], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture(scope="module")
def units(jaeger: Jaeger) -> Units:
    """Conversation → both ids of the unit of each turn; the processes that had them have ended."""
    first = run("talk", jaeger.traces_endpoint, "Brest=4", "Cork=2")
    second = run("talk", jaeger.traces_endpoint, "Vigo=3")
    document = {**json.loads(first), **json.loads(second)}
    return {name: [(trace_id, span_id) for trace_id, span_id in turns] for name, turns in document.items()}


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_a_conversation_is_found_by_its_id_with_one_score_of_the_whole(
    jaeger: Jaeger, units: Units, conversation: str
) -> None:
    turns = units[conversation]

    traces = jaeger.search(
        SERVICE, {"gen_ai.conversation.id": conversation}, lambda found: len(found) == len(turns) and any(scores(found))
    )

    assert {trace["traceID"] for trace in traces} == {trace_id for trace_id, _ in turns}
    (score,) = scores(traces)
    attributes = tags(score)
    assert attributes["gen_ai.conversation.id"] == conversation
    assert (attributes["spanscore.session.turns"], attributes["spanscore.session.end"]) == (len(turns), "explicit")
    assert attributes["gen_ai.evaluation.explanation"] == f"{len(turns)} of {len(turns)} questions"
    assert parent(score) == turns[-1]
    assert linked(score) == {*turns}


def test_a_thumb_down_from_another_process_is_on_the_trace(jaeger: Jaeger, units: Units) -> None:
    unit = units["Vigo"][1]

    run("label", jaeger.traces_endpoint, *unit)

    trace = poll(lambda: labelled(jaeger, unit[0]), deadline_s=20.0, what="the label in Jaeger")
    (label,) = named(trace, "evaluation user_feedback")
    (answered,) = (span for span in trace["spans"] if span["spanID"] == unit[1])
    assert parent(label) == unit
    assert tags(label)["gen_ai.evaluation.score.label"] == "fail"
    assert label["startTime"] - answered["startTime"] > LATER_S * 1e6


def labelled(jaeger: Jaeger, trace_id: str) -> dict[str, Any]:
    """Return a trace once it has a label; by its id, as a search of Jaeger ends now, and the label is of ten minutes later."""
    (trace,) = fetch_json(f"{jaeger.url}/api/traces/{trace_id}")["data"]
    return trace if named(trace, "evaluation user_feedback") else {}


def scores(traces: Traces) -> list[dict[str, Any]]:
    return [span for trace in traces for span in named(trace, "evaluation answered")]


def named(trace: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [span for span in trace["spans"] if span["operationName"] == name]


def tags(span: dict[str, Any]) -> dict[str, Any]:
    return {tag["key"]: tag["value"] for tag in span["tags"]}


def parent(span: dict[str, Any]) -> tuple[str, str]:
    """Return the parent of a span: Jaeger lists a parent that is also linked to once, as the first reference."""
    first = span["references"][0]
    return first["traceID"], first["spanID"]


def linked(span: dict[str, Any]) -> set[tuple[str, str]]:
    return {(one["traceID"], one["spanID"]) for one in span["references"]}
