"""Every key of ``serve``, and of ``units`` for received spans, is used in the service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.config.test_arrival import LEAVES, WIRE, unusual, values
from tests.live import a_trace

from spanscore import OnlineScorer
from spanscore.config.reading import read_settings
from spanscore.service.run import Listeners, handler_of

FORWARD = {"endpoint": "http://127.0.0.1:9"}
TOKEN = str(Path(__file__).parents[1] / "data" / "judge_key.txt")
UNUSUAL: dict[str, Any] = {
    "serve.grpc": "127.0.0.2:0",
    "serve.http": "127.0.0.2:0",
    "serve.mode": "tee",
    "serve.forward.endpoint": "http://127.0.0.1:7/unusual",
    "serve.forward.headers": ["unusual"],
    "serve.token_file": TOKEN,
    "serve.token_env": "UNUSUAL_TOKEN",
    "units.also": [{"kind": "retriever"}],
    "units.late": "rescore",
}
"""Values for keys that accept only certain numbers or texts."""
REMOTE_SCORING = {
    "serve.tls.cert": "test_tls.py",
    "serve.tls.key": "test_tls.py",
    "serve.insecure": "test_plan.py",
    "serve.drain": "test_serve.py",
}
"""Key → a place that shows its effect from outside."""
OF_SCORER = ".providers."
"""In places of the scorer's providers, which no key of ``serve`` sets and which make their resource when it is needed."""
SEEN = sorted({path for path in LEAVES if path.startswith("serve.")} - REMOTE_SCORING.keys() | WIRE)


def made_of(folder: Path, path: str | None) -> dict[str, Any]:
    """Return place → value of all attributes of the handler and the listeners of a configuration."""
    whole: dict[str, Any] = {
        "metrics": ["exact_match"],
        "serve": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0", "mode": "proxy", "forward": {**FORWARD}},
    }
    if path is not None:
        *above, leaf = path.split(".")
        section = whole
        for part in above:
            section = section.setdefault(part, {})
        section[leaf] = UNUSUAL.get(path) or unusual(path)
    (folder / "spanscore.yaml").write_text(yaml.safe_dump(whole))
    settings = read_settings(folder / "spanscore.yaml").settings
    with OnlineScorer.from_config(folder / "spanscore.yaml", tracer_provider=a_trace().provider) as scorer:
        handler, _ = handler_of(scorer, settings.serve, settings.units)
        listeners = Listeners(handler, settings.serve)
        try:
            return dict(values([handler, listeners], "service", {}))
        finally:
            listeners.close()


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], set[str]]:
    """The parts made from usual values, and the places that are equal each time."""
    one, other = (made_of(tmp_path_factory.mktemp("usual"), None) for _ in range(2))
    return one, {place for place in one | other if one.get(place) == other.get(place)}


@pytest.mark.parametrize("path", SEEN)
def test_a_key_arrives_in_the_service(
    path: str, tmp_path: Path, usual: tuple[dict[str, Any], set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNUSUAL_TOKEN", "unusual")
    assert changed_places(made_of(tmp_path, path), usual), f"nothing reads {path}"


def test_a_file_without_an_unusual_value_changes_nothing(
    tmp_path: Path, usual: tuple[dict[str, Any], set[str]]
) -> None:
    """Any difference here would hide a key that no part reads."""
    assert changed_places(made_of(tmp_path, None), usual) == set()


def changed_places(made: dict[str, Any], usual: tuple[dict[str, Any], set[str]]) -> set[str]:
    before, stable = usual
    places = {place for place in stable | (made.keys() - before.keys()) if OF_SCORER not in place}
    return {place for place in places if made.get(place) != before.get(place)}


def test_every_other_key_is_seen_from_outside() -> None:
    seen = {path: Path(__file__).with_name(file).read_text("utf-8") for path, file in REMOTE_SCORING.items()}

    assert [path for path, text in seen.items() if path not in LEAVES or path.rpartition(".")[2] not in text] == []
