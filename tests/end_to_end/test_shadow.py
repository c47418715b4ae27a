"""A judge is to be replaced: the new one is a shadow of the old one, from a file, over HTTP; then one is unavailable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.live import QUESTION, Trace, a_trace, rag
from tests.servers.openai_api import OpenAIServer

from spanscore import OnlineScorer

REQUESTS = 4
NOWHERE = "http://127.0.0.1:9/v1"


def saying(verdict: int) -> Callable[[dict[str, Any]], str]:
    return lambda _: f'{{"reason": "", "verdict": {verdict}}}'


@contextmanager
def scored(folder: Path, old: str, new: str) -> Iterator[tuple[OnlineScorer, Trace, InMemoryMetricReader]]:
    """A scorer from a file with a judge and a second judge at these addresses; some units have been scored."""
    second = f"{{model: 'openai:new', base_url: '{new}', api_key_env: JUDGE_KEY}}"
    critic = f"name: kind, definition: 'Is it kind?', shadow: {second}"
    asked = f"model: 'openai:old', base_url: '{old}', api_key_env: JUDGE_KEY, queue_timeout: 3, max_attempts: 1"
    (folder / "spanscore.yaml").write_text(f"metrics: [{{aspect_critic: {{{critic}}}}}]\njudge: {{{asked}}}\n")
    trace, reader = a_trace(), InMemoryMetricReader()
    providers = {"tracer_provider": trace.provider, "meter_provider": MeterProvider([reader])}
    with OnlineScorer.from_config(folder / "spanscore.yaml", **providers) as scorer:
        for _ in range(REQUESTS):
            rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert scorer.flush(60)
        yield scorer, trace, reader


@pytest.fixture(autouse=True)
def _with_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "none")


def values(trace: Trace) -> dict[str, list[float | None]]:
    """The model that judged → its values, as the evaluation spans have them."""
    found: dict[str, list[float | None]] = {}
    for span in trace.evaluations:
        model = span.attributes["spanscore.evaluator.version"].split("/")[1]
        found.setdefault(model, []).append(span.attributes.get("gen_ai.evaluation.score.value"))
    return found


def test_both_judges_scores_are_in_each_trace_and_the_units_span_has_the_old_ones(tmp_path: Path) -> None:
    with OpenAIServer(saying(1)) as old, OpenAIServer(saying(0)) as new, scored(tmp_path, old.url, new.url) as found:
        scorer, trace, reader = found

        assert values(trace) == {"old": [1.0] * REQUESTS, "new": [0.0] * REQUESTS}
        assert len({span.context.span_id for span in trace.evaluations}) == 2 * REQUESTS
        assert [root.attributes["spanscore.score.kind"] for root in trace.roots] == [1.0] * REQUESTS
        assert {root.attributes["spanscore.verdict"] for root in trace.roots} == {"pass"}
        assert sums(reader, "spanscore.weight.quality") == {None: float(REQUESTS), "shadow": 0.0}
        assert "kind shadow (new): mean 0.00 against 1.00 on the same 4 units" in " ".join(str(scorer.status()).split())


def test_a_second_judge_that_is_away_leaves_the_first_ones_scores_as_they_are(tmp_path: Path) -> None:
    with OpenAIServer(saying(1)) as old, scored(tmp_path, old.url, NOWHERE) as found:
        scorer, trace, reader = found

        assert values(trace) == {"old": [1.0] * REQUESTS, "new": [None] * REQUESTS}
        assert {root.attributes["spanscore.status"] for root in trace.roots} == {"scored"}
        assert scorer.status().outcomes["kind"] == {"scored": REQUESTS}
        assert sums(reader, "spanscore.scored") == {None: REQUESTS, "shadow": 0}


def test_a_judge_that_is_away_leaves_its_shadows_scores_as_they_are(tmp_path: Path) -> None:
    with OpenAIServer(saying(0)) as new, scored(tmp_path, NOWHERE, new.url) as found:
        scorer, trace, _ = found

        assert values(trace) == {"old": [None] * REQUESTS, "new": [0.0] * REQUESTS}
        assert {root.attributes["spanscore.status"] for root in trace.roots} == {"not_scored"}
        assert "scored" not in scorer.status().outcomes["kind"]
        assert scorer.status().shadows[0].outcomes == {"scored": REQUESTS}


def sums(reader: InMemoryMetricReader, name: str) -> dict[str | None, float]:
    """Source → the sums of an instrument."""
    data = reader.get_metrics_data()
    assert data is not None
    metrics = [one for of in data.resource_metrics for scope in of.scope_metrics for one in scope.metrics]
    found: dict[str | None, float] = {}
    for point in next(one for one in metrics if one.name == name).data.data_points:
        source = point.attributes.get("spanscore.evaluation.source")
        found[source] = found.get(source, 0) + point.value
    return found
