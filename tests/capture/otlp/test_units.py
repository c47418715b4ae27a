"""Received spans become units. The test itself is the clock, the event queue and the listener."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.capture.otlp.builders import CLIENT, FRAMEWORK, a_wire_span, taken

from spanscore import semconv
from spanscore.capture.intake import Intake
from spanscore.capture.otlp.claims import WireClaims
from spanscore.capture.otlp.requests import StreamMessage
from spanscore.capture.otlp.spans import OtlpSpans
from spanscore.core.codecs.otlp_request import WireSpan
from spanscore.core.event_queue import EventQueue
from spanscore.core.score import Outcome
from spanscore.core.span import Unit, UnitKey
from spanscore.pipeline.ledger import Ledger
from spanscore.pipeline.sampling import RateSampler
from spanscore.pipeline.trace_index import Bounds, unit_key
from spanscore.protocols import PendingSpan, Receiver
from spanscore.samples.normalizers.registry import SpanNormalizers

S = 1_000_000_000
BROKEN = b"J\x01\xff"
"""An attribute with broken bytes, which only a full decoding of the span detects."""
SAID = '[{"role": "user", "parts": [{"type": "text", "content": "2 + 2?"}]}]'
CONTENT = {semconv.INPUT_MESSAGES: SAID, semconv.OUTPUT_MESSAGES: SAID}


class Ways:
    """A ``Forward`` that records the forwarded spans and their attributes."""

    def __init__(self) -> None:
        self.gone: list[tuple[WireSpan, Mapping[str, Any] | None]] = []

    def __call__(self, span: WireSpan, attributes: Mapping[str, Any] | None) -> None:
        self.gone.append((span, attributes))

    @property
    def spans(self) -> list[WireSpan]:
        return [span for span, _ in self.gone]


class Served:
    """A receiver and its output."""

    def __init__(
        self, rate: float = 1.0, *, listed: Sequence[str] = (), ignored: Sequence[str] = (), **bounds: Any
    ) -> None:
        self.now_ns, self.units = 0, list[tuple[Unit, Outcome]]()
        self.ledger, self.event_queue = Ledger(["grounded"]), EventQueue[Receiver](soft_events=10)
        self.sampler = RateSampler({"grounded": rate})
        translator = SpanNormalizers()
        self.intake = Intake(
            self.event_queue,
            self,  # type: ignore[arg-type] # methods that are not called are missing
            self.sampler,
            self.ledger,
        )
        self.receiver = OtlpSpans(
            self.intake,
            bounds=Bounds(**bounds),
            claims=WireClaims(translator, listed=listed, ignored=ignored),
            translator=translator,
            ready=lambda: None,
        )

    def unit_complete(
        self, unit: Unit, pending: Mapping[int, PendingSpan], now_ns: int, *, lost: Outcome, reason: str | None = None
    ) -> None:
        """Take in a unit as the tracker does, and let it leave at once."""
        self.units.append((unit, lost))
        for span_id, span in pending.items():
            span.end({"scored": True} if span_id == unit.key.span_id else None)

    def send(self, *spans: WireSpan, to: Ways | None = None) -> list[WireSpan]:
        """Send a request and have it read; return the kept spans."""
        kept = self.receiver.accept(taken(spans), to)
        self.read()
        return list(kept)

    def read(self) -> None:
        while (entry := self.event_queue.take()) is not None:
            self.receiver.handle(entry[1], self.now_ns)

    def pass_time(self, seconds: float) -> None:
        self.now_ns += int(seconds * S)
        self.receiver.tick(self.now_ns)

    def takes(self, unit: Unit) -> bool:
        return self.sampler.decide(unit.facts(), "grounded").take

    def outcomes(self) -> dict[str, int]:
        return {outcome.value: units for (_, outcome), units in self.ledger.outcomes().items()}

    def keys(self) -> list[UnitKey]:
        return [unit.key for unit, _ in self.units]


def agent(**more: Any) -> WireSpan:
    return a_wire_span(**{**CONTENT, **more})


def tool(parent: WireSpan, **more: Any) -> WireSpan:
    return a_wire_span("execute_tool", parent=parent, trace=int.from_bytes(parent.trace_id), **more)


def test_a_unit_is_handed_on_whole_in_the_order_in_which_its_spans_began() -> None:
    served, root = Served(), agent()
    first, second = tool(root), tool(root)

    served.send(second)
    served.send(root, first)
    served.pass_time(2)

    [(unit, _)] = served.units
    assert [span.span_id for span in unit.spans] == [unit_key(span).span_id for span in (root, first, second)]
    assert (unit.complete, unit.revision, served.receiver.units) == (True, 0, 1)


def test_the_root_comes_first_of_spans_that_start_together() -> None:
    served, root = Served(), agent()

    served.send(tool(root, after_ns=-1_000), root)  # each span starts 1 µs after the one before
    served.pass_time(2)

    [(unit, _)] = served.units
    assert unit.spans[0] is unit.root


def test_traces_of_a_second_instrumentation_of_a_library_are_counted_as_unread() -> None:
    served, second = Served(), "opentelemetry.instrumentation.langchain"
    kinds = {FRAMEWORK: range(1, 11), CLIENT: range(11, 21), second: range(21, 31)}
    roots = [agent(trace=trace, scope=scope) for scope, traces in kinds.items() for trace in traces]

    served.send(*roots, *[tool(root, scope=second) for root in roots[:10]])  # both trace these runs
    served.send(*[tool(root, scope=second) for root in roots[20:]])
    served.pass_time(2)

    assert (len(served.units), served.receiver.received().unread) == (20, {second: 10})


def test_what_no_rate_takes_is_counted_and_never_decoded() -> None:
    served = Served(rate=0.0)

    served.send(agent()._replace(raw=agent().raw + BROKEN))  # it cannot be
    served.pass_time(2)

    assert (served.units, served.outcomes()) == ([], {"not_sampled": 1})


@pytest.mark.parametrize("rate", [0.0, 1.0])
@pytest.mark.parametrize(
    "named",
    [
        {"operation": "create_agent"},
        {"operation": "embeddings"},
        {"operation": None, "scope": CLIENT, semconv.SYSTEM: "OpenAI", semconv.REQUEST_TYPE: "embedding"},
        {"operation": None, "scope": CLIENT, semconv.SYSTEM: "Cohere", semconv.REQUEST_TYPE: "rerank"},
        {"operation": None, "scope": "langsmith", semconv.LANGSMITH_KIND: "embedding"},
        {"operation": None, "scope": "ai", "ai.operationId": "ai.embed"},
        {"operation": None, "scope": "ai", "ai.operationId": "ai.embedMany.doEmbed"},
        {"operation": None, "scope": "ai", "ai.operationId": "ai.rerank"},
        {"operation": None, "scope": "langfuse-sdk", "langfuse.observation.type": "embedding"},
        {"operation": None, "scope": "mlflow", "mlflow.spanType": '"EMBEDDING"'},
    ],
    ids=str,
)
def test_what_asks_nothing_is_no_unit_at_any_rate(rate: float, named: dict[str, str]) -> None:
    served = Served(rate)

    served.send(a_wire_span(**named))  # type: ignore[arg-type]
    served.pass_time(2)

    assert (served.units, served.outcomes(), served.receiver.units) == ([], {}, 0)


@pytest.mark.parametrize("framework_first", [False, True])
def test_a_model_call_without_a_parent_is_a_unit_whatever_came_before_it(framework_first: bool) -> None:
    served = Served()
    spans = [agent(operation="chat", scope=CLIENT), agent(trace=2, scope=FRAMEWORK)]

    for span in reversed(spans) if framework_first else spans:
        served.send(span)
        served.pass_time(1)
    served.pass_time(2)

    assert sorted(unit.spans[0].scope for unit, _ in served.units) == sorted([CLIENT, FRAMEWORK])


def test_an_end_before_its_start_is_the_start_and_is_reported() -> None:
    served, span = Served(), agent()

    served.send(span._replace(raw=span.raw + b"A" + bytes(8)))  # the end once more: 0, and the last one counts
    served.pass_time(2)

    [(unit, _)] = served.units
    assert unit.spans[0].end_ns == unit.spans[0].start_ns
    assert (
        "1 of the spans that were read have an end before its start: it is read as its start" in served.receiver.notes()
    )


def test_evaluations_are_refused_and_counted() -> None:
    served = Served()

    served.send(agent(scope=semconv.SCOPE), agent(scope="spanscore.judge"))
    served.pass_time(100)

    assert (served.units, served.outcomes(), served.receiver.counts.ours) == ([], {}, 2)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_who_reads_gets_the_traces_of_a_message_but_for_evaluations(rate: float) -> None:
    served, reported = Served(rate), list[Collection[bytes]]()
    served.receiver.begin_stream("a partition", 600 * S)
    root = agent(trace=1)
    spans = (tool(root), root, a_wire_span(None, trace=2), a_wire_span(trace=3, scope=semconv.SCOPE))

    arrived = served.receiver.classify_message(taken(spans))
    assert arrived is not None
    served.receiver.accept_messages([StreamMessage("a partition", 0, arrived, reported.append)])
    served.read()

    assert reported == [{number.to_bytes(16) for number in (1, 2)}]


def test_spans_whose_root_never_comes_are_a_unit_if_they_stand_alone() -> None:
    served, missing = Served(), agent()
    lone, orphan = agent(parent=missing), tool(agent(trace=2), **CONTENT)

    served.send(lone, orphan)
    served.pass_time(60)

    assert served.keys() == [unit_key(lone)]
    assert served.receiver.table.orphans == 1


def test_a_retrieval_of_our_own_capture_whose_root_never_comes_is_an_orphan() -> None:
    served, missing = Served(), agent(scope=semconv.CAPTURE_SCOPE)
    answer = a_wire_span("chat", parent=missing, scope=semconv.CAPTURE_SCOPE, **CONTENT)
    retrieval = a_wire_span("retrieval", parent=missing, scope=semconv.CAPTURE_SCOPE)

    served.send(answer, retrieval)
    served.pass_time(60)

    assert (served.keys(), served.receiver.table.orphans) == ([unit_key(answer)], 1)


def test_an_orphan_that_is_no_span_keeps_no_other_from_being_a_unit() -> None:
    served, root = Served(), agent()
    orphan = tool(agent(trace=2))

    served.send(orphan._replace(raw=orphan.raw + BROKEN), root)
    served.pass_time(60)

    assert (served.keys(), served.receiver.table.orphans) == ([unit_key(root)], 1)


def test_a_root_that_comes_when_its_spans_were_given_up_is_too_late() -> None:
    served, root = Served(), agent()
    served.send(tool(root))
    served.pass_time(60)

    served.send(root)
    served.pass_time(2)

    [(unit, lost)] = served.units
    assert (unit.complete, lost) == (False, Outcome.INCOMPLETE)


@pytest.mark.parametrize(
    ("scope", "units"), [("opentelemetry.instrumentation.llamaindex", 1), ("opentelemetry.instrumentation.openai", 2)]
)
def test_only_a_step_of_llama_index_belongs_to_its_run_though_that_had_ended(scope: str, units: int) -> None:
    served, root = Served(), agent(scope=scope)
    served.send(root)

    served.send(a_wire_span("chat", parent=root, scope=scope, after_ns=2 * S))
    served.pass_time(60)

    assert len(served.units) == units


def test_a_step_of_llama_index_whose_run_never_ends_is_no_unit() -> None:
    scope = "opentelemetry.instrumentation.llamaindex"
    served, query = Served(), agent(scope=scope)

    served.send(a_wire_span(None, parent=query, scope=scope, **{semconv.TRACELOOP_KIND: "task", **CONTENT}))
    served.pass_time(60)
    served.pass_time(2)

    assert (served.units, served.receiver.table.orphans) == ([], 1)


def test_a_unit_that_is_too_large_is_handed_on_by_its_root_alone() -> None:
    served, root = Served(max_spans=2), agent()

    served.send(root, tool(root), tool(root))
    served.pass_time(2)

    [(unit, lost)] = served.units
    assert (unit.complete, lost, len(unit.spans)) == (False, Outcome.INCOMPLETE, 1)


def test_a_span_that_is_none_makes_its_unit_incomplete() -> None:
    served, root = Served(), agent()
    broken = tool(root)

    served.send(root, broken._replace(raw=broken.raw + BROKEN))
    served.pass_time(2)

    [(unit, lost)] = served.units
    assert (unit.complete, lost, unit.root is not None) == (False, Outcome.INCOMPLETE, True)


def test_a_late_span_makes_the_next_revision_where_that_is_asked_for() -> None:
    served, root = Served(late="rescore"), agent()
    served.send(root)
    served.pass_time(2)

    served.send(tool(root))
    served.pass_time(2)

    assert [(unit.revision, len(unit.spans)) for unit, _ in served.units] == [(0, 1), (1, 2)]
    assert served.receiver.units == 1


def test_a_flush_waits_for_units_whose_root_is_there() -> None:
    served, root = Served(), agent()
    served.send(root, tool(agent(trace=2)))

    assert served.receiver.in_flight() == {unit_key(root)}

    served.pass_time(2)
    assert served.receiver.in_flight() == set()


def test_the_end_hands_on_what_has_its_root_and_counts_the_rest_as_shutdown() -> None:
    served, root = Served(), agent()
    lone = agent(parent=agent(trace=2), trace=2)
    served.send(root, lone)

    assert served.receiver.drain(served.now_ns) == []

    ended = {unit.key: (unit.complete, lost) for unit, lost in served.units}
    assert ended[unit_key(root)][0]
    assert ended[unit_key(lone)] == (False, Outcome.SHUTDOWN)


@pytest.mark.parametrize(
    ("bounds", "full"), [({"bytes": 100}, "bytes"), ({"traces": 1}, "traces"), ({}, None)], ids=str
)
def test_what_is_full_is_reported(bounds: dict[str, int], full: str | None) -> None:
    served = Served(**bounds)
    assert served.receiver.overloaded() is None

    served.send(agent())

    assert served.receiver.overloaded() == full


def test_an_inbox_that_nobody_reads_is_full() -> None:
    served = Served()

    for _ in range(10):
        served.receiver.accept(taken([agent()]))

    assert served.receiver.overloaded() == "event_queue"


def test_traces_that_nobody_has_read_are_open_too() -> None:
    served, root = Served(traces=2), agent()
    served.receiver.accept(taken([root, tool(root)]))
    assert served.receiver.overloaded() is None

    served.receiver.accept(taken([agent(trace=2)]))
    assert served.receiver.overloaded() == "traces"

    served.read()
    assert served.receiver.overloaded() == "traces"
    served.pass_time(2)
    assert served.receiver.overloaded() is None


# --- a proxy -------------------------------------------------------------------------------------------------------


def test_kept_spans_go_on_once_and_the_root_with_its_scores() -> None:
    served, to, root = Served(), Ways(), agent()
    child, other = tool(root), a_wire_span(None, parent=root)

    kept = served.send(root, child, other, to=to)
    served.pass_time(2)

    assert kept == [root, child]
    assert to.gone == [(root, {"scored": True}), (child, None)]


def test_what_no_rate_takes_is_not_kept() -> None:
    served, to = Served(rate=0.0), Ways()

    assert served.send(agent(), to=to) == []


def test_a_span_that_comes_again_goes_on_once() -> None:
    served, to, root = Served(), Ways(), agent()

    served.send(root, to=to)
    served.send(root, to=to)
    served.pass_time(2)
    served.send(root, to=to)
    served.pass_time(100)

    assert to.spans == [root]


def test_a_child_does_not_wait_for_longer_than_five_seconds_and_a_root_until_its_unit_closes() -> None:
    served, to, root = Served(quiet_ns=60 * S), Ways(), agent()
    child = tool(root)
    served.send(root, child, to=to)

    served.pass_time(5)
    assert to.gone == [(child, None)]
    assert served.receiver.next_due_ns() == 10 * S

    served.pass_time(55)
    assert to.gone == [(child, None), (root, {"scored": True})]


@pytest.mark.parametrize("operation", ["create_agent", "invoke_agent"])
def test_whatever_becomes_of_a_kept_span_it_goes_on(operation: str) -> None:
    served, to, late = Served(), Ways(), agent(trace=3)
    root = agent(operation=operation)
    spans = [root, tool(root), tool(agent(trace=2)), late]
    broken = tool(root)

    served.send(*spans, broken._replace(raw=broken.raw + BROKEN), to=to)
    served.pass_time(60)
    served.send(again := tool(late), to=to)
    served.pass_time(60)

    assert sorted(span.span_id for span in to.spans) == sorted(span.span_id for span in [*spans, broken, again])


def test_what_is_kept_at_the_end_goes_on() -> None:
    served, to, root = Served(), Ways(), agent()
    orphan = tool(agent(trace=2))
    served.send(root, orphan, to=to)

    served.receiver.drain(served.now_ns)

    assert sorted(to.spans) == sorted([root, orphan])


def test_a_receiver_with_new_parts_sends_nothing_on() -> None:
    served, to = Served(), Ways()
    served.send(agent(), to=to)

    served.receiver.connect(served.intake)
    served.receiver.drain(served.now_ns)

    assert (to.gone, served.units, served.receiver.counts.spans) == ([], [], 0)


@given(seed=st.integers(0, 2**32), rate=st.sampled_from([0.0, 0.5, 1.0]), late=st.sampled_from(["count", "rescore"]))
@example(seed=1996, rate=1.0, late="rescore")  # a late span leaves a tool incomplete, whose agent was scored
@settings(max_examples=60, deadline=None)
def test_whatever_comes_when_each_kept_span_goes_on_once_and_each_revision_ends_once(
    seed: int, rate: float, late: str
) -> None:
    chance, to = Random(seed), Ways()
    served = Served(rate, quiet_ns=2 * S, orphan_wait_ns=20 * S, max_spans=5, late=late)
    spans = a_few_traces(chance)
    kept: set[bytes] = set()

    for span in chance.choices(spans, k=2 * len(spans)):  # some come again, and some never
        kept |= {one.span_id for one in served.send(span, to=to)}
        served.pass_time(chance.choice([0, 0, 0, 1, 3, 25]))
    served.receiver.drain(served.now_ns)

    assert sorted(span.span_id for span in to.spans) == sorted(kept)
    ended = [(unit.key, unit.revision) for unit, _ in served.units]
    assert len(ended) == len(set(ended))
    assert served.receiver.units == len({key for key, _ in ended}) + sum(served.outcomes().values())
    assert (served.receiver.table.bytes, served.receiver.unread_count()) == (0, 0)


def a_few_traces(chance: Random) -> list[WireSpan]:
    """Agents and steps, some under a span of something else, some with a parent that is not there."""
    spans = []
    for trace in range(1, 5):
        within = [a_wire_span(None, trace=trace, scope="http")] if chance.random() < 0.5 else []
        for _ in range(chance.randint(1, 8)):
            parent = chance.choice([*within, None])
            make = agent if parent is None or chance.random() < 0.3 else partial(a_wire_span, "execute_tool")
            within.append(make(trace=trace, parent=parent))
        chance.shuffle(within)
        spans += within[chance.random() < 0.3 :]
    return spans
