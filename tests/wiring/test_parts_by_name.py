"""A sink, a dialect and a queue of the user: an object in Python, a name with parameters in Python and in a file."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import ModuleType
from typing import Any

import pytest
from tests.live import Grounded, a_line, a_trace, run_rag

from spanscore import ConfigurationError, OnlineScorer
from spanscore.cli._config_report import config_report
from spanscore.config import Capture, Limits, Outputs, Units
from spanscore.core.sample import Samples, SingleTurnSample
from spanscore.core.span import SpanData, Unit
from spanscore.outputs.score_events import EvaluationEvents
from spanscore.pipeline.queues import MemoryQueue
from spanscore.testing import MemorySink


class Labelled(MemorySink):
    """A sink with parameters."""

    made: list[Labelled] = []  # noqa: RUF012

    def __init__(self, label: str, content: bool = True) -> None:
        super().__init__()
        self.label, self.content = label.strip(), content
        Labelled.made.append(self)


class Provided(MemorySink):
    """A sink with parameters that only spanscore's own sinks get."""

    def __init__(self, providers: object) -> None:
        super().__init__()


class Shouting:
    """A dialect that reads every unit, and always finds the same."""

    def accepts(self, span: SpanData) -> bool:
        return True

    def extract(self, unit: Unit) -> Samples:
        return Samples(single_turn=SingleTurnSample(user_input="LOUD?", response="LOUD", retrieved_contexts=["LOUD"]))


class Hanging(Shouting):
    """A dialect that asks a service which never answers."""

    def __init__(self, go_on: threading.Event) -> None:
        self.go_on = go_on

    def extract(self, unit: Unit) -> Samples:
        self.go_on.wait(30)
        return super().extract(unit)


class Small(MemoryQueue):
    """A queue with parameters."""


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("my_parts")
    for part in (Labelled, Provided, Shouting, Small):
        setattr(module, part.__name__, part)
    monkeypatch.setitem(sys.modules, "my_parts", module)
    monkeypatch.setattr(Labelled, "made", [])


def ran(scorer: OnlineScorer) -> OnlineScorer:
    run_rag(scorer)
    return scorer


def test_a_file_names_them_with_their_parameters(tmp_path: Any) -> None:
    file = tmp_path / "spanscore.yaml"
    file.write_text(
        "metrics: [exact_match, string_presence]\n"
        "outputs: {sinks: [{'my_parts:Labelled': {label: here}}]}\n"
        "units: {dialects: ['my_parts:Shouting']}\n"
        "limits: {job_queue: {'my_parts:Small': {capacity: 7}}}\n"
    )

    with OnlineScorer.from_config(file, metrics=[seen := Grounded()], tracer_provider=a_trace().provider) as scorer:
        assert ran(scorer).status().queue == (0, 7)

    (sink,) = Labelled.made
    assert (sink.label, [score.metric for score in sink.scores], sink.closed) == ("here", ["grounded"], True)
    assert [sample.response for sample in seen.seen] == ["LOUD"]


def test_python_gives_them_as_they_are() -> None:
    sink, queue = MemorySink(), Small(3)

    with a_line(
        seen := Grounded(),
        outputs=Outputs(sinks=[sink]),
        units=Units(dialects=[Shouting()]),
        limits=Limits(job_queue=queue),
    ) as (scorer, _):
        assert ran(scorer).status().queue == (0, 3)

    assert [score.value for score in sink.scores] == [1.0]
    assert [sample.user_input for sample in seen.seen] == ["LOUD?"]


@pytest.mark.parametrize("content", [True, False])
def test_a_sink_that_takes_content_knows_whether_content_may_leave(content: bool) -> None:
    with a_line(outputs=Outputs(sinks=[{"my_parts:Labelled": {"label": "x"}}]), capture=Capture(content=content)):
        assert [sink.content for sink in Labelled.made] == [content]


def test_a_sink_is_closed_though_no_score_came() -> None:
    with a_line(outputs=Outputs(sinks=[sink := MemorySink()])):
        pass

    assert sink.closed


def test_the_queue_of_the_user_is_asked_for_places() -> None:
    with a_line(limits=Limits(job_queue={"my_parts:Small": {"capacity": 1, "max_bytes": 1}}, queue_size=9)) as (
        scorer,
        _,
    ):
        assert scorer.status().queue[1] == 1


def test_a_dialect_that_hangs_is_the_outcome_of_its_unit() -> None:
    go_on = threading.Event()
    with a_line(units=Units(dialects=[Hanging(go_on)]), limits=Limits(hook_timeout=0.5)) as (scorer, _):
        status = ran(scorer).status()
        go_on.set()

    assert status.outcomes == {"grounded": {"no_sample": 1}}
    assert status.reasons == {"grounded no_sample": "Hanging.extract did not return within 0.5 s"}


