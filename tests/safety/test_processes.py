"""Ends of whole processes, played without spanscore and with it: same code, same output, an exit in time."""

import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.live import ANSWER
from tests.safety.host import run, start
from tests.servers.otlp import OtlpReceiver, dead_endpoint

pytestmark = pytest.mark.flaky(reruns=2)  # whole processes, on a machine that others may use too

EXIT_S = 5.0
SLACK_S = 0.5  # threads that are waited for in turn, each to its own deadline; measured: 0.01
LEAST_S = 0.5  # for a scorer that begins to end after the time is up; measured: 0.3
DEAD = {"OTEL_EXPORTER_OTLP_ENDPOINT": dead_endpoint()}
NONE = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}
WITH_A_DEAD_COLLECTOR = ("nothing is shut down", "three scorers", "a judge hangs")
"""Exits then take their full time, so only some are tested."""
REFUSED = (
    f"spanscore: nothing can be exported to {DEAD['OTEL_EXPORTER_OTLP_ENDPOINT']} (connection refused): is a Collector there? "
    "Set OTEL_EXPORTER_OTLP_ENDPOINT, or OTEL_SDK_DISABLED=true, which ends scoring\n"
)
"""The one line that is due then."""
AFTER_ANOTHER = {"three scorers": 2}
"""Further scorers after the first one, which may use all the time."""

SLOW = """
    if SCORED:
        scorer = OnlineScorer([{metric}], service_name="app", **{options})
        config["callbacks"] = [scorer.handler]
"""
EXITS = {
    "nothing is shut down": "print(ask()); leaving()",
    "a judge hangs": SLOW.format(metric="Slow(60)", options={}) + "    print(ask()); judging(scorer); leaving()",
    "a metric computes": """
    class Computes(Grounded):
        cpu_bound = True
        async def measure(self, sample):
            time.sleep(60)
    if SCORED:
        scorer = OnlineScorer([Computes()], service_name="app")
        config["callbacks"] = [scorer.handler]
    print(ask()); judging(scorer); leaving()
    """,
    "a judge blocks a thread of its pool": """
    import asyncio
    class Blocks(Grounded):
        async def measure(self, sample):
            await asyncio.to_thread(time.sleep, 60)
    if SCORED:
        scorer = OnlineScorer([Blocks()], service_name="app")
        config["callbacks"] = [scorer.handler]
    print(ask()); judging(scorer); leaving()
    """,
    "a metric blocks the loop": """
    class Blocks(Grounded):
        async def measure(self, sample):
            time.sleep(60)
    if SCORED:
        scorer = OnlineScorer([Blocks()], service_name="app")
        config["callbacks"] = [scorer.handler]
    print(ask()); judging(scorer); leaving()
    """,
    "every judge hangs": """
    import asyncio
    from spanscore.metrics import AspectCritic
    class Hangs:
        model = "hangs"
        async def ask(self, prompt):
            while True:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    pass
    class Blocks(Hangs):
        async def ask(self, prompt):
            await asyncio.to_thread(time.sleep, 60)
    if SCORED:
        critics = [AspectCritic(judge(), name=judge.__name__.lower(), definition="?") for judge in (Hangs, Blocks)]
        scorer = OnlineScorer([Grounded(), *critics], service_name="app")
        config["callbacks"] = [scorer.handler]
    for _ in range(40): ask()
    judging(scorer); leaving()
    """,
    "every judge hangs, shut down": """
    from spanscore.judges.langchain.client import BlockingCalls
    from spanscore.metrics import AspectCritic
    class Blocks:
        model, calls = "blocks", BlockingCalls()
        async def ask(self, prompt):
            await self.calls.on_a_thread(lambda: time.sleep(60))
    if SCORED:
        scorer = OnlineScorer([AspectCritic(Blocks(), definition="?"), Grounded()], service_name="app")
        config["callbacks"] = [scorer.handler]
    for _ in range(40): ask()
    judging(scorer)
    if SCORED:
        leaving(); scorer.shutdown()
    """,
    "three scorers": """
    scorers = [OnlineScorer([Slow(60, f"slow_{n}")], service_name="app") for n in range(3)] if SCORED else []
    config = {"callbacks": [s.handler for s in scorers]}
    print(ask()); judging(*scorers); leaving()
    """,
    "it raises": "ask(); leaving(); sys.exit(3)",
    "it raises an error": "ask(); leaving(); os.environ['nothing']",
    "shut down twice": """
    print(ask())
    if SCORED:
        again = [threading.Thread(target=scorer.shutdown) for _ in range(3)]
        [t.start() for t in again]
        first = scorer.shutdown()
        [t.join() for t in again]
        assert scorer.shutdown() == first == scorer.flush(1)
    print(ask()); leaving()
    """,
    "an interrupt": "ask(); leaving(); os.kill(os.getpid(), signal.SIGINT); time.sleep(5)",
}


SPEAKS_AT_ITS_END = ("it raises", "it raises an error", "an interrupt")
"""The interpreter itself prints something for these: a play without spanscore shows it."""


def world(how):
    return DEAD if how in WITH_A_DEAD_COLLECTOR else NONE


