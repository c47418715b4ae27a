"""A process in which no thread can be started for a while: its limit of processes or of memory is reached."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.live import QUESTION, Grounded, a_trace, identity_holds, rag

from spanscore import OnlineScorer
from spanscore.core.loop import LoopThread

START = threading.Thread.start


@contextmanager
def no_threads(monkeypatch: pytest.MonkeyPatch, *but: str) -> Iterator[None]:
    """Let no thread of ours be started inside the block, except those with these prefixes."""

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("spanscore") and not (but and thread.name.startswith(but)):
            raise RuntimeError("can't start new thread")
        START(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        yield


@pytest.mark.parametrize("but", [(), ("spanscore-spans",), ("spanscore-loop",)], ids=["none", "spans", "loop"])
def test_units_of_that_time_are_scored_with_the_next_one(but: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    judges = LoopThread("spanscore-loop", pool="spanscore-judge")
    monkeypatch.setattr("spanscore.core.loop.call_soon", judges.call_soon)
    monkeypatch.setattr("spanscore.core.loop.submit", judges.submit)
    trace = a_trace()
    with no_threads(monkeypatch, *but):
        scorer = OnlineScorer([Grounded()], tracer_provider=trace.provider)
        chain = rag().with_config(callbacks=[scorer.handler])
        answers = [chain.invoke(QUESTION) for _ in range(5)]
        flushed = scorer.flush(0.5)
        assert scorer.status().received is None  # it raises nothing
    answers += [chain.invoke(QUESTION) for _ in range(5)]
    assert scorer.flush(10)

    assert flushed is False, scorer.status()
    assert len(answers) == 10
    assert scorer.status().outcomes == {"grounded": {"scored": 10}}
    assert scorer.shutdown(5)
    assert identity_holds(scorer)


def test_units_of_that_time_are_counted_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with no_threads(monkeypatch):
        scorer = OnlineScorer([Grounded()], tracer_provider=a_trace().provider)
        for _ in range(5):
            rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        scorer.shutdown(1)

    assert scorer.status().outcomes == {"grounded": {"shutdown": 5}}
    assert scorer.status().eligible == {"grounded": 5}
