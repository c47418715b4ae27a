"""Each end of a conversation on the real line, with one counted observation of it; and the effect of faults."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.live import a_line, identity_holds, model
from tests.wiring.sessions import Turns, ends, evaluations, recall, talk
from tests.wiring.test_revisions import until
from tests.wiring.test_shadows import values_of

from spanscore import SingleTurnSample, semconv, session
from spanscore.config import Limits, Outputs, Sampling, Sessions
from spanscore.errors import JudgeUnavailable
from spanscore.scorer import pipeline_of
from spanscore.testing import MemorySink

HOUR_NS = 3_600_000_000_000


class HeldTurns(Turns):
    """Waits until it may go on."""

    def __init__(self, go_on: threading.Event) -> None:
        super().__init__()
        self._go_on = go_on

    async def measure(self, sample: Any) -> Any:
        while not self._go_on.is_set():  # noqa: ASYNC110  (another thread sets it)
            await asyncio.sleep(0.01)
        return await super().measure(sample)


class Down(Turns):
    """Has an unreachable judge."""

    async def measure(self, sample: Any) -> Any:
        raise JudgeUnavailable("nobody answers")


def observed(scorer: Any) -> tuple[int, dict[str, int]]:
    """How many sessions counted, and how they ended."""
    status = scorer.status()
    assert identity_holds(scorer)
    return status.eligible["turns"], dict(status.outcomes["turns"])


def test_one_that_is_idle_ends_by_itself() -> None:
    with a_line(sessions=Sessions(metrics=[Turns()])) as (scorer, trace):
        talk(scorer, "a", 2)
        assert scorer.flush(10)
        line = pipeline_of(scorer)
        line.span_thread.call(lambda: line.sessions.tick(line.span_thread.now_ns() + HOUR_NS), 5)
        assert scorer.flush(10)

        assert ends(trace) == ["idle"]
        assert observed(scorer) == (1, {"scored": 1})


def test_one_ends_with_its_last_turn_and_what_comes_after_is_a_revision() -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider(metric_readers=[reader])
    sessions, sampling = Sessions(metrics=[Turns()], max_turns=3), Sampling(rates={"grounded": 0.0})
    with a_line(sessions=sessions, sampling=sampling, meter_provider=meters) as (scorer, trace):
        recall(scorer, "a", 4)
        scorer.end_session("a")
        assert scorer.flush(10)

        assert ends(trace) == ["max_turns", "explicit"]
        assert [span.attributes[semconv.SCORE_REVISION] for span in evaluations(trace)] == [0, 1]
        assert observed(scorer) == (1, {"scored": 1})
        assert sum(values_of(reader, semconv.SCORED).values()) == 1


def test_one_that_is_never_idle_is_scored_on_the_way_and_counted_at_its_end() -> None:
    sessions, outputs = Sessions(metrics=[Turns()], score_every=5), Outputs(sinks=[sink := MemorySink()])
    with a_line(sessions=sessions, outputs=outputs) as (scorer, trace):
        for turn in range(12):
            talk(scorer, "a", 1, first=turn + 1)
            assert scorer.flush(10)
        before = observed(scorer)
        scorer.end_session("a")
        assert scorer.flush(10)

        assert before == (0, {})
        assert observed(scorer) == (1, {"scored": 1})
    turns = [span.attributes[semconv.SESSION_TURNS] for span in evaluations(trace)]
    assert (ends(trace), turns) == (["open", "open", "explicit"], [5, 10, 12])
    assert len({score.id for score in sink.scores if score.metric == "turns"}) == 3


@pytest.mark.parametrize("said", [talk, recall])
def test_the_conversation_is_whole_with_and_without_history(said: Any) -> None:
    with a_line(sessions=Sessions(metrics=[Turns()])) as (scorer, trace):
        said(scorer, "a", 3)
        scorer.end_session("a")
        assert scorer.flush(10)

        (span,) = evaluations(trace)
    assert span.attributes[semconv.EVALUATION_SCORE_VALUE] == 0.15


def test_with_any_replica_a_turn_that_tells_nothing_of_the_others_makes_it_incomplete_and_says_why() -> None:
    with a_line(sessions=Sessions(metrics=[Turns()], replicas="any")) as (scorer, trace):
        talk(scorer, "a", 2)
        scorer.end_session("a")
        assert scorer.flush(10)

        assert (ends(trace), observed(scorer)) == ([], (1, {"incomplete": 1}))
        assert "several replicas" in scorer.status().reasons["turns incomplete"]


def test_a_turn_whose_sample_the_redactor_kept_back_makes_it_incomplete() -> None:
    def redactor(text: str) -> str:
        if "question 2" in text:
            raise ValueError(text)
        return text

    with a_line(sessions=Sessions(metrics=[Turns()]), redactor=redactor) as (scorer, trace):
        talk(scorer, "a", 3)
        scorer.end_session("a")
        assert scorer.flush(10)

        assert (ends(trace), observed(scorer)) == ([], (1, {"incomplete": 1}))


def test_a_judge_that_is_down_is_one_failed_observation() -> None:
    with a_line(sessions=Sessions(metrics=[Down()])) as (scorer, _):
        talk(scorer, "a", 2)
        scorer.end_session("a")
        assert scorer.flush(10)

        assert observed(scorer) == (1, {"judge_error": 1})


def test_one_that_finds_no_place_in_the_queue_is_counted_as_that() -> None:
    go_on = threading.Event()
    with a_line(
        sessions=Sessions(metrics=[HeldTurns(go_on)]),
        limits=Limits(queue_size=1),
        sampling=Sampling(rates={"grounded": 0.0}),
    ) as (scorer, _):
        for one in ("a", "b"):
            talk(scorer, one, 1)
            assert scorer.flush(10)
        for one in ("a", "b"):
            scorer.end_session(one)
        until(lambda: scorer.status().outcomes["turns"] == {"queue_full": 1})
        go_on.set()
        assert scorer.flush(10)
        assert observed(scorer) == (2, {"queue_full": 1, "scored": 1})


def test_one_whose_last_turn_has_no_sample_ends_without_waiting_for_another_event() -> None:
    go_on = threading.Event()
    with a_line(
        sessions=Sessions(metrics=[HeldTurns(go_on)]),
        limits=Limits(queue_size=1),
        sampling=Sampling(rates={"grounded": 0.0}),
    ) as (scorer, _):
        talk(scorer, "a", 1)
        assert scorer.flush(10)
        scorer.end_session("a")  # takes the only place
        until(lambda: scorer.status().queue[0] == 1)
        talk(scorer, "b", 1)
        scorer.end_session("b")

        until(lambda: scorer.status().outcomes["turns"] == {"incomplete": 1})
        go_on.set()


def test_a_fault_of_ours_ends_one_and_holds_up_neither_the_next_nor_a_flush() -> None:
    with a_line(sessions=Sessions(metrics=[Turns()])) as (scorer, _trace):
        sessions = pipeline_of(scorer).sessions
        dispatch, sessions.dispatch = sessions.dispatch, [].index  # raises
        talk(scorer, "a", 1)
        scorer.end_session("a")
        assert scorer.flush(10)
        sessions.dispatch = dispatch
        talk(scorer, "b", 1)
        scorer.end_session("b")
        assert scorer.flush(10)

        assert observed(scorer) == (2, {"incomplete": 1, "scored": 1})
        assert scorer.status().queue[0] == 0


def test_a_shutdown_ends_what_is_open_and_scores_it_in_the_time_there_is() -> None:
    with a_line(sessions=Sessions(metrics=[Turns()])) as (scorer, trace):
        talk(scorer, "a", 2)
        talk(scorer, "b", 1)
        scorer.shutdown(timeout=10)

        assert ends(trace) == ["shutdown", "shutdown"]
        assert observed(scorer) == (2, {"scored": 2})


def test_what_a_shutdown_has_no_time_for_ends_as_shutdown() -> None:
    with a_line(sessions=Sessions(metrics=[HeldTurns(threading.Event())])) as (scorer, trace):
        talk(scorer, "a", 2)
        scorer.shutdown(timeout=3)  # enough for a busy machine to begin it

        assert (ends(trace), observed(scorer)) == ([], (1, {"shutdown": 1}))


def test_a_flush_ends_no_conversation() -> None:
    with a_line(sessions=Sessions(metrics=[Turns()])) as (scorer, _):
        talk(scorer, "a", 2)
        assert scorer.flush(10)

        assert observed(scorer) == (0, {})
        assert scorer.status().sessions.open == 1


def test_a_scorer_of_sessions_alone_counts_units_of_none_and_those_without_a_conversation() -> None:
    with a_line(sessions=Sessions(metrics=[Turns()]), sampling=Sampling(rates={"turns": 1.0})) as (scorer, _):
        model().invoke("hello", config={"callbacks": [scorer.handler]})
        talk(scorer, "a", 1)
        assert scorer.flush(10)

        assert scorer.status().sessions.without_id == 1
        assert "1 unit is without a conversation id" in str(scorer.status().sessions)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_in_a_forked_child_no_session_of_the_parent_is_open() -> None:
    with a_line(sessions=Sessions(metrics=[Turns()])) as (scorer, _):
        talk(scorer, "a", 2)
        assert scorer.flush(10)
        if (child := os.fork()) == 0:
            status = scorer.status()
            os._exit(int(status.sessions.open + status.eligible["turns"] + scorer.end_session("a")))

        assert os.waitpid(child, 0)[1] == 0
        assert scorer.end_session("a")


def test_ending_one_that_no_metric_takes_leaves_nothing_behind() -> None:
    with a_line(sessions=Sessions(metrics=[Turns()]), sampling=Sampling(rates={"turns": 0.5})) as (scorer, _):
        for number in range(40):
            talk(scorer, str(number), 1)
            assert scorer.end_session(str(number))
        assert scorer.flush(10)

        assert scorer.status().outcomes["turns"]["not_sampled"] > 0
        assert pipeline_of(scorer).sessions.ids.count() == 0


@pytest.mark.parametrize("bounds", [Sessions(max_turns=3), Sessions(score_every=3)], ids=["ended", "provisional"])
def test_a_flush_waits_for_what_its_turns_have_scored(bounds: Sessions) -> None:
    go_on = threading.Event()
    with a_line(sessions=bounds.model_copy(update={"metrics": [HeldTurns(go_on)]})) as (scorer, trace):
        talk(scorer, "a", 3)
        waited_for = not scorer.flush(0.3)
        go_on.set()

        assert waited_for
        assert scorer.flush(10)
        assert len(evaluations(trace)) == 1


@pytest.mark.parametrize("turn", [talk, lambda scorer, id, turns: submit(scorer, id)], ids=["run", "sample"])
def test_one_of_which_a_turn_was_refused_is_incomplete(turn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_line(sessions=Sessions(metrics=[Turns()])) as (scorer, _):
        talk(scorer, "a", 1)
        talk(scorer, "b", 1)
        with monkeypatch.context() as full:
            full.setattr(pipeline_of(scorer).event_queue, "admits", lambda: False)
            turn(scorer, "a", 1)
        talk(scorer, "a", 1, first=3)
        for session_id in "ab":
            assert scorer.end_session(session_id)
        assert scorer.flush(10)

        assert observed(scorer) == (2, {"incomplete": 1, "scored": 1})
        assert (
            scorer.status().reasons["turns incomplete"] == "a turn of the conversation was rejected: event_queue_full"
        )


def submit(scorer: Any, session_id: str) -> None:
    with session(session_id):
        assert scorer.submit(SingleTurnSample(user_input="question", response="answer")) is None
