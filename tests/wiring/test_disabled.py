"""``SPANSCORE_DISABLED``: runs are captured, and no metric or judge is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.live import Grounded, a_trace, run_rag

from spanscore import OnlineScorer, Rule
from spanscore.config import RuleCondition, Sampling

NOTE = "SPANSCORE_DISABLED is set"


@pytest.mark.parametrize("value", ["true", "1", "yes", "please"])
def test_nothing_is_asked_and_what_was_chosen_is_filtered(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPANSCORE_DISABLED", value)
    trace, metric = a_trace(), Grounded()
    with OnlineScorer([metric], tracer_provider=trace.provider) as scorer:
        run_rag(scorer, 3)
        status = scorer.status()

    assert metric.seen == []
    assert status.outcomes == {"grounded": {"filtered": 3}}
    assert [note for note in status.notes if NOTE in note]
    assert {span.attributes.get("spanscore.outcome.grounded") for span in trace.roots} == {"filtered"}
    assert scorer.explain(f"{trace.spans[0].context.trace_id:032x}")


@pytest.mark.parametrize("value", ["", "false", "0", "off"])
def test_a_value_that_says_no_changes_nothing(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPANSCORE_DISABLED", value)
    with OnlineScorer([Grounded()], tracer_provider=a_trace().provider) as scorer:
        run_rag(scorer)

    assert scorer.status().outcomes == {"grounded": {"scored": 1}}
    assert not [note for note in scorer.status().notes if NOTE in note]


def test_a_scorer_of_a_file_and_its_rules_are_stopped_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPANSCORE_DISABLED", "true")
    file = tmp_path / "spanscore.yaml"
    file.write_text("{judge: {model: lexical}, metrics: [faithfulness], sampling: {rate: 0.0}}")
    rules = [Rule(rate=1.0, name="all", when=RuleCondition(status="ok"))]
    with OnlineScorer.from_config(file, sampling=Sampling(rules=rules), tracer_provider=a_trace().provider) as scorer:
        run_rag(scorer)

    assert scorer.status().outcomes == {"faithfulness": {"filtered": 1}}
