"""Forks: a child has a new pipeline and the handles of its parent, in every state of the parent."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from tests.judges.faults.application import SHUTDOWN_S, UNITS
from tests.judges.faults.test_ends import EXIT_S, STATES, exits_s
from tests.judges.faults.test_ends import played as play_ends
from tests.live import ANSWER
from tests.safety.host import run
from tests.safety.test_processes import NONE
from tests.safety.test_traced_processes import ended as run_traced
from tests.servers.otlp import OtlpReceiver

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    pytest.mark.flaky(reruns=2),  # whole processes, on a machine that others may use too
]

# --- under load -----------------------------------------------------------------------------------------------------

FORK = """
    {before}
    stop = threading.Event()
    def traffic():
        while not stop.is_set():
            ask()
    threads = [threading.Thread(target=traffic) for _ in range(3)]
    [t.start() for t in threads]
    time.sleep(0.3)
    children = []
    for n in range(4):
        child = os.fork()
        if not child:
            answers = [ask() for _ in range(3)]
            ok = not SCORED or (scorer.flush(10) and scorer.status().outcomes["{metric}"] == {{"{outcome}": 3}})
            print("child", len(answers), ok)
            {leave}
        children.append(child)
        time.sleep(0.1)
    codes = [os.waitpid(child, 0)[1] for child in children]
    stop.set()
    [t.join() for t in threads]
    if SCORED:
        scorer.flush(10)
        status = scorer.status()
        assert sum(status.outcomes["{metric}"].values()) + status.pending["{metric}"] == status.eligible["{metric}"]
    print(codes)
    leaving()
"""
MIDWAY = """
    if SCORED:
        scorer = OnlineScorer([Slow(0.2)], service_name="app", limits={"queue_size": 10})
        config["callbacks"] = [scorer.handler]
""".strip()


@pytest.mark.parametrize(("metric", "leave"), [("grounded", "sys.exit(0)"), ("slow", "os._exit(0)")])
def test_children_of_a_busy_process_score_their_own_runs(metric: str, leave: str) -> None:
    before = "" if metric == "grounded" else MIDWAY
    code = FORK.format(before=before, leave=leave, metric=metric, outcome="scored")

    with OtlpReceiver() as collector:
        ended = run(code, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint)

    assert ended.err == ""
    assert sorted(ended.out) == sorted([*["child 3 True"] * 4, "[0, 0, 0, 0]", "leaving"])
    ids = [span.span_id for span in collector.spans]
    assert len(ids) == len(set(ids)), "a span went out twice"


RELOADED_FORK = """
    from pathlib import Path
    expected = {{"before": {{"scored": 1}}, "after": {{"scored": 1}}}}
    def write(name):
        metric = "tests.wiring.constant_metrics:Constant: {{name: " + name + "}}"
        Path("{file}").write_text("reload: true\\nmetrics: [{{" + metric + "}}]")
    write("before")
    scorer = OnlineScorer.from_config("{file}", service_name="app")
    config["callbacks"] = [scorer.handler]
    ask()
    scorer.flush(10)
    child = os.fork()
    if not child:
        ask()
        write("after")
        poll(lambda: "after" in scorer.status().rates, deadline_s=30, what="the child to read the file")
        ask()
        print("child", scorer.flush(10), scorer.status().outcomes == expected)
        os._exit(0)
    os.waitpid(child, 0)
    poll(lambda: "after" in scorer.status().rates, deadline_s=30, what="the parent to read the file")
    ask()
    print("parent", scorer.flush(10), scorer.status().outcomes == expected)
    leaving()
"""


def test_a_child_and_its_parent_read_a_changed_file_each_for_itself(tmp_path: Path) -> None:
    code = RELOADED_FORK.format(file=tmp_path / "spanscore.yaml")

    with OtlpReceiver() as collector:
        ended = run(code, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint)

    assert ended.out == ["child True True", "parent True True", "leaving"]


TRACED_FORK = """
    stop = threading.Event()
    asked = []
    def traffic():
        while not stop.wait(0.01):
            ask(); asked.append(1)
    threads = [threading.Thread(target=traffic) for _ in range(3)]
    [t.start() for t in threads]
    time.sleep(0.3)
    children = []
    for n in range(3):
        child = os.fork()
        if not child:
            for _ in range(3): ask("child")
            ok = scorer.flush(10) and scorer.status().outcomes == {"answered": {"scored": 3}}
            provider.force_flush()
            print("child", ok)
            os._exit(0)
        children.append(child)
    codes = [os.waitpid(child, 0)[1] for child in children]
    stop.set()
    [t.join() for t in threads]
    scorer.flush(10)
    status = scorer.status()
    assert status.outcomes == {"answered": {"scored": len(asked)}}, status
    print(codes)
    leaving()
