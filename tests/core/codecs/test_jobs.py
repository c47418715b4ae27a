"""Jobs ↔ JSON: a stored job is read back unchanged, and an unreadable one gives a reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanscore.core.codecs.job import UnreadableJob, job_of, json_of_job, json_of_scores, scores_of
from spanscore.core.job import Decision, Job
from spanscore.core.sample import (
    AIMessage,
    HumanMessage,
    Image,
    MultiTurnSample,
    Samples,
    SingleTurnSample,
    ToolCall,
    ToolDefinition,
    ToolMessage,
)
from spanscore.core.score import JudgeCall, Outcome, Scale, Score, Transcript, Usage
from spanscore.core.span import NoContent, SamplingContext, Session, SpanData, Unit, UnitKey, UpstreamDecision
from spanscore.testing import make_score, make_span, make_unit

TEXTS = st.text(st.characters(), max_size=8)  # lone surrogates included
SAID = st.text(max_size=8)
NAMES = st.text("abc_", min_size=1, max_size=3)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.none() | st.booleans() | NUMBERS | SAID
ATTRIBUTES = st.dictionaries(NAMES, st.booleans() | NUMBERS | SAID | st.lists(SAID, max_size=2), max_size=3)
NESTED = st.dictionaries(NAMES, VALUES | st.lists(VALUES, max_size=2), max_size=2)
KEYS = st.builds(UnitKey, st.integers(0, 2**128 - 1), st.integers(0, 2**64 - 1))
THRESHOLDS = st.integers(0, 2**56 - 1)
SHARES = st.floats(0, 1)
DECIDED = st.dictionaries(NAMES, st.builds(UpstreamDecision, st.booleans(), THRESHOLDS, SAID), max_size=2)
SPANS = st.builds(
    SpanData,
    trace_id=st.integers(0, 2**128 - 1),
    span_id=st.integers(0, 2**64 - 1),
    parent_id=st.none() | st.integers(0, 2**64 - 1),
    start_ns=st.integers(0, 2**63),
    end_ns=st.integers(0, 2**63),
    name=SAID,
    scope=SAID,
    kind=st.sampled_from(["internal", "client"]),
    status=st.sampled_from(["unset", "ok", "error"]),
    attributes=ATTRIBUTES,
    metadata=NESTED,
    resource=st.none() | ATTRIBUTES,
    trace_flags=st.integers(0, 255),
    trace_state=SAID,
    failed_inside=st.booleans(),
    parent_is_remote=st.none() | st.booleans(),
    events=st.lists(st.tuples(SAID, ATTRIBUTES), max_size=1).map(tuple),
    no_content=st.none() | st.builds(NoContent, SAID, SAID),
    conversation_id=st.none() | SAID,
    decided=st.none() | DECIDED,
)
SESSIONS = st.builds(
    Session, KEYS, st.integers(1, 99), st.sampled_from(["idle", "open"]), st.lists(KEYS, max_size=2).map(tuple)
)
UNITS = st.builds(
    Unit,
    KEYS,
    st.lists(SPANS, max_size=2).map(tuple),
    complete=st.booleans(),
    revision=st.integers(0, 3),
    session=st.none() | SESSIONS,
)
CALLS = st.builds(ToolCall, name=TEXTS, args=NESTED, id=st.none() | SAID)
SPOKEN = st.builds(HumanMessage, content=TEXTS, metadata=st.none() | NESTED) | st.builds(
    AIMessage, content=TEXTS, tool_calls=st.none() | st.lists(CALLS, max_size=2), metadata=st.none() | NESTED
)
CALLED = st.just([AIMessage(tool_calls=[ToolCall(name="find")]), ToolMessage(content="found", metadata={"a": None})])
IMAGES = st.builds(Image, url=SAID, media_type=st.none() | SAID) | st.builds(
    Image, base64=SAID, media_type=st.sampled_from(["image/png", "image/jpeg"])
)
MULTI = st.builds(
    MultiTurnSample,
    user_input=st.tuples(st.lists(SPOKEN, max_size=3), CALLED).map(lambda both: [*both[0], *both[1]]),
    reference_tool_calls=st.none() | st.lists(CALLS, max_size=1),
    tools=st.none()
    | st.lists(
        st.builds(ToolDefinition, name=SAID, description=st.none() | SAID, parameters=st.none() | NESTED), max_size=1
    ),
    images=st.none() | st.lists(IMAGES, max_size=2),
)
SAMPLES = st.builds(
    Samples,
    single_turn=st.none() | st.builds(SingleTurnSample, images=st.none() | st.lists(IMAGES, max_size=2)),
    multi_turn=st.none() | MULTI,
    outcome=st.none() | st.sampled_from(Outcome),
    reason=st.none() | SAID,
    searched=st.lists(st.tuples(SAID, SAID), max_size=2).map(tuple),
    source=st.none() | SAID,
    unused_documents=st.none() | st.integers(0, 9),
    interrupted=st.booleans(),
    images_left_out=st.integers(0, 9),
)
DECISIONS = st.builds(
    Decision,
    take=st.booleans(),
    probability=SHARES,
    threshold=THRESHOLDS,
    rule=SAID,
    randomness=st.none() | THRESHOLDS,
    met=st.none() | THRESHOLDS,
    upstream=SHARES,
    rates=st.lists(st.tuples(SAID, SHARES), max_size=2).map(tuple),
)
FACTS = st.builds(
    SamplingContext,
    KEYS,
    trace_state=SAID,
    duration_ns=st.none() | st.integers(0, 2**63),
    metadata=st.none() | NESTED,
    models=st.none() | st.frozensets(SAID, max_size=2),
    scores=st.none() | st.dictionaries(NAMES, st.none() | SHARES, max_size=2),
    conversation_id=st.none() | SAID,
    decided=st.none() | DECIDED,
)
JOBS = st.builds(
    Job,
    UNITS,
    SAMPLES,
    st.dictionaries(NAMES, DECISIONS, max_size=2),
    st.integers(0, 2**40),
    undecided=st.none() | FACTS,
    delegated=st.just(True),
)
CONVERSATION = MultiTurnSample(
    user_input=[
        HumanMessage(content="Where?"),
        AIMessage(tool_calls=[ToolCall(name="find", args={"what": "it"}, id="1")]),
        ToolMessage(content="there", tool_call_id="1"),
    ],
    reference_tool_calls=[ToolCall(name="find")],
    tools=[ToolDefinition(name="find", parameters={"type": "object"})],
)
SCORE = make_score(
    0.5, reason="because", missing=("reference",), error_type="x", source="fallback", id="ab", revision=2
)


def a_job(**given: Any) -> Job:
    unit = replace(make_unit(make_span()), session=Session(UnitKey(3, 4), 2, "idle", (UnitKey(1, 2),)))
    job = Job(unit, Samples(multi_turn=CONVERSATION), {}, size_bytes=1, delegated=True)
    return replace(job, **given)


def _ours(value: Any, name: str = "") -> Iterator[dict[str, Any]]:
    """The objects with spanscore's own keys, including the document."""
    if isinstance(value, list):
        for inner in value:
            yield from _ours(inner)
    if isinstance(value, dict) and name not in {"args", "attributes", "parameters"}:
        for key, inner in value.items():
            yield from _ours(inner, key)
        if name != "decisions":
            yield value


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(JOBS)
def test_a_job_written_and_read_is_the_job_that_was_written(job: Job) -> None:
    assert job_of(json_of_job(job)) == job


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(JOBS, ATTRIBUTES)
def test_a_span_that_names_no_resource_takes_that_of_its_process_along(job: Job, resource: dict[str, Any]) -> None:
    spans = tuple(replace(one, resource=resource) if one.resource is None else one for one in job.unit.spans)

    assert job_of(json_of_job(job, resource)) == replace(job, unit=replace(job.unit, spans=spans))


