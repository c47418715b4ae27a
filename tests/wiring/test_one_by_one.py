"""The scores of a unit come one by one: the present ones with its spans, later ones after them, each once."""

import asyncio
import os
import threading
from collections import Counter

import pytest
from tests.live import QUESTION, Grounded, Held, a_line, identity_holds, rag
from tests.servers.server import poll
from tests.wiring.test_life import run

from spanscore.config import Outputs
from spanscore.judges import judge
from spanscore.metrics import AspectCritic, Finding
from spanscore.scorer import pipeline_of
from spanscore.testing import MemorySink


class Fails(Grounded):
    """Finds every answer bad, instantly."""

    async def measure(self, sample):
        return Finding(value=0.0)


class Missing(Grounded):
    """Needs a field that no unit here has."""

    requires = {"single_turn": ("reference",)}  # noqa: RUF012


def ask(scorer, units=1):
    rag().batch([QUESTION] * units, config={"callbacks": [scorer.handler]})


def until(what, question):
    return poll(question, deadline_s=10, what=what)


def of_scores(span):
    return {name: value for name, value in span.attributes.items() if name.startswith("spanscore.score.")}


def emitted(sink):
    return Counter(score.metric for score in sink.scores)


def test_a_score_is_emitted_when_it_is_there_and_stands_on_its_span_all_the_same():
    go_on, sink = threading.Event(), MemorySink()
    with a_line(Grounded(), Held(go_on), outputs=Outputs(hold=60.0, sinks=[sink])) as (scorer, trace):
        ask(scorer)
        until("the score that is in to be emitted", lambda: emitted(sink) == {"grounded": 1})
        assert trace.roots == []
        go_on.set()
        assert scorer.flush(5)

    assert of_scores(trace.roots[0]) == {"spanscore.score.grounded": 1.0, "spanscore.score.held": 1.0}
    assert emitted(sink) == {"grounded": 1, "held": 1}


def test_at_the_end_of_the_hold_a_unit_leaves_with_the_scores_that_are_in():
    go_on, sink = threading.Event(), MemorySink()
    with a_line(Grounded(), Held(go_on), outputs=Outputs(hold=0.5, sinks=[sink])) as (scorer, trace):
        ask(scorer)
        (root,) = until("the root to leave", lambda: trace.left_roots)
        until("the score that is in to be emitted", lambda: emitted(sink) == {"grounded": 1})
        assert (scorer.flush(0.05), identity_holds(scorer)) == (False, True)
        go_on.set()
        assert scorer.flush(5)

    assert (of_scores(root), root.attributes["spanscore.status"]) == ({"spanscore.score.grounded": 1.0}, "pending")
    assert emitted(sink) == {"grounded": 1, "held": 1}
    assert sorted(span.attributes["gen_ai.evaluation.name"] for span in trace.evaluations) == ["grounded", "held"]
    assert len(trace.roots) == 1


@pytest.mark.parametrize(("metric", "verdict"), [(Grounded, None), (Fails, "fail")])
def test_a_unit_that_leaves_as_pending_has_no_verdict_but_fail(metric, verdict):
    go_on = threading.Event()
    with a_line(metric("known"), Held(go_on), outputs=Outputs(hold=0.5)) as (scorer, trace):
        ask(scorer)
        (root,) = until("the root to leave", lambda: trace.left_roots)
        go_on.set()
        scorer.flush(5)

    assert (root.attributes["spanscore.label.known"], root.attributes.get("spanscore.verdict")) == (
        verdict or "pass",
        verdict,
    )


def test_a_unit_that_leaves_as_pending_says_which_metric_cannot_score_it():
    go_on = threading.Event()
    with a_line(Missing("missing"), Held(go_on), outputs=Outputs(hold=0.5)) as (scorer, trace):
        ask(scorer)
        (root,) = until("the root to leave", lambda: trace.left_roots)
        go_on.set()
        scorer.flush(5)

    assert root.attributes["spanscore.outcome.missing"] == "missing_field reference"
    assert [span.attributes["gen_ai.evaluation.name"] for span in trace.evaluations] == ["held"]


