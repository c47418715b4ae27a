"""A script that runs again makes another scorer: the installed one is replaced, and one that nothing refers to ends."""

import gc
import importlib
import logging
import os
import threading
import weakref

import pytest
from langchain_core.runnables import RunnableLambda
from tests.live import QUESTION, Grounded, Held, a_line, a_trace, rag
from tests.servers.server import poll

from spanscore import OnlineScorer, ScoringSpanProcessor


@pytest.fixture
def said(caplog):
    """Return the texts that are logged."""
    caplog.set_level(logging.WARNING, logger="spanscore")
    return lambda word: [record.getMessage() for record in caplog.records if word in record.getMessage()]


def own_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("spanscore-spans")]


def ended(threads_before):
    return lambda: len(own_threads()) <= threads_before


def made_and_left(trace, metric, runs=1):
    """Score runs as a request does that makes a scorer of its own."""
    scorer = OnlineScorer([metric], tracer_provider=trace.provider)
    for _ in range(runs):
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
    return weakref.ref(scorer)


def test_of_three_installed_in_a_row_the_last_records_and_it_is_said_once(said):
    trace, before = a_trace(), len(own_threads())
    scorers = [OnlineScorer([Grounded()], tracer_provider=trace.provider) for _ in range(3)]
    for scorer in scorers:
        scorer.install()
        rag().invoke(QUESTION)
    assert scorers[2].flush(5)
    poll(ended(before + 1), deadline_s=10, what="the threads of the first two to end")

    assert [scorer.status().units for scorer in scorers] == [1, 1, 1]
    assert (len(trace.roots), len(trace.evaluations)) == (3, 3)
    assert [scorer.status().closed for scorer in scorers] == [True, True, False]
    assert len(said("has taken over")) == 1
    scorers[2].shutdown()


def test_a_replaced_scorer_scores_what_it_has_and_runs_under_way(said):
    go_on, trace = threading.Event(), a_trace()
    first, second = (OnlineScorer([Held(go_on)], tracer_provider=trace.provider) for _ in range(2))
    first.install()
    stream = rag().stream(QUESTION)
    next(stream)
    second.install()
    list(stream)
    go_on.set()
    poll(lambda: first.status().closed, deadline_s=10, what="the first to end")

    assert first.status().outcomes["held"] == {"scored": 1}
    assert second.shutdown()
    assert len(trace.roots) == 1


def test_a_replaced_scorer_uninstalls_nothing_and_cannot_come_back(said):
    trace = a_trace()
    first, second = (OnlineScorer([Grounded()], tracer_provider=trace.provider) for _ in range(2))
    first.install()
    second.install()
    first.uninstall()
    first.install()
    rag().invoke(QUESTION, config={"callbacks": [first.handler]})
    assert second.flush(5)

    assert (first.status().units, second.status().units) == (0, 1)
    assert "has taken over from" in str(first.status().notes)
    assert len(said("has no effect")) == 1
    second.shutdown()


def test_a_replaced_scorer_with_a_processor_goes_on_and_cannot_come_back_either(said):
    trace = a_trace()
    first, second = (OnlineScorer([Grounded()], tracer_provider=trace.provider) for _ in range(2))
    processor = ScoringSpanProcessor(first)
    first.install()
    second.install()
    first.install()
    rag().invoke(QUESTION)
    assert second.flush(5)

    assert (first.status().closed, second.status().units) == (False, 1)
    assert len(said("has no effect")) == 1
    processor.shutdown()
    assert first.shutdown()
    assert second.shutdown()


