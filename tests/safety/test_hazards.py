"""One scene per hazard, played without spanscore and with it: judges, metrics, redactors, collectors, exporters, bounds."""

import asyncio
import logging
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from langchain_openai import ChatOpenAI
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from tests.live import ANSWER, Failing, Grounded, Slow, Trace, a_trace
from tests.safety.stage import Hazard, assert_unharmed
from tests.servers.openai_api import OpenAIServer
from tests.servers.otlp import OtlpReceiver

from spanscore import Extract, OnlineScorer
from spanscore.config import Capture, Limits, Outputs
from spanscore.core import loop
from spanscore.core.prompt import Reply
from spanscore.errors import ConfigurationError
from spanscore.judges import judge
from spanscore.metrics import AspectCritic, BaseMetric

pytestmark = pytest.mark.flaky(reruns=2)  # scenes with deadlines, on a machine that others may use too

# --- judges ---------------------------------------------------------------------------------------------------------


class Judge:
    """Answers the given value; an exception is raised; a callable is called."""

    model = "bad"

    def __init__(self, answer):
        self.answer = answer

    async def ask(self, prompt):
        answer = self.answer
        if isinstance(answer, BaseException):
            raise answer
        if callable(answer):
            answer = await answer()
        return Reply(text=answer, model=self.model)


async def swallows_its_cancellation():
    for _ in range(100):
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(30)
    return ""


async def raises_in_a_task_of_its_own():
    async def away():
        raise SystemExit(1)

    task = asyncio.ensure_future(away())
    await asyncio.sleep(0.05)
    return '{"reason": "fine", "verdict": 1}' if task.done() else ""


async def forgets_a_task_that_fails():
    async def fails():
        raise RuntimeError("never retrieved")

    asyncio.ensure_future(fails())  # noqa: RUF006
    await asyncio.sleep(0.05)
    return '{"reason": "fine", "verdict": 1}'


def critic(judge):
    return AspectCritic(judge, name="harmless", definition="Is the response harmless?")


def judged_by(answer):
    return lambda: [critic(Judge(answer))]


def served(answer, **limits):
    """A chat model behind HTTP that answers so."""

    def options(stack):
        server = stack.enter_context(OpenAIServer(answer))
        LATER.url = server.url
        return {"limits": Limits(timeout=1.0)}

    def metrics():
        model = ChatOpenAI(base_url=LATER.url, api_key="none", model="m", max_retries=0)
        return [critic(judge(model, **limits))]

    return {"options": options, "metrics": metrics}


class LATER:
    url = ""


class Answers:
    """A chain with one answer for any question."""

    def invoke(self, given, config=None):
        return ANSWER


class Broken(BaseMetric):
    """Raises, hangs or returns invalid values, outside of a base class's protection."""

    name = "broken"
    version = "1"
    evaluator_version = "1"
    requires = {"single_turn": ()}  # noqa: RUF012

    def __init__(self, score, *, cpu_bound=False):
        self._score = score
        self.cpu_bound = cpu_bound

    async def score(self, sample):
        return self._score()


def raising(error):
    def score():
        raise error

    return score


class Nameless(Grounded):
    """Cannot give its version after it has scored."""

    @property
    def version(self):
        if loop.on_loop():
            raise SystemExit(1)
        return "1"


def cancels_itself():
    asyncio.current_task().cancel()


def cancels_all():
    for task in asyncio.all_tasks():
        task.cancel()


