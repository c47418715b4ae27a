"""A second judge of a metric: asked about the same units, and without effect on the first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.judges.models import Answers
from tests.live import QUESTION, Failing, Grounded, Held, a_line, identity_holds, rag, run_rag
from tests.report.builders import make_score
from tests.servers.server import poll

from spanscore import ConfigurationError
from spanscore.config import Budget, JudgeSettings, Limits, Outputs
from spanscore.core.job import JobResult
from spanscore.core.span import Unit, UnitKey
from spanscore.judges import judge
from spanscore.metrics import AspectCritic, Finding
from spanscore.pipeline.ledger import Ledger
from spanscore.testing import MemorySink
from spanscore.wiring.metrics import ShadowPairs

GOOD = '{"reason": "", "verdict": 1}'


class Stern(Grounded):
    """Another opinion of the metric ``grounded``."""

    def __init__(self, value: float = 0.25) -> None:
        super().__init__("grounded")
        self.value = value

    async def measure(self, sample: Any) -> Finding:
        return Finding(value=self.value)


class HeldShadow(Held):
    """One that waits until it may go on."""

    base_version = "2"


class FailingShadow(Failing):
    """One that raises."""

    base_version = "2"


def config(scorer: Any) -> dict[str, Any]:
    return {"callbacks": [scorer.handler]}


def until(condition: Callable[[], bool]) -> None:
    poll(condition, deadline_s=10, what="the scorer")


def values_of(reader: InMemoryMetricReader, name: str) -> dict[tuple[str, ...], float]:
    """Source, and outcome if there is one → value of an instrument; zeros left out."""
    points = [
        point
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    ]
    found: dict[tuple[str, ...], float] = {}
    for point in points:
        labels = dict(point.attributes or {})
        key = tuple(str(labels.get(one, "")) for one in ("spanscore.evaluation.source", "spanscore.evaluation.outcome"))
        found[key] = found.get(key, 0.0) + point.value
    return {key: value for key, value in found.items() if value}


def test_a_shadow_has_an_evaluation_span_of_its_own_and_the_units_span_says_nothing_of_it() -> None:
    with a_line(judge=JudgeSettings(shadows=[Stern()])) as (scorer, trace):
        run_rag(scorer)

    own, shadow = sorted(trace.evaluations, key=lambda span: "spanscore.evaluation.source" in span.attributes)
    assert own.context.span_id != shadow.context.span_id
    assert own.parent.span_id == shadow.parent.span_id == trace.roots[0].context.span_id
    assert shadow.attributes["spanscore.evaluation.source"] == "shadow"
    assert shadow.attributes["gen_ai.evaluation.score.value"] == 0.25
    assert shadow.attributes["spanscore.evaluator.version"] != own.attributes["spanscore.evaluator.version"]
    assert not [name for name in shadow.attributes if name.startswith(("spanscore.score.g", "spanscore.verdict"))]
    root = trace.roots[0].attributes
    assert (root["spanscore.score.grounded"], root["spanscore.verdict"]) == (1.0, "pass")
    assert (root["spanscore.status"], "spanscore.evaluation.source" in root) == ("scored", False)


def test_a_shadow_is_counted_beside_the_outcomes_and_both_add_up() -> None:
    reader = InMemoryMetricReader()
    with a_line(judge=JudgeSettings(shadows=[Stern()]), meter_provider=MeterProvider([reader])) as (scorer, _):
        run_rag(scorer, 3)

        assert identity_holds(scorer)
        assert values_of(reader, "spanscore.eligible") == {("", ""): 3, ("shadow", ""): 3}
        assert values_of(reader, "spanscore.evaluations") == {("", "scored"): 3, ("shadow", "scored"): 3}
        assert values_of(reader, "spanscore.weight.quality") == {("", ""): 3.0, ("shadow", ""): 0.75}


def test_status_compares_both_on_the_same_units() -> None:
    with a_line(judge=JudgeSettings(shadows=[Stern(0.25)])) as (scorer, _):
        run_rag(scorer, 3)

        assert scorer.status().means["grounded"][0] == 1.0
        assert "grounded shadow" in str(scorer.status())
        assert "mean 0.25 against 1.00 on the same 3 units; difference −0.75" in " ".join(str(scorer.status()).split())


@pytest.mark.parametrize("own_first", [True, False])
def test_what_a_fallback_judged_is_not_compared(own_first: bool) -> None:
    unit, ledger = Unit(UnitKey(1, 2), ()), Ledger(["faithfulness"])
    pairs = ShadowPairs(["faithfulness"], ledger)
    ledger.enter(unit.key)
    settle = [
        lambda: pairs.add_own_scores(JobResult(unit, [make_score(1.0, source="fallback")])),
        lambda: pairs.add_shadow_scores(unit, [make_score(0.0, source="shadow")]),
    ]

    for one in settle if own_first else reversed(settle):
        one()

    assert str(pairs.compared["faithfulness"]) == "no unit has both scores yet"


def test_a_units_spans_do_not_wait_for_a_shadow() -> None:
    go_on = threading.Event()
    with a_line(judge=JudgeSettings(shadows=[HeldShadow(go_on, "grounded")]), outputs=Outputs(hold=30)) as (
        scorer,
        trace,
    ):
        rag().invoke(QUESTION, config=config(scorer))

        until(lambda: [root.attributes["spanscore.status"] for root in trace.left_roots] == ["scored"])
        assert not scorer.flush(0.05)
        assert scorer.status().shadows[0].pending == 1
        go_on.set()
        assert scorer.flush(5)
        assert len(trace.evaluations) == 2


def test_a_shadow_that_fails_takes_nothing_from_the_score() -> None:
    reader = InMemoryMetricReader()
    broken = FailingShadow(RuntimeError("no"), "grounded")
    with a_line(judge=JudgeSettings(shadows=[broken]), meter_provider=MeterProvider([reader])) as (scorer, trace):
        run_rag(scorer)

        assert values_of(reader, "spanscore.evaluations") == {("", "scored"): 1, ("shadow", "metric_error"): 1}
        assert "metric_error 1; latest metric_error: grounded raised RuntimeError" in " ".join(
            str(scorer.status()).split()
        )
    assert trace.roots[0].attributes["spanscore.status"] == "scored"
    assert not [name for name in trace.roots[0].attributes if name.startswith("spanscore.outcome.")]


def test_a_shadow_that_hangs_fills_a_room_of_its_own() -> None:
    go_on = threading.Event()
    with a_line(judge=JudgeSettings(shadows=[HeldShadow(go_on, "grounded")]), limits=Limits(queue_size=2)) as (
        scorer,
        _,
    ):
        for number in range(4):
            rag().invoke(QUESTION, config=config(scorer))
            until(lambda n=number: scorer.status().outcomes["grounded"].get("scored", 0) == n + 1)

        (shadow,) = scorer.status().shadows
        assert (shadow.eligible, shadow.pending, dict(shadow.outcomes)) == (4, 2, {"queue_full": 2})
        go_on.set()
        assert scorer.flush(5)


def test_what_a_shutdown_finds_at_a_shadow_ends_as_shutdown() -> None:
    go_on = threading.Event()
    with a_line(judge=JudgeSettings(shadows=[HeldShadow(go_on, "grounded")])) as (scorer, _):
        rag().invoke(QUESTION, config=config(scorer))
        until(lambda: scorer.status().outcomes["grounded"] == {"scored": 1})
        scorer.shutdown(0.2)

        (shadow,) = scorer.status().shadows
        assert (shadow.eligible, shadow.pending, dict(shadow.outcomes)) == (1, 0, {"shutdown": 1})
        assert scorer.status().outcomes["grounded"] == {"scored": 1}


def test_only_what_the_metric_takes_is_asked_of_its_shadow() -> None:
    with a_line(judge=JudgeSettings(shadows=[Stern()]), sample_rate=0.0) as (scorer, _):
        run_rag(scorer)

        assert scorer.status().shadows[0].eligible == 0


def test_a_sink_of_ones_own_gets_the_stratum() -> None:
    sink = MemorySink()
    with a_line(judge=JudgeSettings(shadows=[Stern()]), outputs=Outputs(sinks=[sink])) as (scorer, _):
        run_rag(scorer)

    strata = {score.source: (score.value, score.probability) for score in sink.scores}
    assert strata == {None: (1.0, 1.0), "shadow": (0.25, 1.0)}


def test_a_shadow_is_paid_from_a_budget_of_its_own() -> None:
    old, new = (AspectCritic(judge(Answers(GOOD)), name="kind", definition="Kind?") for _ in range(2))
    own, of_the_shadow = [Budget(calls=100, per="30d")], [Budget(calls=2, per="30d")]
    asked = JudgeSettings(shadows=[new], budget=own, shadow_budget=of_the_shadow)
    with a_line(old, judge=asked) as (scorer, _):
        for _ in range(4):
            run_rag(scorer)

        assert scorer.status().outcomes["kind"] == {"scored": 4}
        assert scorer.status().shadows[0].outcomes == {"scored": 2, "budget_exhausted": 2}
        assert [(one.source, one.spent, one.limit) for one in scorer.status().budgets] == [
            (None, 4, 100),
            ("shadow", 2, 2),
        ]
        assert "shadow: 2 of 2 calls" in " ".join(str(scorer.status()).split())


def test_what_a_shadow_may_be_paid_is_as_much_again_where_nothing_is_said() -> None:
    with a_line(judge=JudgeSettings(shadows=[Stern()], budget=[Budget(calls=100, per="1h")], replica_share=0.5)) as (
        scorer,
        _,
    ):
        assert [(one.source, one.limit) for one in scorer.status().budgets] == [(None, 50), ("shadow", 50)]


REFUSED = {
    "shadows has 'harmless', which is not a metric of this scorer; it has grounded": [Grounded("harmless")],
    r"shadows has 'grounded' of the evaluator version \S+, as the metric itself": [Grounded()],
    "two metrics are called 'grounded'": [Stern(), Stern(0.5)],
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_a_shadow_is_refused(message: str) -> None:
    with pytest.raises(ConfigurationError, match=message), a_line(judge=JudgeSettings(shadows=REFUSED[message])):
        pass
