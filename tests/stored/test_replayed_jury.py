"""A replay asks the juries and the bundles of its configuration, as the live scorer does."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.servers.openai_api import OpenAIServer
from tests.stored.live_runs import LiveRuns, replayed

UNITS = 1
METRICS = """\
sampling: {rate: 1}
metrics:
  - aspect_critic: {name: polite, definition: It is polite., bundle: true}
  - aspect_critic: {name: kind, definition: It is kind., bundle: true}
  - aspect_critic: {name: fair, definition: It is fair., judges: ['openai:small', 'openai:other']}
"""
PASSED = {"reason": "", "verdict": 1}


def passing(request: dict[str, Any]) -> str:
    return json.dumps({"polite": PASSED, "kind": PASSED} if request["model"] == "judge" else PASSED)


def test_a_replay_asks_every_juror_and_one_question_for_a_bundle(
    few: LiveRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLAY_KEY", "none")
    spans, config = tmp_path / "spans.jsonl", tmp_path / "spanscore.yaml"
    spans.write_text("".join(few.lines(scores=False)))
    with OpenAIServer(passing) as server:
        judge = f"judge: {{model: 'openai:judge', base_url: '{server.url}', api_key_env: REPLAY_KEY}}\n"
        config.write_text(METRICS + judge)
        replay = replayed(config, str(spans), "--limit", str(UNITS), "--out", str(tmp_path / "out"))

    assert replay["outcomes"] == {name: {"scored": UNITS} for name in ("polite", "kind", "fair")}
    assert Counter(request["model"] for request in server.requests) == dict.fromkeys(("judge", "small", "other"), UNITS)