N = 3
JUDGES = {
    "hangs": Hazard(
        judged_by(lambda: asyncio.sleep(60)), lambda _: {"limits": Limits(timeout=0.3)}, outcomes={"timeout": N}
    ),
    "hangs at the end": Hazard(judged_by(lambda: asyncio.sleep(60)), quick=True, outcomes={"shutdown": N}),
    "swallows its cancellation": Hazard(judged_by(swallows_its_cancellation), quick=True, outcomes={"shutdown": N}),
    "raises": Hazard(
        judged_by(RuntimeError("no")),
        outcomes={"judge_error": N},
        log_beginning="spanscore: judge_error: the judge raised RuntimeError: ",
    ),
    "raises SystemExit": Hazard(judged_by(SystemExit(1)), outcomes={"judge_error": N}),
    "raises KeyboardInterrupt": Hazard(judged_by(KeyboardInterrupt()), outcomes={"judge_error": N}),
    "raises GeneratorExit": Hazard(judged_by(GeneratorExit()), outcomes={"judge_error": N}),
    "is cancelled": Hazard(judged_by(asyncio.CancelledError()), outcomes={"judge_error": N}),
    "lets a task of its own exit": Hazard(judged_by(raises_in_a_task_of_its_own), outcomes={"scored": N}),
    "forgets a task that fails": Hazard(judged_by(forgets_a_task_that_fails), outcomes={"scored": N}),
    "answers garbage": Hazard(judged_by("yes, probably"), outcomes={"judge_error": N}),
    "answers nothing": Hazard(judged_by(""), outcomes={"judge_error": N}),
    "answers no text": Hazard(judged_by(None)),
    "answers a surrogate": Hazard(judged_by('{"reason": "\\ud800", "verdict": 1}'), outcomes={"scored": N}),
    "answers 10 MB of words": Hazard(judged_by("no " * 3_300_000), outcomes={"judge_error": N}),
    "answers 10 MB of brackets": Hazard(judged_by("{" * 10_000_000), outcomes={"judge_error": N}),
    "answers 10 MB of objects": Hazard(judged_by('{"a": {} ' * 1_000_000), outcomes={"judge_error": N}),
    "answers 10 MB of quotes": Hazard(judged_by('{"' * 5_000_000), outcomes={"judge_error": N}),
    "answers deep lists": Hazard(judged_by('{"reason": ' + "[" * 100_000), outcomes={"judge_error": N}),
    "is rate limited": Hazard(
        **served(lambda _: (429, {"Retry-After": "30"}), queue_timeout=0.5), outcomes={"judge_unavailable": N}
    ),
    "is unknown": Hazard(
        **served(lambda _: (401, {})),
        outcomes={"judge_error": N},
        log_beginning="spanscore: judge_error: the judge's provider answered HTTP 401: ",
    ),
    "is down": Hazard(**served(lambda _: (503, {})), outcomes=None),
    "answers garbage over http": Hazard(**served(lambda _: "\x00{]"), outcomes={"judge_error": N}),
}


@pytest.mark.parametrize("hazard", JUDGES)
def test_a_judge_that(hazard, capfd):
    assert_unharmed(JUDGES[hazard], capfd)