def test_two_threads_that_install_at_once_leave_one_installed():
    trace = a_trace()
    scorers = [OnlineScorer([Grounded()], tracer_provider=trace.provider) for _ in range(4)]
    threads = [threading.Thread(target=scorer.install) for scorer in scorers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rag().invoke(QUESTION)
    for scorer in scorers:
        scorer.shutdown()

    assert sorted(scorer.status().units for scorer in scorers) == [0, 0, 0, 1]


def test_a_scorer_that_nothing_refers_to_scores_its_units_and_ends(said):
    trace, before = a_trace(), len(own_threads())
    gc.disable()
    try:
        left = [made_and_left(trace, Grounded()) for _ in range(5)]
        poll(ended(before), deadline_s=10, what="the threads to end")
    finally:
        gc.enable()

    assert [scorer() for scorer in left] == [None] * 5
    assert [root.attributes["spanscore.status"] for root in trace.roots] == ["scored"] * 5
    assert len(said("without references")) == 1


def test_a_scorer_that_is_left_while_a_unit_is_judged_waits_for_the_score():
    go_on, trace, before = threading.Event(), a_trace(), len(own_threads())
    made_and_left(trace, Held(go_on))
    gc.collect()
    threading.Timer(0.5, go_on.set).start()
    poll(ended(before), deadline_s=10, what="the thread to end")

    assert [span.attributes["gen_ai.evaluation.name"] for span in trace.evaluations] == ["held"]


def test_a_chain_with_the_handler_keeps_a_scorer_alive(said):
    trace = a_trace()

    def chain():
        scorer = OnlineScorer([Grounded()], tracer_provider=trace.provider)
        return rag().with_config(callbacks=[scorer.handler])

    kept = chain()
    gc.collect()
    kept.invoke(QUESTION)
    poll(lambda: trace.evaluations, deadline_s=10, what="the score")

    assert said("without references") == []


def test_a_scorer_that_was_never_used_is_left_without_a_word(said):
    OnlineScorer([Grounded()], tracer_provider=a_trace().provider)

    assert said("without references") == []


def test_a_scorer_in_a_with_block_is_not_said_to_be_left(said):
    with a_line() as (scorer, _):
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
    del scorer
    gc.collect()

    assert said("without references") == []


def test_steps_of_a_run_that_began_before_are_no_units_of_the_scorer_installed_meanwhile(said):
    trace = a_trace()
    first, second = (OnlineScorer([Grounded()], tracer_provider=trace.provider) for _ in range(2))
    first.install()

    def replace_and_ask(question):
        second.install()
        return rag().invoke(question)

    RunnableLambda(replace_and_ask).invoke(QUESTION)
    poll(lambda: first.status().closed, deadline_s=10, what="the first to end")
    assert second.shutdown()

    assert (first.status().units, second.status().units, len(trace.roots)) == (1, 0, 1)


def test_a_scorer_that_was_made_anew_by_a_reloaded_module_takes_over(said, tmp_path, monkeypatch):
    trace = a_trace()
    (tmp_path / "reloaded_scoring.py").write_text(
        "from spanscore import OnlineScorer\n"
        "def install(provider, metric):\n"
        "    global scorer\n"
        "    scorer = OnlineScorer([metric], tracer_provider=provider)\n"
        "    scorer.install()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("reloaded_scoring")
    for _ in range(3):
        importlib.reload(module).install(trace.provider, Grounded())
    rag().invoke(QUESTION)

    assert module.scorer.shutdown()
    assert (len(trace.roots), len(trace.evaluations)) == (1, 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_in_a_forked_child_another_scorer_takes_over_too():
    trace = a_trace()
    with a_line(trace=trace) as (first, _):
        first.install()
        rag().invoke(QUESTION)
        assert first.flush(5)
        read, write = os.pipe()
        if os.fork() == 0:
            second = OnlineScorer([Grounded()], tracer_provider=trace.provider)
            second.install()
            rag().invoke(QUESTION)
            second.flush(5)
            os.write(write, f"{first.status().units} {second.status().units}".encode())
            os._exit(0)
        answer = os.read(read, 100).decode()
        rag().invoke(QUESTION)
        assert first.flush(5)

        assert (answer, first.status().units) == ("0 1", 2)
