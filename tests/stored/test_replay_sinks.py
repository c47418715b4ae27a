"""The sinks of a replay: those of the configuration, without webhooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from spanscore.scorer import pipeline_of
from spanscore.stored.replay import replay_scorer


@pytest.mark.parametrize(("emits", "names"), [(True, ["PhoenixSink"]), (False, [])])
def test_a_replay_sends_no_messages_about_past_units(tmp_path: Path, emits: bool, names: list[str]) -> None:
    webhook = "{webhook: {url: 'http://127.0.0.1:9/in', when: [exact_match<1]}}"
    config = tmp_path / "spanscore.yaml"
    config.write_text(f"metrics: [exact_match]\noutputs: {{sinks: [phoenix, {webhook}]}}\n")

    replay = replay_scorer(config, emits=emits)
    sinks = pipeline_of(replay.scorer).users_sinks
    replay.scorer.shutdown()

    assert [type(sink).__name__ for sink in sinks] == names