@given(st.lists(st.builds(Score, outcome=st.sampled_from(sorted({*Outcome} - {Outcome.SCORED}))), max_size=3))
def test_scores_written_and_read_are_the_scores_that_were_written(scores: list[Score]) -> None:
    assert scores_of(json_of_scores(scores)) == tuple(scores)


@pytest.mark.parametrize("scale", [Scale(), Scale(range=None), Scale(kind="ordinal", range=(1.0, 5.0))])
def test_a_score_with_a_value_keeps_its_scale_and_its_threshold(scale: Scale) -> None:
    score = make_score(1.0, scale=scale, threshold=2**56 - 1, probability=2**-56)

    assert scores_of(json_of_scores([score, SCORE])) == (score, SCORE)


def test_what_a_judge_was_asked_travels_with_the_score() -> None:
    said = Transcript(ended_ns=2**62, system="be fair", user="Paris?", answer="yes")
    usage = Usage((JudgeCall(step="critique", model="m", cost_usd=0.01, transcript=said), JudgeCall(step="again")))

    read = scores_of(json_of_scores([make_score(usage=usage)]))

    assert not isinstance(read, UnreadableJob)
    assert read[0].usage == usage
    assert [call.transcript for call in read[0].usage.calls] == [said, None], "it is no part of the comparison of calls"


