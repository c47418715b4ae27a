"""A prompt does not change unnoticed: the hash of each rendered prompt is in prompt_hashes.json.

After an intended change, ``python -m tests.metrics.test_prompts`` writes the file anew. The metric's version changes by itself;
the changelog describes the effects on dashboards.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path

from tests.contracts.test_metrics import built

from spanscore.judges import render
from spanscore.metrics.catalog.registry import built_ins

HELD = Path(__file__).with_name("prompt_hashes.json")


def hashes() -> dict[str, dict[str, str]]:
    """Return metric → step → hash of the text sent to a model, with the metric's version."""
    found = {}
    for name in sorted(built_ins()):
        metric = built(name)
        steps = {step.name: _hash("\n".join(render(step.prompt({"evidence": "x"})))) for step in metric.steps.values()}
        found[name] = {"version": metric.version, **steps}
    return found


def _hash(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


def test_no_prompt_changed_unnoticed() -> None:
    assert hashes() == json.loads(HELD.read_text("utf-8"))


def test_a_changed_prompt_is_a_changed_version() -> None:
    plain = built("faithfulness")
    changed = built("faithfulness", prompts={"verify_statements": {"instruction": "Verify."}})

    assert plain.version != changed.version
    assert plain.evaluator_version != changed.evaluator_version


def test_changed_examples_are_a_changed_version() -> None:
    without = built("faithfulness", prompts={"extract_statements": {"examples": []}})

    assert without.version != built("faithfulness").version


if __name__ == "__main__":
    HELD.write_text(json.dumps(hashes(), indent=2) + "\n", "utf-8")
