"""Whatever an application sends through its chains: nothing of it is run, nothing of it breaks a span or a batch."""

import threading
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import StructuredTool
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from pydantic import BaseModel
from tests.live import ANSWER, CONTEXT, QUESTION, Grounded, a_trace, model
from tests.safety.stage import Hazard, assert_unharmed

from spanscore.config import Capture, Rule, RuleCondition, Sampling

pytestmark = pytest.mark.flaky(reruns=2)  # scenes with deadlines, on a machine that others may use too

N = 2


class Wire(SpanExporter):
    """The first step of every OTLP exporter. Values that cannot be encoded raise, and the SDK prints the exception."""

    def export(self, spans):
        encode_spans(spans).SerializeToString()
        return SpanExportResult.SUCCESS


def on_the_wire(**options: Any):
    def made(_):
        trace = a_trace()
        trace.provider.add_span_processor(SimpleSpanProcessor(Wire()))
        return {"trace": trace, **options}

    return made


class Evil:
    """Raises whatever is asked of it."""

    def fail(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("asked")

    __repr__ = __str__ = __iter__ = __len__ = __bool__ = __eq__ = __getitem__ = __contains__ = __format__ = fail
    __hash__ = object.__hash__


class EvilDict(dict):
    """Raises when it is read."""

    def fail(self, *_: Any) -> Any:
        raise RuntimeError("asked")

    keys = values = items = __iter__ = __getitem__ = get = fail


class EvilModel(BaseModel):
    """Has an invalid field."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("asked")


class EvilError(Exception):
    """Cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError("asked")

    __repr__ = __str__


def nameless(base: type = object) -> Any:
    """Return an object of a class without a name, with slow attributes."""

    class Exits(type):
        @property
        def __name__(cls) -> str:
            raise SystemExit(3)

        def __getattr__(cls, name: str) -> Any:
            raise SystemExit(4)

    class Nameless(base, metaclass=Exits):  # type: ignore[misc]
        @property
        def __class__(self) -> type:  # called by isinstance
            return type(self) if threading.current_thread() is threading.main_thread() else _HANGS.wait(20)

        def __eq__(self, other: object) -> bool:
            return self is other if threading.current_thread() is threading.main_thread() else _HANGS.wait(20)

        __hash__ = object.__hash__

        def __str__(self) -> str:
            return "told" if threading.current_thread() is threading.main_thread() else str(_HANGS.wait(20))

        __repr__ = __str__

    return Nameless()


class SlowMessage(AIMessage):
    """An application's own message with slow attributes."""

    def __getattribute__(self, name: str) -> Any:
        if threading.current_thread() is not threading.main_thread():
            _HANGS.wait(20)
        return super().__getattribute__(name)


_HANGS = threading.Event()
"""Never set: a function that waits for it on a thread of ours blocks that thread."""
_SLOW = nameless(Exception)


def cyclic():
    inner: list[Any] = []
    inner.append({"self": inner})
    return inner


def deep():
    value: Any = "bottom"
    for _ in range(20_000):
        value = [value]
    return value


PAYLOADS = {
    "a lone surrogate": lambda: "\ud800 half",
    "a surrogate as key": lambda: {"\udfff": ["\ud800"]},
    "nan and infinities": lambda: [float("nan"), float("inf"), {"x": float("-inf")}],
    "10 MB of text": lambda: "x" * 10_000_000,
    "10 MB of bytes": lambda: b"\xff" * 10_000_000,
    "100,000 numbers": lambda: list(range(100_000)),
    "a huge integer": lambda: 10**5_000,
    "an object": object,
    "a lock": threading.Lock,
    "an array": lambda: np.zeros((3, 3)),
    "evil": Evil,
    "evil inside": lambda: {"a": [Evil(), {"b": Evil()}]},
    "an evil dict": lambda: EvilDict(a=1),
    "an evil model": EvilModel,
    "a value that holds itself": cyclic,
    "20,000 levels": deep,
    "keys of all sorts": lambda: {1: "a", None: "b", (1, 2): "c", b"x": "d"},
    "a document with one inside": lambda: [Document(page_content="", metadata={"x": nameless(), "score": nameless()})],
    "a document without words": lambda: Document(page_content="", metadata={"evil": Evil()}),
    "a broken message": lambda: AIMessage.model_construct(content=None),
    "a type": lambda: Evil,
    "nameless": nameless,
    "nameless far inside": lambda: {"a": [{"b": [nameless(), {"c": nameless()}]}]},
    "a message that tells nothing": lambda: [SlowMessage(content="Paris")],
    "a nameless text": lambda: nameless(str),
    "nameless in a message": lambda: AIMessage(content="", additional_kwargs={"x": nameless()}),
}


@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_payload_that_is(payload, content, capfd):
    value = PAYLOADS[payload]()

    def state(given):
        return {"answer": ANSWER, "context": [CONTEXT], "given": given["x"], "also": value}

    hazard = Hazard(
        chain=lambda: RunnableLambda(state),
        inputs=[{"question": QUESTION, "x": value}] * N,
        options=on_the_wire(capture=Capture(content=content)),
    )
    seen = assert_unharmed(hazard, capfd)

    assert len(seen.trace.roots) == N
    assert seen.status.outcomes == {"grounded": {"scored": N}}


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_bare_payload_that_is(payload, capfd):
    value = PAYLOADS[payload]()

    chain = Hazard(chain=lambda: RunnableLambda(lambda given: given), inputs=[value] * N, options=on_the_wire())
    seen = assert_unharmed(chain, capfd)

    assert len(seen.trace.roots) == N


def test_an_iterator_is_not_used_up(capfd):
    given = iter(range(3))

    assert_unharmed(
        Hazard(
            chain=lambda: RunnableLambda(lambda x: x),
            inputs=[given],
            options=on_the_wire(capture=Capture(content=True)),
        ),
        capfd,
    )

    assert list(given) == [0, 1, 2]


def tool(name):
    def use(_):
        return StructuredTool.from_function(lambda city: f"\ud800 {city}", name=name, description="x").invoke(
            {"city": "\udfff"}
        )

    return RunnableLambda(use)


def failing(error):
    def fail(_):
        raise error

    return RunnableLambda(fail)


def reporting(**usage):
    answer = AIMessage(content="\ud800", response_metadata={"model_name": "\ud800", "finish_reason": "\udfff"})
    answer.usage_metadata = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, **usage}
    return RunnableLambda(lambda _: "x") | model().model_copy(
        update={"messages": iter([answer, answer, answer, answer])}
    )


