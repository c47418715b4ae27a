"""The hazards once more, in a host that another instrumentation traces: the scorer is behind a ``ScoringSpanProcessor``."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from tests.live import Grounded, Slow, a_trace
from tests.safety import test_hazards as hazards
from tests.safety.stage import Hazard, assert_unharmed

from spanscore import semconv
from spanscore.config import Capture

pytestmark = pytest.mark.flaky(reruns=2)  # scenes with deadlines, on a machine that others may use too

N = hazards.N
JUDGES = ("hangs", "hangs at the end", "swallows its cancellation", "raises SystemExit", "is rate limited")
"""A judge's fault is the same behind any receiver; these are faults with waiting units."""


@pytest.mark.parametrize("hazard", JUDGES)
def test_a_judge_that(hazard: str, capfd: Any) -> None:
    assert_unharmed(replace(hazards.JUDGES[hazard], traced=True), capfd)


@pytest.mark.parametrize("hook", hazards.HOOKS)
def test_a_hook_that_fails(hook: str, capfd: Any) -> None:
    options, outcome = hazards.HOOKS[hook]

    seen = assert_unharmed(Hazard(options=lambda _: dict(options), metrics=lambda: [Slow(0)], traced=True), capfd)

    assert seen.status.outcomes["slow"] == {outcome: N}
    assert len(seen.trace.roots) == N


@pytest.mark.parametrize("hazard", hazards.EXPORTERS)
def test_an_exporter_of_the_application(hazard: str, capfd: Any) -> None:
    seen = assert_unharmed(replace(hazards.EXPORTERS[hazard], traced=True), capfd)

    assert hazard in ("slow", "stuck") or len(seen.trace.roots) == N


@pytest.mark.parametrize("bound", hazards.BOUNDS)
def test_a_full(bound: str, capfd: Any) -> None:
    hazard = hazards.BOUNDS[bound]

    seen = assert_unharmed(replace(hazard, traced=True), capfd)

    assert len(seen.trace.roots) == len(hazard.inputs), "a span was lost"
    assert len({span.context.span_id for span in seen.trace.spans}) == len(seen.trace.spans)


def test_units_that_a_stuck_span_thread_never_read_are_counted(capfd: Any) -> None:
    go_on = threading.Event()
    stuck = hazards.behind(hazards.Processor(ends=lambda: go_on.wait(20)))

    try:
        seen = assert_unharmed(Hazard(options=stuck, quick=True, traced=True), capfd)
    finally:
        go_on.set()

    assert seen.status.units == N


def test_documents_of_177_kb_are_held_once_and_leave_whole(capfd: Any) -> None:
    text = "word " * 35_400

    class Library(Grounded):
        async def measure(self, sample: Any) -> Any:
            assert len(sample.user_input) == len(text)
            return await super().measure(sample)

    hazard = Hazard(lambda: [Library()], chain=hazards.Answers, inputs=[text] * N, traced=True)

    seen = assert_unharmed(hazard, capfd)

    assert seen.status.outcomes == {"grounded": {"scored": N}}
    assert [root.attributes[semconv.INPUT_MESSAGES].count("word ") for root in seen.trace.roots] == [35_400] * N


SECRET = "4111 1111 1111 1111"


def test_the_redactor_is_for_judges_and_evaluation_spans_and_the_applications_own_spans_stay_its_own(
    capfd: Any,
) -> None:
    def redact(text: str) -> str:
        return text.replace(SECRET, "[card]")

    class Asked(Grounded):
        async def measure(self, sample: Any) -> Any:
            assert SECRET not in str(sample)
            return await super().measure(sample)

    trace = a_trace()
    options = {"redactor": redact, "capture": Capture(content=True), "trace": trace}
    hazard = Hazard(lambda: [Asked()], lambda _: options, inputs=[f"my card is {SECRET}"] * N, traced=True)

    seen = assert_unharmed(hazard, capfd)

    assert seen.status.outcomes == {"grounded": {"scored": N}}
    assert [SECRET in str(dict(root.attributes)) for root in trace.roots] == [True] * N
    assert not any(SECRET in str(dict(span.attributes)) for span in trace.evaluations)