"""


def test_children_of_a_busy_traced_process_score_their_own_spans() -> None:
    went, spans = run_traced(TRACED_FORK)

    assert went.err == ""
    assert sorted(went.out) == ["[0, 0, 0]", *["child True"] * 3, "leaving"]
    assert len({span.span_id for span in spans}) == len(spans), "a span went out twice"
    assert Counter(span.name for span in spans)["child"] == 9


MANY = """
    from opentelemetry.sdk.trace import TracerProvider
    from spanscore import ScoringSpanProcessor, SingleTurnSample
    from tests.capture.processor import traced
    provider = TracerProvider()
    scorer = OnlineScorer([traced.Answered()], tracer_provider=provider)
    provider.add_span_processor(ScoringSpanProcessor(scorer))
    tracer = provider.get_tracer(traced.SCOPE)
    config = {"callbacks": [scorer.handler]}
    def ask_in_each_way():
        ask()
        traced.ask(tracer)
        scorer.submit(SingleTurnSample(user_input="q", response="a", retrieved_contexts=["a"]))
        scorer.status()
    ask_in_each_way()  # LangChain imports parts of itself in its first run: a child forked meanwhile waits for ever
    stop = threading.Event()
    def traffic():
        while not stop.is_set():
            ask_in_each_way()
    threads = [threading.Thread(target=traffic) for _ in range(4)]
    [t.start() for t in threads]
    def fork():
        child = os.fork()
        if not child:
            signal.alarm(40)  # ends a child that waits for a lock of its parent
            ask_in_each_way()
            ok = scorer.flush(30) and scorer.status().outcomes == {"answered": {"scored": 3}}
            os._exit(0 if ok else 1)
        return child
    ends = Counter()
    for _ in range(10):
        children = [fork() for _ in range(6)]
        ends.update(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    stop.set()
    [t.join() for t in threads]
    assert scorer.flush(60)
    status = scorer.status()
    assert sum(status.outcomes["answered"].values()) == status.eligible["answered"]
    print(dict(ends))
"""


@pytest.mark.timeout(180)
def test_sixty_children_of_four_busy_threads_score_their_own_units_and_none_waits_for_a_lock() -> None:
    ended = run("    from collections import Counter" + MANY, seconds=150, **NONE)

    assert (ended.out, ended.err) == (["{0: 60}"], "")


# --- first use, inside a run, a child of a child --------------------------------------------------------------------

FIRST_USE = """
    from tests.live import QUESTION
    handler = scorer.handler
    children = []
    for n in range(2):
        child = os.fork()
        if not child:
            signal.alarm(20)
            ask()
            ok = scorer.flush(10) and scorer.status().outcomes == {"grounded": {"scored": 1}}
            print("child", ok, scorer.handler is handler)
            os._exit(0)
        children.append(child)
    print([os.waitpid(child, 0)[1] for child in children], scorer.status().eligible)
"""


def test_a_scorer_that_was_never_used_is_first_used_in_its_children() -> None:
    with OtlpReceiver() as collector:
        ended = run(FIRST_USE, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint)

    assert (sorted(ended.out), ended.err) == (["[0, 0] {'grounded': 0}", *["child True True"] * 2], "")


INSIDE = """
    from langchain_core.runnables import RunnableLambda
    forked = []
    def fork(answer):
        forked.append(os.fork())
        return answer
    print((chain | RunnableLambda(fork)).invoke(QUESTION, config=config))
    if not forked[0]:
        signal.alarm(20)
        before = scorer.flush(10) and scorer.status().eligible
        ask()
        print("child", before, scorer.flush(10), scorer.status().outcomes, scorer.status().units)
        os._exit(0)
    print(os.waitpid(forked[0], 0)[1], scorer.flush(10), scorer.status().outcomes, scorer.status().units)
"""


def test_a_run_that_forks_is_a_unit_of_the_parent_alone() -> None:
    ended = run(INSIDE, **NONE)

    once = "True {'grounded': {'scored': 1}} 1"
    assert sorted(ended.out) == sorted([ANSWER, ANSWER, f"child {{'grounded': 0}} {once}", f"0 {once}"])
    assert ended.err == ""


GRANDCHILD = """
    scorer.install()
    def ask_without_handler():
        return chain.invoke(QUESTION)
    def fork_and_wait(depth):
        ask_without_handler()
        child = os.fork()
        if not child:
            signal.alarm(20)
            if depth:
                fork_and_wait(depth - 1)
            else:
                ask_without_handler()
            print(depth, scorer.flush(10), scorer.status().outcomes)
            os._exit(0)
        os.waitpid(child, 0)
    fork_and_wait(2)
    print("parent", scorer.flush(10), scorer.status().outcomes)
"""


def test_a_child_of_a_child_counts_from_zero_and_an_installed_handler_stays_installed() -> None:
    ended = run(GRANDCHILD, **NONE)

    once = "True {'grounded': {'scored': 1}}"
    assert (ended.out, ended.err) == ([f"0 {once}", f"1 {once}", f"2 {once}", f"parent {once}"], "")


HANDLER_ALONE = """
    sink = MemorySink()
    handler = OnlineScorer([Grounded()], service_name="app", outputs={"sinks": [sink]}).handler
    child = os.fork()
    if not child:
        signal.alarm(20)
    chain.invoke(QUESTION, config={"callbacks": [handler]})
    poll(lambda: sink.scores, deadline_s=10, what="a score")
    print(len(sink.scores))
    os.waitpid(child, 0) if child else os._exit(0)
"""


def test_a_handler_whose_scorer_nobody_refers_to_records_in_a_child() -> None:
    ended = run("    from spanscore.testing import MemorySink" + HANDLER_ALONE, **NONE)

    assert (ended.out, ended.err) == (["1", "1"], "")


WAITING = """
    import gc
    from spanscore import SingleTurnSample
    from spanscore.core.span import Unit
    def units():
        gc.collect()
        return sum(isinstance(thing, Unit) for thing in gc.get_objects())
    scorer = OnlineScorer([Slow(60)], service_name="app", limits={"workers": 2})
    for n in range(200):
        scorer.submit(SingleTurnSample(user_input="q", response="a", retrieved_contexts=["a"]))
    poll(lambda: scorer.status().eligible["slow"] == 200, deadline_s=20, what="every unit")
    time.sleep(0.5)
    print(units() >= 200)
    child = os.fork()
    if not child:
        print(units() < 50)  # some are in the parent's tasks, which are kept
        os._exit(0)
    os.waitpid(child, 0)
    os._exit(0)
"""


def test_a_child_keeps_no_waiting_unit_of_its_parent() -> None:
    ended = run(WAITING, **NONE)

    assert (ended.out, ended.err) == (["True", "True"], "")


# --- at the end -----------------------------------------------------------------------------------------------------

CLOSED = """
    if SCORED:
        scorer = OnlineScorer([Slow(60)], service_name="app")
        config["callbacks"] = [scorer.handler]
    print(ask())
    at_it = threading.Thread(target=lambda: SCORED and scorer.shutdown(2))
    at_it.start()
    if {whole}:
        at_it.join()
    elif SCORED:
        while scorer.submit(None) is not None:
            pass
    child = os.fork()
    if not child:
        print(ask())
        if SCORED:
            scorer.flush(60), scorer.shutdown(60)
        print("child ends")
        os._exit(0)
    at_it.join()
    print(os.waitpid(child, 0)[1])
    leaving()
"""


@pytest.mark.timeout(30)
@pytest.mark.parametrize("whole", [True, False])
def test_the_child_of_a_process_that_shut_its_scorer_down_waits_for_nothing(whole: bool) -> None:
    ended = run(CLOSED.format(whole=whole), **NONE)

    assert (ended.code, ended.out, ended.err) == (0, [ANSWER, ANSWER, "child ends", "0", "leaving"], "")


def test_after_a_fork_and_a_shutdown_every_unit_of_both_has_its_outcome_in_time() -> None:
    said = play_ends("fork")
    ends = {state: [line for line in lines if "took_s" in line] for state, lines in said.items()}

    assert {(end["eligible"], end["ended"]) for rows in ends.values() for end in rows} == {(UNITS, UNITS)}
    assert {state: len(rows) for state, rows in ends.items()} == dict.fromkeys(STATES, 2)
    assert max(end["took_s"] for rows in ends.values() for end in rows) <= SHUTDOWN_S + 2
    assert max(exits_s(said).values()) <= EXIT_S
