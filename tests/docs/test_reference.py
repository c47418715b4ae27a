"""The reference is what the code says, all of it; the schema takes what the reader takes, and refuses what it can know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from docs.reference.build import written
from docs.reference.keys import keys_in
from docs.reference.schema import schema, sections
from jsonschema import Draft202012Validator
from tests.docs.page import PAGES, blocks
from tests.settings.test_from_config import WRONG

from spanscore.line.configuration import Configuration
from spanscore.settings.reading import read_settings
from spanscore.settings.tree import Settings

ROOT = Path(__file__).parents[2]
WRITTEN = written()
SCHEMA = schema()
KEYS = keys_in(SCHEMA)
VALIDATOR = Draft202012Validator(SCHEMA)
EXAMPLE = WRITTEN["src/spanscore/cli/example.yaml"]


def _ours(page: str) -> Iterator[str]:
    """Yield the configurations that a page shows."""
    for language, text in blocks(page):
        given = [*yaml.safe_load_all(text)] if language == "yaml" else []
        if len(given) == 1 and isinstance(given[0], dict) and given[0].keys() <= Settings.model_fields.keys():
            yield text


def _is_yaml(text: str) -> bool:
    try:
        return yaml.safe_load(text) is not None
    except yaml.YAMLError:
        return False


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_committed_is_what_the_code_says(name: str) -> None:
    assert (ROOT / name).read_text("utf-8") == WRITTEN[name], "run python -m docs.reference.build"


# --- keys ---


def test_every_key_of_the_tree_is_told_and_says_what_it_does() -> None:
    leaves = {name for section, _ in sections() for name, field in section.model_fields.items()}
    sections_alone = {path.rpartition(".")[2] for _, path in sections()} - {key.path.rpartition(".")[2] for key in KEYS}

    assert {key.path.rpartition(".")[2] for key in KEYS} == leaves - sections_alone
    assert [key.path for key in KEYS if not key.meaning] == []


# --- the example ---


def test_the_example_does_what_its_metrics_alone_would_do(tmp_path: Path) -> None:
    alone = tmp_path / "alone.yaml"
    alone.write_text("metrics: [faithfulness, non_llm_string_similarity]")

    assert _read(tmp_path, EXAMPLE) == read_settings(alone, Configuration).settings.model_dump()


def test_the_example_with_all_its_examples_is_a_configuration(tmp_path: Path) -> None:
    text = _with_its_examples(EXAMPLE)

    _read(tmp_path, text)
    VALIDATOR.validate(yaml.safe_load(text))


def test_every_key_stands_in_the_example() -> None:
    assert {key.path.rpartition(".")[2] for key in KEYS} <= {*re.findall(r"(\w+):", EXAMPLE)}


# --- the schema ---


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(("page", "text"), [(page, text) for page in PAGES for text in _ours(page)])
def test_the_schema_takes_what_the_documents_show(page: str, text: str) -> None:
    VALIDATOR.validate({"metrics": ["faithfulness"]} | yaml.safe_load(text))


FORMS = {
    "limits: {timeout: 5m}": "durations as texts",
    "limits: {inbox_bytes: 64MB}": "sizes as texts",
    "sampling: {rate: '${RATE}'}": "what the environment holds",
    "serve_metrics: 9464": "a port alone",
    "judge: {fallback: ['openai:gpt-4o-mini', {model: 'openai:gpt-5-mini', timeout: 1m}]}": "names and sections",
    "metrics: ['my_pkg.metrics:Politeness', {'my_pkg.metrics:Politeness': {strict: true}}]": "metrics of one's own",
    "metrics: [{context_recall: {shadow: 'openai:gpt-5-mini'}}, {faithfulness: }]": "aliases, second judges, no parameters",
}


@pytest.mark.parametrize("text", FORMS)
def test_the_schema_takes_every_form_that_the_reader_takes(text: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("RATE", "0.5")
    given = {"metrics": ["exact_match"]} | yaml.safe_load(text)

    _read(tmp_path, yaml.safe_dump(given))
    VALIDATOR.validate(given)


NOT_A_SCHEMAS = (
    "nonesuch:",
    "lexical, base_url",
    "api_key_file",
    "gateway:80",
    "NOWHERE",
    "nowhere/",
    "0B",
    "fallback: [{model: 'openai:m'",
    "[exact_match, exact_match]",
    "{faith: 0.1}",
    "baseline: 0.1",
    "spanscore.series",
    "tier: []",
)
"""What is wrong by what stands elsewhere, in the file or outside of it."""


@pytest.mark.parametrize("text", [text for text in WRONG if _is_yaml(text)])
def test_the_schema_refuses_what_it_can_know(text: str) -> None:
    assert VALIDATOR.is_valid(yaml.safe_load(text)) == any(word in text for word in NOT_A_SCHEMAS)


def _read(folder: Path, text: str) -> dict[str, Any]:
    file = folder / "spanscore.yaml"
    file.write_text(text, "utf-8")
    return read_settings(file, Configuration).settings.model_dump()


def _with_its_examples(text: str) -> str:
    """Return it as a reader edits it who wants every example."""
    without = re.sub(r"^([^#\n].*:) (\[\]|\{\}|null)\n(?=#  )", r"\1\n", text, flags=re.MULTILINE)
    return re.sub(r"^#(?=  )", "", without, flags=re.MULTILINE)