def test_thresholds_and_ids_are_hex_as_they_are_on_the_wire() -> None:
    job = a_job(decisions={"faithfulness": Decision(True, 0.5, 2**55, randomness=1, met=2)})

    document = json.loads(json_of_job(job))

    decision = document["decisions"]["faithfulness"]
    assert [decision[name] for name in ("threshold", "randomness", "met")] == [
        "80000000000000",
        "00000000000001",
        "00000000000002",
    ]
    assert document["unit"]["key"] == [f"{job.unit.key.trace_id:032x}", f"{job.unit.key.span_id:016x}"]


def test_fields_that_a_newer_writer_has_added_are_left_alone() -> None:
    job = a_job(decisions={"faithfulness": Decision(True, 0.5, 2**55)}, undecided=SamplingContext(UnitKey(1, 2)))
    document = json.loads(json_of_job(job))

    for thing in _ours(document):
        thing["added_later"] = {"any": 1}

    assert job_of(json.dumps(document).encode()) == job


@pytest.mark.parametrize(
    ("document", "because"),
    [
        (b'{"version": 2}', "it has version 2, and this spanscore reads 1"),
        (b'{"version": 1}', "it cannot be read (KeyError)"),
        (b"[]", "it cannot be read (TypeError)"),
        (b"\xff secret", "it cannot be read (UnicodeDecodeError)"),
        (b'{"version": 1, "secret', "it cannot be read (JSONDecodeError)"),
    ],
)
def test_what_cannot_be_read_says_why_and_quotes_nothing(document: bytes, because: str) -> None:
    assert job_of(document) == scores_of(document) == UnreadableJob(because)


def test_a_hand_made_sample_that_json_cannot_carry_is_written_all_the_same() -> None:
    args: Any = {"at": np.zeros(2), 1: float("nan"), "deep": {"bytes": b"x"}}
    call = AIMessage(content="I look", tool_calls=[ToolCall.model_construct(name="find", args=args)])
    asked = [HumanMessage(content=f"question {number}") for number in range(30_000)]

    job = job_of(json_of_job(a_job(samples=Samples(multi_turn=MultiTurnSample(user_input=[*asked, call])))))

    assert isinstance(job, Job)
    assert job.samples.multi_turn is not None
    assert job.samples.multi_turn.user_input[:-1] == asked, "nothing that can be carried is cut"
    last = job.samples.multi_turn.user_input[-1]
    assert isinstance(last, AIMessage)
    assert (last.tool_calls or [])[0].args == {
        "at": {"type": "ndarray"},
        "1": "NaN",
        "deep": {"bytes": {"type": "bytes", "size": 1}},
    }


def test_metadata_of_the_application_are_rendered_and_nothing_of_theirs_is_called() -> None:
    job = a_job(unit=make_unit(make_span(metadata={"tier": "gold", "at": np.zeros(2)})))

    read = job_of(json_of_job(job))

    assert isinstance(read, Job)
    assert read.unit.spans[0].metadata == {"tier": "gold", "at": {"type": "ndarray"}}