def test_on_an_overflow_a_unit_leaves_with_the_scores_that_are_in():
    go_on, sink = threading.Event(), MemorySink()
    with a_line(Grounded(), Held(go_on), outputs=Outputs(hold=60.0, sinks=[sink])) as (scorer, trace):
        pipeline_of(scorer).hold.max_units = 1
        ask(scorer)
        until("the first score", lambda: scorer.status().outcomes["grounded"] == {"scored": 1})
        ask(scorer)
        first = until("the first root to leave", lambda: trace.left_roots)[0]
        go_on.set()
        assert scorer.flush(5)

    assert (of_scores(first), first.attributes["spanscore.status"]) == ({"spanscore.score.grounded": 1.0}, "pending")
    assert emitted(sink) == {"grounded": 2, "held": 2}


def test_a_shutdown_keeps_the_scores_that_are_in():
    sink = MemorySink()
    with a_line(Grounded(), Held(threading.Event()), outputs=Outputs(hold=60.0, sinks=[sink])) as (scorer, trace):
        ask(scorer, 3)
        until("three scores", lambda: scorer.status().outcomes["grounded"] == {"scored": 3})

        assert not scorer.shutdown(1.0)

        assert scorer.status().outcomes == {"grounded": {"scored": 3}, "held": {"shutdown": 3}}
        assert identity_holds(scorer)
    assert emitted(sink) == {"grounded": 3}
    assert [(of_scores(root), root.attributes["spanscore.pending.reason"]) for root in trace.roots] == [
        ({"spanscore.score.grounded": 1.0}, "shutdown")
    ] * 3


class Silent:
    """A judge that never answers."""

    model = "silent"

    def __init__(self):
        self.asked = threading.Event()

    async def ask(self, prompt):
        self.asked.set()
        await asyncio.Event().wait()


def test_questions_that_are_out_at_a_shutdown_are_judge_calls():
    silent, sink = Silent(), MemorySink()
    asks = AspectCritic(judge(silent, prices={"silent": (1, 1)}), name="asks", definition="Is it right?")
    with a_line(asks, outputs=Outputs(hold=60.0, sinks=[sink])) as (scorer, trace):
        ask(scorer)
        assert silent.asked.wait(10)

        assert not scorer.shutdown(1.0)

        assert scorer.status().outcomes == {"asks": {"shutdown": 1}}
        assert identity_holds(scorer)
    (score,) = sink.scores
    (call,) = score.usage.calls
    assert (score.outcome, call.estimated, call.cost_usd == call.input_tokens / 1e6 > 0) == ("shutdown", True, True)
    assert [span.attributes["spanscore.evaluation.outcome"] for span in trace.evaluations] == ["shutdown"]


def test_where_no_span_waits_each_score_is_emitted_as_it_comes():
    go_on, sink = threading.Event(), MemorySink()
    with a_line(
        Grounded(), Held(go_on), outputs=Outputs(span=False, evaluation_span=False, event=False, sinks=[sink])
    ) as (scorer, trace):
        ask(scorer)
        until("the first score", lambda: emitted(sink) == {"grounded": 1})
        go_on.set()
        assert scorer.flush(5)

    assert emitted(sink) == {"grounded": 1, "held": 1}
    assert of_scores(trace.roots[0]) == {}


def test_scores_that_are_in_before_the_hold_ends_come_together():
    sink = MemorySink()
    with a_line(Grounded(), Grounded("other"), outputs=Outputs(sinks=[sink])) as (scorer, _):
        ask(scorer, 3)
        assert scorer.flush(5)

    assert [len(scores) for _, scores in sink.emitted] == [2, 2, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_between_two_scores_of_a_unit_counts_each_once():
    done = run("""
        import os, threading
        from tests.live import Held
        from tests.servers.server import poll
        from spanscore.testing import MemorySink
        go_on, sink = threading.Event(), MemorySink()
        scorer = OnlineScorer([Grounded(), Held(go_on)], tracer_provider=a_trace().provider, outputs={"sinks": [sink]})
        ask = lambda: rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        ask()
        half = lambda: scorer.status().outcomes["grounded"] == {"scored": 1}
        poll(half, deadline_s=10, what="one of two scores")
        child = os.fork()
        go_on.set()
        if child == 0:
            sink.emitted.clear()
            ask()
        print(scorer.flush(10), scorer.status().outcomes, sorted(score.metric for score in sink.scores), flush=True)
        os._exit(0) if child == 0 else os.waitpid(child, 0)
    """)

    once = "True {'grounded': {'scored': 1}, 'held': {'scored': 1}} ['grounded', 'held']"
    assert done.stdout.splitlines() == [once, once]
    assert [line.partition(":")[2][:12] for line in done.stderr.splitlines()] == [" no metrics,"]
