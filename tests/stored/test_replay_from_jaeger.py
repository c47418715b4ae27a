"""A real Jaeger keeps the data that a replay needs: exactly by its OTLP API, and with listed exceptions by its page's API."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.servers.jaeger import Jaeger
from tests.stored.live_runs import SERVICE, UNITS, LiveRuns, replayed, scored_in
from typer.testing import CliRunner

from spanscore.cli.main import app
from spanscore.core.span import UnitKey
from spanscore.samples.genai import GenAIExtractor
from spanscore.stored.replay import Journal, replay_scorer
from spanscore.stored.trace_stores import JaegerStore, StoreClient
from spanscore.stored.traces import StoredTrace
from spanscore.stored.unit_reading import StoredUnit, UnitReader

pytestmark = pytest.mark.server

A_DAY_S = 86_400.0
MOST_LOST_NS = 2_000
"""Start and duration are whole microseconds there."""


@pytest.fixture(scope="module")
def filled(jaeger: Jaeger, live: LiveRuns) -> Jaeger:
    """A Jaeger that has the runs, and none of their scores."""
    for line in live.lines(scores=False):
        headers = {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(jaeger.traces_endpoint, line.encode(), headers)).close()
    jaeger.search(SERVICE, {}, lambda traces: len(traces) == UNITS)
    return jaeger


def units_by(api: Jaeger, config: Path, *, otlp: bool) -> Mapping[UnitKey, StoredUnit]:
    """Return the units that an API gives."""
    made = replay_scorer(config, emits=False)
    now_s = time.time()
    store = JaegerStore(StoreClient(api.url), {"service": SERVICE}, now_s - A_DAY_S, now_s + 60, otlp=otlp)
    reader = UnitReader(made.settings)
    traces = [one for one in store.traces() if isinstance(one, StoredTrace)]
    made.scorer.shutdown(0)
    return {unit.unit.key: unit for trace in traces for unit in reader.units(trace)}


def test_by_its_otlp_api_all_is_as_it_was_live(filled: Jaeger, config: Path, live: LiveRuns, tmp_path: Path) -> None:
    out = tmp_path / "out"

    replay = replayed(config, f"jaeger:{filled.url}?service={SERVICE}", "--out", str(out))

    assert (replay["units"], replay["unread"], replay["lost"]) == (UNITS, 0, [])
    assert scored_in(Journal.spans(out / "scores.jsonl")) == live.scored


def test_cases_are_collected_from_it_as_from_a_file(filled: Jaeger, live: LiveRuns, tmp_path: Path) -> None:
    (tmp_path / "spans.jsonl").write_text("".join(f"{line.rstrip()}\n" for line in live.lines(scores=False)))
    found = []
    for source in (f"jaeger:{filled.url}?service={SERVICE}", str(tmp_path / "spans.jsonl")):
        out = tmp_path / "cases.jsonl"
        done = CliRunner().invoke(app("collect"), ["collect", source, "--out", str(out)])
        assert done.exit_code == 0, done.output
        (case,) = map(json.loads, out.read_text().splitlines())
        found.append({name: case[name] for name in ("user_input", "response", "retrieved_contexts", "times")})

    assert found[0] == found[1]  # which of the units with one question it is, the order of a store decides


def test_by_the_api_of_its_page_units_are_the_same_but_for_nanoseconds(filled: Jaeger, config: Path) -> None:
    by_otlp, by_page = (units_by(filled, config, otlp=otlp) for otlp in (True, False))

    assert by_otlp.keys() == by_page.keys()
    assert [plain_unit(by_page[key]) for key in by_otlp] == [plain_unit(by_otlp[key]) for key in by_otlp]
    assert max(abs(lasted_ns(by_page[key]) - lasted_ns(by_otlp[key])) for key in by_otlp) <= MOST_LOST_NS


def plain_unit(stored: StoredUnit) -> Any:
    """Return the facts and samples read from a unit, without its duration."""
    facts = stored.unit.facts()._replace(duration_ns=None)
    return facts, GenAIExtractor().extract(stored.unit), stored.dialect, len(stored.unit.spans)


def lasted_ns(stored: StoredUnit) -> int:
    return stored.unit.facts().duration_ns or 0


def test_what_was_emitted_is_not_scored_by_a_second_replay(
    filled: Jaeger, config: Path, live: LiveRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", filled.traces_endpoint)
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    source = f"jaeger:{filled.url}?service={SERVICE}"

    first = replayed(config, source, "--export")
    second = replayed(config, source, "--export")

    assert (sum(first["taken"].values()), sum(second["taken"].values())) == (len(live.scored), 0)
    assert sum(second["skipped"].values()) == second["decisions"]["recorded"] == len(live.scored)
    evaluated = filled.search(SERVICE, {"gen_ai.operation.name": "evaluation"}, bool)
    spans = [span for trace in evaluated for span in trace["spans"] if span["operationName"].startswith("evaluation")]
    assert {int(span["spanID"], 16) for span in spans} == {scored["span_id"] for scored in live.scored.values()}
    assert len(spans) == len(live.scored)