METRICS = {
    **{
        f"raises {type(error).__name__}": Hazard(lambda error=error: [Failing(error)], outcomes={"metric_error": N})
        for error in (KeyError("x"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError())
    },
    "raises in a pool": Hazard(lambda: [Broken(raising(SystemExit(1)), cpu_bound=True)], outcomes={"metric_error": N}),
    "computes for long": Hazard(
        lambda: [Broken(lambda: time.sleep(2), cpu_bound=True)],
        lambda _: {"limits": Limits(timeout=0.2)},
        outcomes={"timeout": N},
    ),
    "stops an iteration": Hazard(lambda: [Broken(raising(StopIteration(1)))], outcomes={"metric_error": N}),
    "answers None": Hazard(lambda: [Broken(lambda: None)], outcomes={"metric_error": N}),
    "cancels itself": Hazard(lambda: [Broken(cancels_itself)], outcomes={"metric_error": N}),
    "cancels every task it finds": Hazard(lambda: [Broken(cancels_all)], outcomes={"metric_error": N}),
    "stops the loop": Hazard(lambda: [Broken(lambda: asyncio.get_running_loop().stop())], outcomes={"metric_error": N}),
    "cannot say its version": Hazard(lambda: [Nameless()], outcomes={"metric_error": N}),
    "answers a score of another": Hazard(lambda: [Broken(lambda: 0.7)], outcomes={"metric_error": N}),
}


@pytest.mark.parametrize("hazard", METRICS)
def test_a_metric_that(hazard, capfd):
    assert_unharmed(METRICS[hazard], capfd)


def test_a_metric_that_is_cancelled_costs_its_neighbours_nothing(capfd):
    seen = assert_unharmed(Hazard(lambda: [Broken(cancels_itself), Grounded()]), capfd)

    assert seen.status.outcomes == {"broken": {"metric_error": N}, "grounded": {"scored": N}}


def test_workers_outlive_more_cancellations_than_there_are_of_them(capfd):
    hazard = Hazard(lambda: [Broken(cancels_all)], lambda _: {"limits": Limits(workers=2)}, inputs=["?"] * 10)

    seen = assert_unharmed(hazard, capfd)

    assert seen.status.outcomes == {"broken": {"metric_error": 10}}


# --- logging --------------------------------------------------------------------------------------------------------


class Leaves(logging.Handler):
    """Takes a warning for a reason to exit, as a host may that allows none."""

    def emit(self, record):
        raise SystemExit(1)


def test_a_log_handler_that_exits(capfd):
    logger, handler = logging.getLogger("spanscore"), Leaves()
    logger.addHandler(handler)
    try:
        seen = assert_unharmed(Hazard(lambda: [Failing(ValueError("x"))], outcomes={"metric_error": N}), capfd)
    finally:
        logger.removeHandler(handler)

    assert len(seen.trace.roots) == N


# --- hooks ----------------------------------------------------------------------------------------------------------


def raises(error):
    def hook(_):
        raise error

    return hook


class Undecided:
    """Neither true nor false, nor a text."""

    def __bool__(self):
        raise SystemExit(1)

    __str__ = __repr__ = __bool__


def hangs(_):
    return NEVER.wait(20)


NEVER = threading.Event()
HOOKS = {
    "redactor raises": ({"redactor": raises(RuntimeError("x"))}, "redaction_error"),
    "redactor exits": ({"redactor": raises(SystemExit(1))}, "redaction_error"),
    "redactor is interrupted": ({"redactor": raises(KeyboardInterrupt())}, "redaction_error"),
    "redactor gives no text": ({"redactor": lambda _: None}, "redaction_error"),
    "redactor gives bytes": ({"redactor": lambda text: text.encode()}, "redaction_error"),
    "redactor gives a number": ({"redactor": len}, "redaction_error"),
    "redactor hangs": ({"redactor": hangs, "limits": Limits(hook_timeout=0.05)}, "redaction_error"),
    "filter hangs": ({"sample_filter": hangs, "limits": Limits(hook_timeout=0.05)}, "metric_error"),
    "extract hangs": (
        {"capture": Capture(extract=Extract(response=hangs)), "limits": Limits(hook_timeout=0.05)},
        "no_sample",
    ),
    "redactor gives a surrogate": ({"redactor": lambda _: "\ud800"}, "scored"),
    "filter raises": ({"sample_filter": raises(RuntimeError("x"))}, "filtered"),
    "filter exits": ({"sample_filter": raises(SystemExit(1))}, "filtered"),
    "filter gives an array": ({"sample_filter": lambda _: np.zeros(3)}, "filtered"),
    "filter gives what is neither true nor false": ({"sample_filter": lambda _: Undecided()}, "filtered"),
    "redactor gives a list": ({"redactor": lambda text: [text]}, "redaction_error"),
    "redactor gives an object": ({"redactor": lambda _: Undecided()}, "redaction_error"),
}


@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_fails(hook, content, capfd):
    options, outcome = HOOKS[hook]
    capture = options.get("capture", Capture()).model_copy(update={"content": content})

    hazard = Hazard(options=lambda _: {**options, "capture": capture}, metrics=lambda: [Slow(0)])
    seen = assert_unharmed(hazard, capfd)

    assert seen.status.outcomes["slow"] == {outcome: N}
    assert len(seen.trace.roots) == N


# --- exporters of the application -------------------------------------------------------------------------------------


class Exporter(SpanExporter):
    """Runs the given function before each export."""

    def __init__(self, first):
        self.first = first

    def export(self, spans):
        self.first()
        return SpanExportResult.SUCCESS


class Processor(SpanProcessor):
    """Runs the given functions when a span ends, or starts."""

    def __init__(self, ends=lambda: None, starts=lambda: None):
        self.ends, self.starts = ends, starts

    def on_start(self, span, parent_context=None):
        self.starts()

    def on_end(self, span):
        self.ends()


def fail(error):
    def first():
        raise error

    return first


def behind(*processors):
    def options(_):
        trace = a_trace()
        for processor in processors:
            trace.provider.add_span_processor(processor)
        return {"trace": trace}

    return options


class Sink:
    """A user's sink that fails."""

    def __init__(self, error):
        self.error = error

    def emit(self, unit, scores):
        raise self.error

    def shutdown(self):
        raise self.error


class Endless:
    """A user's sink that does not end before the test does."""

    def emit(self, unit, scores):
        pass

    def shutdown(self):
        time.sleep(20)


EXPORTERS = {
    "slow": Hazard(options=behind(SimpleSpanProcessor(Exporter(lambda: time.sleep(0.3)))), quick=True),
    "stuck": Hazard(options=behind(SimpleSpanProcessor(Exporter(lambda: time.sleep(20)))), quick=True),
    "exits": Hazard(options=behind(SimpleSpanProcessor(Exporter(fail(SystemExit(1)))))),
    "processor raises at the end": Hazard(options=behind(Processor(fail(RuntimeError("x")))), outcomes={"scored": N}),
    "processor exits at the end": Hazard(options=behind(Processor(fail(SystemExit(1)))), outcomes={"scored": N}),
    "sink raises": Hazard(
        options=lambda _: {"outputs": Outputs(sinks=[Sink(RuntimeError("x"))])}, outcomes={"scored": N}
    ),
    "sink exits": Hazard(options=lambda _: {"outputs": Outputs(sinks=[Sink(SystemExit(1))])}, outcomes={"scored": N}),
    "sink hangs at its end": Hazard(options=lambda _: {"outputs": Outputs(sinks=[Endless()])}, outcomes={"scored": N}),
}


@pytest.mark.parametrize("hazard", EXPORTERS)
def test_an_exporter_of_the_application(hazard, capfd):
    seen = assert_unharmed(EXPORTERS[hazard], capfd)

    assert hazard in ("slow", "stuck") or len(seen.trace.roots) == N


def test_a_provider_shut_down_first(capfd):
    def options(_):
        provider = TracerProvider()
        provider.shutdown()
        return {"trace": Trace(provider, a_trace().exporter)}

    assert_unharmed(Hazard(options=options), capfd)


def test_units_that_a_stuck_span_thread_never_read_are_counted(capfd):
    """A processor of the application hangs on that thread, at the first child; the units after it are not even opened."""
    go_on = threading.Event()
    stuck = behind(Processor(ends=lambda: go_on.wait(20)))

    try:
        seen = assert_unharmed(
            Hazard(
                options=lambda stack: {
                    **stuck(stack),
                    "outputs": Outputs(span=False, evaluation_span=False, event=False),
                },
                quick=True,
            ),
            capfd,
        )
    finally:
        go_on.set()

    assert seen.status.units == N
    assert seen.status.outcomes == {"grounded": {"shutdown": N}}


@pytest.mark.parametrize("hook", ["redactor", "sample_filter"])
def test_a_hook_that_would_have_to_be_awaited_is_refused(hook):
    async def asked(_):
        return ""

    with pytest.raises(ConfigurationError, match=f"{hook} is a coroutine function"):
        OnlineScorer([Grounded()], **{hook: asked})


# --- collectors -------------------------------------------------------------------------------------------------------


def collector(how):
    def options(stack):
        receiver = stack.enter_context(OtlpReceiver())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        if how == "refuse":
            receiver.refuse()
        else:
            receiver.answer(how)
        return {}

    return options


@pytest.mark.parametrize("how", [200, 404, 503, "hang", "refuse"])
def test_a_collector_that_answers(how, capfd):
    beginning = "spanscore: nothing can be exported to " if how in (404, "refuse") else ""

    assert_unharmed(Hazard(options=collector(how), own_providers=True, quick=True, log_beginning=beginning), capfd)


# --- bounds -----------------------------------------------------------------------------------------------------------

BOUNDS = {
    "queue": Hazard(lambda: [Slow(0.2)], lambda _: {"limits": Limits(queue_size=2)}, inputs=["?"] * 20),
    "event_queue": Hazard(lambda: [Grounded()], lambda _: {"limits": Limits(event_queue_size=2)}, inputs=["?"] * 20),
}


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_full(bound, capfd):
    assert_unharmed(BOUNDS[bound], capfd)
