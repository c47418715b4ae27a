"""A configuration with a key of 0.2 gets a message with the present name, in a file and in Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.test_reference import KEYS

from spanscore import ConfigurationError, OnlineScorer
from spanscore.config.messages import NEW_KEYS, NEW_OPTIONS, renamed_key
from spanscore.config.tree import Configuration


def _as_argument(key: str) -> str:
    section, _, field = key.partition(".")
    return f"{section}={Configuration.model_fields[section].annotation.__name__}({field}=" if field else key  # type: ignore[union-attr]


def nested(path: str, value: Any) -> dict[str, Any]:
    for part in reversed(path.split(".")):
        value = {part: value}
    return dict(value)


def test_each_present_name_is_a_key() -> None:
    known = {key.path.replace("<metric>", "*") for key in KEYS} | {key.section for key in KEYS}

    assert [new for new in NEW_KEYS.values() if new not in known] == []
    assert NEW_KEYS.keys() & known == set()


@pytest.mark.parametrize("old", NEW_KEYS)
def test_an_old_key_is_answered_with_the_new_one(old: str, tmp_path: Path) -> None:
    written = old.replace("*", "exact_match")
    settings = {"metrics": ["exact_match"], **nested(written, 1)}
    (file := tmp_path / "spanscore.yaml").write_text(yaml.safe_dump(settings))
    section = old.partition(".")[0]  # an old section is named before its keys
    result, new = (section, NEW_KEYS[section]) if section in NEW_KEYS else (written, NEW_KEYS[old])

    with pytest.raises(ConfigurationError, match=re.escape(f"{result}: is now {new.replace('*', 'exact_match')}")):
        OnlineScorer.from_config(file)


@pytest.mark.parametrize("old", NEW_OPTIONS)
def test_an_old_option_beside_a_file_is_answered_with_the_new_one(old: str, tmp_path: Path) -> None:
    (file := tmp_path / "spanscore.yaml").write_text("metrics: [exact_match]\n")

    with pytest.raises(ConfigurationError, match=re.escape(f"{old} is now {_as_argument(NEW_OPTIONS[old])}")):
        OnlineScorer.from_config(file, **{old: 1})


def test_what_was_never_a_key_has_no_new_name() -> None:
    assert renamed_key(("limits", "spam")) is None