RUNS = {
    "a tool with half a name": Hazard(chain=lambda: tool("\ud800")),
    "a run with half a name": Hazard(more={"run_name": "\ud800"}),
    "half a session": Hazard(more={"metadata": {"session_id": "\ud800"}}),
    "an evil session": Hazard(more={"metadata": {"session_id": Evil()}}),
    "evil metadata": Hazard(more={"metadata": {"tier": Evil()}}),
    "an array as metadata": Hazard(more={"metadata": {"tier": np.zeros(3)}}),
    "tokens beyond 64 bits": Hazard(chain=lambda: reporting(input_tokens=10**30)),
    "tokens that are none": Hazard(chain=lambda: reporting(input_tokens=float("nan"), output_tokens="many")),
    "an error that cannot be printed": Hazard(chain=lambda: failing(EvilError())),
    "an error that takes long to print": Hazard(chain=lambda: failing(_SLOW)),
    "an error with such an argument": Hazard(chain=lambda: failing(ValueError(nameless()))),
    "a nameless session": Hazard(more={"metadata": {"session_id": nameless(), "tier": nameless()}}),
    "an error of 10 MB": Hazard(chain=lambda: failing(ValueError("\ud800" + "x" * 10_000_000))),
    "an exit": Hazard(chain=lambda: failing(SystemExit(3))),
    "an interrupt": Hazard(chain=lambda: failing(KeyboardInterrupt())),
}


@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize("run", RUNS)
def test_a_run_with(run, content, capfd):
    rule = Rule(rate=1.0, name="gold", when=RuleCondition(metadata={"tier": "gold"}))
    hazard = RUNS[run]
    hazard.inputs, hazard.options = (
        ["go"] * N,
        on_the_wire(capture=Capture(content=content), sampling=Sampling(rules=[rule])),
    )

    seen = assert_unharmed(hazard, capfd)

    assert len(seen.trace.roots) == N
    assert all(len(str(dict(span.attributes))) < 100_000 for span in seen.trace.spans)


@pytest.mark.parametrize("content", [False, True])
def test_what_a_judge_says_can_be_encoded(content, capfd):
    class Says(Grounded):
        async def measure(self, sample):
            finding = await super().measure(sample)
            return type(finding)(value=1.0, explanation="\ud800" + "x" * 5_000_000)

    seen = assert_unharmed(
        Hazard(lambda: [Says()], on_the_wire(capture=Capture(content=content)), inputs=["?"] * N), capfd
    )

    assert len(seen.trace.evaluations) == N
