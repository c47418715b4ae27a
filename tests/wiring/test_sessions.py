"""Conversations on the real line: each is gathered, ends once and is one observation."""

from __future__ import annotations

import contextvars
import threading
from typing import Any

import pytest
from tests.live import Grounded, a_line, identity_holds, model
from tests.wiring.sessions import Turns, evaluations, talk

from spanscore import ConfigurationError, OnlineScorer, references, semconv, session
from spanscore.config import JudgeSettings, Sampling, Sessions


def test_a_conversation_that_is_ended_has_one_score_below_its_last_turn() -> None:
    with a_line(sessions=Sessions(metrics=[Turns()])) as (scorer, trace):
        talk(scorer, "a", 3)
        assert scorer.end_session("a")
        assert scorer.flush(10)

        (span,) = evaluations(trace)
        assert scorer.status().outcomes["turns"] == {"scored": 1}
        assert identity_holds(scorer)
    values = {
        name: span.attributes[name] for name in (semconv.SESSION_TURNS, semconv.SESSION_END, semconv.CONVERSATION_ID)
    }
    assert values == {semconv.SESSION_TURNS: 3, semconv.SESSION_END: "explicit", semconv.CONVERSATION_ID: "a"}
    assert span.attributes[semconv.EVALUATION_SCORE_VALUE] == 0.15
    assert span.parent.span_id == max(trace.roots, key=lambda root: root.end_time).context.span_id
    assert {link.context.span_id for link in span.links} == {root.context.span_id for root in trace.roots}


def test_a_turns_own_span_carries_no_score_of_its_session() -> None:
    with a_line(sessions=Sessions(metrics=[Turns()])) as (scorer, trace):
        talk(scorer, "a", 2)
        scorer.end_session("a")
        assert scorer.flush(10)

        assert not any(semconv.SCORE + "turns" in root.attributes for root in trace.roots)


def test_the_block_wins_over_metadata_and_each_thread_has_its_own() -> None:
    with a_line() as (scorer, trace):
        config = {"callbacks": [scorer.handler], "metadata": {"session_id": "metadata"}}
        with session("outer"):
            thread = threading.Thread(target=model().invoke, args=("hello", config))
            thread.start()
            thread.join()
            with session("inner"):
                model().invoke("hello", config)
        assert scorer.flush(10)

        assert [root.attributes[semconv.CONVERSATION_ID] for root in trace.roots] == ["metadata", "inner"]


@pytest.mark.parametrize("session_id", ["", None, 7, b"a"])
def test_a_session_without_a_text_for_its_id_is_a_type_error(session_id: Any) -> None:
    with pytest.raises(TypeError, match="non-empty text"), session(session_id):
        pass
    with (
        a_line(sessions=Sessions(metrics=[Turns()])) as (scorer, _),
        pytest.raises(TypeError, match="non-empty text"),
    ):
        scorer.end_session(session_id)


def test_what_is_unknown_or_has_ended_is_not_ended_again() -> None:
    with a_line(sessions=Sessions(metrics=[Turns()])) as (scorer, _):
        talk(scorer, "a", 1)

        assert [scorer.end_session(one) for one in ("b", "a", "a")] == [False, True, False]
        assert scorer.flush(10)
        assert scorer.status().eligible["turns"] == 1


@pytest.mark.parametrize(
    ("metrics", "options", "expected"),
    [
        ([], {"sessions": Sessions(metrics=[Grounded()])}, "scores no conversation"),
        ([Turns()], {"sessions": Sessions(metrics=[Turns()])}, "scores units or sessions"),
        (
            [],
            {"sessions": Sessions(metrics=[Turns()]), "judge": JudgeSettings(shadows=[Turns()])},
            "second judges score units",
        ),
        ([], {}, "at least one metric"),
        (
            [],
            {"sessions": Sessions(metrics=[Turns()]), "sampling": {"rates": {"turns": 2}}},
            r"sampling\.rates\.turns: must be 1 or less \(given: 2\)",
        ),
    ],
)
def test_metrics_that_cannot_score_sessions_are_refused(metrics: Any, options: Any, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        OnlineScorer(metrics, **options)


def test_of_forty_conversations_at_half_the_rate_each_is_wholly_in_or_out() -> None:
    with a_line(sessions=Sessions(metrics=[Turns()]), sampling=Sampling(rates={"grounded": 0.0, "turns": 0.5})) as (
        scorer,
        trace,
    ):
        for turn in range(4):
            for one in range(40):
                talk(scorer, f"conversation-{one}", 1, first=turn + 1)
        for one in range(40):
            assert scorer.end_session(f"conversation-{one}")
        assert scorer.flush(30)

        turns = [span.attributes[semconv.SESSION_TURNS] for span in evaluations(trace)]
        assert set(turns) == {4}
        assert 10 <= len(turns) <= 30
        assert identity_holds(scorer)


@pytest.mark.parametrize(
    "block", [lambda: session("a"), lambda: references(reference="b")], ids=["session", "expected"]
)
def test_a_block_that_is_left_in_another_context_raises_nothing(block: Any) -> None:
    def streamed() -> Any:
        with block():
            yield "a chunk"

    chunks = streamed()  # as a web framework reads it: each step on a thread, in a copy of the context

    assert contextvars.copy_context().run(next, chunks) == "a chunk"
    assert contextvars.copy_context().run(next, chunks, "the end") == "the end"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"idle_timeout": "soon"}, r"sessions\.idle_timeout: 'soon' is no duration"),
        ({"idle_timeout": 0}, r"sessions\.idle_timeout: must be greater than 0 \(given: 0\)"),
        ({"max_bytes": "64 boxes"}, r"sessions\.max_bytes: '64 boxes' is no size"),
        ({"score_every": "often"}, r"sessions\.score_every: is no whole number \(given: 'often'\)"),
    ],
)
def test_bounds_that_cannot_be_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Sessions(**wrong)


def test_bounds_may_be_written_as_in_a_file() -> None:
    written = Sessions(idle_timeout="5m", max_bytes="64MB", score_every="10")  # type: ignore[arg-type]

    assert written == Sessions(idle_timeout=300.0, max_bytes=64_000_000, score_every=10)