@pytest.fixture(scope="module")
def endings():
    """All of them at once: an exit is mostly waiting."""
    with ThreadPoolExecutor(2) as pool:
        alone = {how: pool.submit(run, EXITS[how], scored=False, **NONE) for how in SPEAKS_AT_ITS_END}
        scored = {how: pool.submit(run, EXITS[how], **world(how)) for how in EXITS}
        for how, then in DURING.items():
            scored[how] = pool.submit(run, LEAVES_AT_SIGTERM.format(then=then), signal_at=signal.SIGTERM, **DEAD)
        yield {how: (alone.get(how), ending) for how, ending in scored.items()}


@pytest.mark.parametrize("how", EXITS)
def test_an_exit_when(how, endings):
    alone, seen = (ending and ending.result() for ending in endings[how])

    if alone is None:
        said = EXITS[how].count("print(ask())")
        expected = REFUSED if how in WITH_A_DEAD_COLLECTOR else ""
        assert (seen.code, seen.out, seen.err) == (0, [ANSWER] * said + ["leaving"], expected)
    else:
        assert (seen.code, seen.out, last_line(seen)) == (alone.code, alone.out, last_line(alone))
    assert seen.exit_s < EXIT_S + SLACK_S + LEAST_S * AFTER_ANOTHER.get(how, 0)


def last_line(ended):
    return ended.err.splitlines()[-1:]


def test_what_is_held_at_an_exit_goes_out():
    with OtlpReceiver() as collector:
        ended = run(
            SLOW.format(metric="Slow(60)", options={}) + "    ask(); judging(scorer); leaving()",
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint,
        )

    (root,) = [s for s in collector.spans if s.parent_id == 0]
    assert (ended.err, root.attributes["spanscore.status"]) == ("", "pending")
    assert ended.exit_s < EXIT_S + SLACK_S


def test_a_scorer_out_of_scope_is_drained_at_exit():
    with OtlpReceiver() as collector:
        run("ask(); del scorer; config = {}; leaving()", OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint)

    assert [s for s in collector.spans if s.parent_id == 0]


DURING = {
    "traffic": "while True: ask()",
    "shutdown": "scorer.shutdown(); time.sleep(20)",
}


LEAVES_AT_SIGTERM = """
    def leave(*_):
        leaving()
        sys.exit(7)
    signal.signal(signal.SIGTERM, leave)
    chain = model()
    ask()
    print("ready")
    {then}
"""


@pytest.mark.parametrize("during", DURING)
def test_sigterm_that_the_host_turns_into_an_exit(during, endings):
    seen = endings[during][1].result()

    assert (seen.code, seen.out) == (7, ["ready", "leaving"])
    assert seen.err in ("", REFUSED)  # it may come before anything was tried
    assert seen.exit_s < EXIT_S + SLACK_S


def test_shutdown_under_load_ends_every_root():
    code = """
    answers, stop = [], threading.Event()
    def traffic():
        while not stop.is_set():
            answers.append(ask())
    threads = [threading.Thread(target=traffic) for _ in range(4)]
    [t.start() for t in threads]
    time.sleep(0.5)
    if SCORED:
        scorer.shutdown()
    stop.set()
    [t.join() for t in threads]
    assert set(answers) == {"Paris is the capital of France."}
    if SCORED:
        status = scorer.status()
        assert not any(status.pending.values()), status
        assert sum(status.outcomes["grounded"].values()) == status.eligible["grounded"]
    leaving()
    """
    with OtlpReceiver() as collector:
        ended = run(code, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint)

    assert (ended.code, ended.out, ended.err) == (0, ["leaving"], "")


def test_a_frozen_function_that_flushed_has_lost_nothing():
    code = """
    for line in sys.stdin:
        ask()
        print(scorer.flush(5))
    """
    with OtlpReceiver() as collector:
        process = start(code, stdin=True, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint)
        for call in (1, 2, 3):
            process.stdin.write("go\n")
            process.stdin.flush()
            assert process.stdout.readline() == "True\n"
            process.send_signal(signal.SIGSTOP)
            assert len([s for s in collector.spans if s.parent_id == 0]) == call
            process.send_signal(signal.SIGCONT)
        process.stdin.close()
        assert (process.wait(15), process.stderr.read()) == (0, "")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="before 3.12 threads could be started at exit")
def test_a_first_run_at_exit():
    ended = run("import atexit; atexit.register(lambda: print(ask())); leaving()", **DEAD)

    assert (ended.out[-1], ended.err) == ("Paris is the capital of France.", "")


def test_sigterm_in_the_midst_of_a_shutdown_whose_handler_shuts_down_too():
    code = """
    def leave(*_):
        leaving()
        scorer.shutdown()
        sys.exit(7)
    signal.signal(signal.SIGTERM, leave)
    scorer = OnlineScorer([Slow(60)], service_name="app")
    config["callbacks"] = [scorer.handler]
    ask()
    print("ready")
    scorer.shutdown(20)
    """
    ended = run(code, signal_at=signal.SIGTERM, **NONE)

    assert (ended.code, ended.out, ended.err) == (7, ["ready", "leaving"], "")
    assert ended.exit_s < EXIT_S / 2