KEYS = {"sinks": ("outputs", "sinks"), "dialects": ("units", "dialects"), "queue": ("limits", "job_queue")}


@pytest.mark.parametrize(
    ("option", "wrong", "message"),
    [
        ("sinks", ["evnt"], "unknown sink 'evnt': did you mean 'event'"),
        ("sinks", ["event"], "'event', which is a switch"),
        ("sinks", [{"my_parts:Labelled": {"lable": "x"}}], "sink 'my_parts:Labelled' has no parameter 'lable'.*label"),
        (
            "sinks",
            [{"my_parts:Labelled": {"label": 5}}],
            "sink 'my_parts:Labelled' cannot be made: AttributeError: 'int'",
        ),
        ("sinks", ["my_parts:Labelled"], "missing a required argument: 'label'"),
        ("sinks", ["my_parts:Provided"], "missing a required argument: 'providers'"),
        ("sinks", ["my_parts:Shouting"], "made a Shouting, which is not a sink"),
        ("sinks", [object()], "is not a sink: it needs emit and shutdown"),
        ("dialects", ["my_parts:Nope"], "has no Nope"),
        ("queue", "disk", "unknown queue 'disk': built-in names are memory"),
        ("queue", {"my_parts:Small": {}, "memory": {}}, "names 2 queues; name one"),
    ],
)
def test_what_cannot_be_made_is_refused_at_once(option: str, wrong: Any, message: str) -> None:
    section, field = KEYS[option]

    with pytest.raises(ConfigurationError, match=message):
        OnlineScorer([Grounded()], **{section: {field: wrong}})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("outputs: {sinks: [nope]}", "outputs.sinks: unknown sink 'nope'"),
        ("outputs: {sinks: [event]}", "which is a switch"),
        ("outputs: {sinks: [3]}", "outputs.sinks.0: write a name, alone or with its parameters"),
        ("outputs: {sinks: my_parts:Labelled}", "outputs.sinks: is no list"),
        (
            "outputs: {sinks: [{'my_parts:Labelled': {lable: x}}]}",
            "outputs.sinks: sink 'my_parts:Labelled' has no parameter 'lable'",
        ),
        ("outputs: {sinks: ['my_parts:Provided']}", "missing a required argument: 'providers'"),
        (
            "limits: {job_queue: {my_parts:Small: {}, memory: {}}}",
            "limits.job_queue: {'my_parts:Small': {}, 'memory': {}} names 2 queues; name one",
        ),
        (
            "units: {dialects: ['my_parts:Nope']}",
            "units.dialects: dialect 'my_parts:Nope': module my_parts has no Nope",
        ),
        ("limits: {job_queue: {memory: {size: 3}}}", "limits.job_queue: queue 'memory' has no parameter 'size'"),
        ("limits: {job_queue: [memory]}", "limits.job_queue: write a name"),
        ("limits: {job_queue: null}", "limits.job_queue: write a name"),
        ("outputs: {sinks: [null]}", "outputs.sinks.0: write a name"),
        ("units: {dialects: [!!binary aGk=]}", "units.dialects.0: write a name"),
        ("redactor: ''", "redactor: write a name"),
        ("redactor: {}", "redactor: write a name"),
    ],
)
def test_check_tells_what_cannot_be_made_and_makes_nothing(text: str, expected: str, tmp_path: Any) -> None:
    file = tmp_path / "spanscore.yaml"
    file.write_text(f"metrics: [exact_match]\n{text}\n")

    assert [error for error in config_report(file).errors if expected in error]
    assert len(config_report(file).errors) == 1
    assert Labelled.made == []


def test_check_finds_nothing_wrong_with_what_can_be_made(tmp_path: Any) -> None:
    file = tmp_path / "spanscore.yaml"
    file.write_text(
        "metrics: [exact_match]\noutputs: {sinks: [{'my_parts:Labelled': {label: x}}]}\nlimits: {job_queue: my_parts:Small}\n"
    )

    assert config_report(file).errors == ()
    assert Labelled.made == []


def test_a_scorer_that_has_no_run_yet_has_loaded_no_sink() -> None:
    script = (
        "import sys; from spanscore import OnlineScorer, metric; OnlineScorer([metric(lambda sample: 1.0, name='m')])"
    )
    loaded = (
        f"assert {EvaluationEvents.__module__!r} not in sys.modules and 'opentelemetry.sdk._logs' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", f"{script}; {loaded}"], check=True)
