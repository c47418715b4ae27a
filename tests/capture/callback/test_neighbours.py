"""Other libraries that trace LangChain are read from their patch and logged once; without capture no run is recorded."""

import functools
import logging
from itertools import count

import pytest
from langchain_core.callbacks import BaseCallbackManager
from tests.live import QUESTION, Grounded, a_line, rag
from tests.outputs.memory import Memory

from spanscore import OnlineScorer, SingleTurnSample
from spanscore.capture.callback.model_metrics import log_other_tracers, other_tracers
from spanscore.config import Capture

NUMBERS = count()


@pytest.fixture
def patched(monkeypatch):
    """Patch callback managers as an instrumentation does; return its name, a new one, because each is logged once."""
    inner, name = BaseCallbackManager.__init__, f"tracer.kit_{next(NUMBERS)}"
    code = "def wrapper(self, *args, **kwargs): return inner(self, *args, **kwargs)"
    exec(code, namespace := {"__name__": name, "inner": inner})
    monkeypatch.setattr(BaseCallbackManager, "__init__", functools.wraps(inner)(namespace["wrapper"]))
    return name


def test_alone_there_is_no_neighbour():
    assert other_tracers() == []


def test_a_patch_of_callback_managers_is_named_by_where_it_was_written(patched):
    assert other_tracers() == [patched]


def test_a_wrapper_that_wraps_itself_is_looked_through_only_so_far(patched):
    BaseCallbackManager.__init__.__wrapped__ = BaseCallbackManager.__init__

    assert other_tracers() == [patched]


def test_a_neighbour_is_said_once_however_many_scorers_and_runs(patched, caplog):
    with caplog.at_level(logging.WARNING, logger="spanscore"):
        for _ in range(2):
            with a_line() as (scorer, _):
                for _ in range(3):
                    rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})

    assert [record.getMessage().split(" also ")[0] for record in caplog.records] == [patched]


def test_a_neighbour_stands_in_the_status(patched):
    with a_line() as (scorer, _):
        assert scorer.status().neighbours == [patched]
        assert f"also traced by {patched}" in str(scorer.status())


def test_nothing_is_said_when_there_is_nothing_to_say(caplog):
    log_other_tracers(other_tracers())

    assert caplog.records == []


@pytest.mark.parametrize("attach", ["handler", "install"])
def test_without_capture_nothing_is_recorded_and_the_answer_is_the_same(attach, patched, caplog):
    with a_line(capture=Capture(enabled=False)) as (scorer, trace):
        if attach == "install":
            scorer.install()
        answer = rag().invoke(QUESTION, config={"callbacks": [scorer.handler]} if attach == "handler" else None)
        assert scorer.flush(5)
        status = scorer.status()

    assert answer
    assert (trace.spans, status.units, status.eligible) == ([], 0, {"grounded": 0})
    assert caplog.records == []


def test_without_capture_a_submitted_sample_is_scored_and_measured():
    sample = SingleTurnSample(user_input=QUESTION, response="Paris.", retrieved_contexts=["Paris."])
    memory = Memory()
    with a_line(capture=Capture(enabled=False), meter_provider=memory.meter_provider) as (scorer, trace):
        scorer.submit(sample)
        assert scorer.flush(5)
        (scored,) = [
            n
            for labels, n in memory.values("spanscore.scored").items()
            if ("gen_ai.evaluation.score.label", "pass") in labels
        ]
        assert scored == 1

    assert [s.attributes["spanscore.score.grounded"] for s in trace.named("sample")] == [1.0]


def test_a_file_can_switch_capture_off(tmp_path):
    (tmp_path / "spanscore.yaml").write_text("metrics: [exact_match]\ncapture: {enabled: false}")

    with a_line(Grounded()) as (_, trace):
        scorer = OnlineScorer.from_config(tmp_path / "spanscore.yaml", tracer_provider=trace.provider)
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        scorer.shutdown()

    assert trace.spans == []
