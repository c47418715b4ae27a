"""The reference agrees with the code. The schema accepts each valid configuration, and rejects faults that it can express."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
import yaml
from docs.reference.build import written
from docs.reference.telemetry import ATTRIBUTES
from jsonschema import Draft202012Validator
from tests.config.test_from_config import WRONG
from tests.docs.page import PAGES, blocks
from tests.live import Grounded, a_line, run_rag
from tests.outputs.builders import failed, undefined
from tests.outputs.builders import score as make_score
from tests.outputs.builders import unit as a_scored_unit
from tests.outputs.memory import Memory
from typer.testing import CliRunner

from spanscore import errors, semconv
from spanscore import semconv as attributes
from spanscore import semconv as instruments
from spanscore.cli._schema import example_file, keys_in, schema, sections
from spanscore.cli.main import app, command_names
from spanscore.config import Capture
from spanscore.config.durable import ValueInFile
from spanscore.config.messages import file_fields
from spanscore.config.reading import read_settings
from spanscore.config.tree import Configuration
from spanscore.core.score import Outcome
from spanscore.core.span import InnerGroup
from spanscore.metrics.catalog.registry import built_ins
from spanscore.outputs.score_events import EvaluationEvents
from spanscore.outputs.score_spans import EvaluationSpans

ROOT = Path(__file__).parents[2]
WRITTEN = written()
SCHEMA = schema()
KEYS = keys_in(SCHEMA)
VALIDATOR = Draft202012Validator(SCHEMA)
EXAMPLE = example_file()


def _ours(page: str) -> Iterator[str]:
    """Yield the configurations that a page shows."""
    for language, text in blocks(page):
        given = [*yaml.safe_load_all(text)] if language == "yaml" else []
        if len(given) == 1 and isinstance(given[0], dict) and given[0].keys() <= Configuration.model_fields.keys():
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


def test_every_key_of_the_tree_is_reported_and_says_what_it_does() -> None:
    leaves = {name for section, _ in sections() if section is not ValueInFile for name in file_fields(section)}
    sections_alone = {path.rpartition(".")[2] for _, path in sections()} - {key.path.rpartition(".")[2] for key in KEYS}

    assert {key.path.rpartition(".")[2] for key in KEYS} == leaves - sections_alone
    assert [key.path for key in KEYS if not key.meaning] == []


# --- telemetry ---

READ_ONLY = re.compile(r"^# --- read only: .*?(?=^# --- (?!read only))", re.MULTILINE | re.DOTALL)
CONSTANT = re.compile(r'^\w+: Final = "([a-z_][\w.]*\.[\w.]*)"', re.MULTILINE)
WRITTEN_NAMES = {
    name for part in (attributes, instruments) for name in CONSTANT.findall(READ_ONLY.sub("", inspect.getsource(part)))
}
ON_SPANS = {getattr(semconv, constant): kind for constant, (kind, _, _) in ATTRIBUTES.items()}
WIRE_TYPES = {str: "string", bool: "bool", int: "int", float: "double", tuple: "[]"}


def test_every_name_that_is_written_is_reported() -> None:
    matches = re.findall(r"`([\w.]+)…?`", WRITTEN["docs/reference/telemetry.md"])

    assert {*matches} >= WRITTEN_NAMES


def test_what_is_on_spans_is_reported_with_its_type() -> None:
    with a_line(Grounded(), capture=Capture(content=True, all_runs=True)) as (scorer, trace):
        run_rag(scorer)

    held = {(name, value) for span in trace.spans for name, value in span.attributes.items()}
    assert [f"{name}: {value!r}" for name, value in held if WIRE_TYPES[type(value)] not in _type_of(name)] == []


@pytest.mark.parametrize(("place", "sink"), [("evaluation span", EvaluationSpans), ("event", EvaluationEvents)])
def test_the_place_of_each_attribute_of_a_score_is_reported(place: str, sink: Any) -> None:
    memory, agent = Memory(), {semconv.AGENT_NAME: "a", semconv.CONVERSATION_ID: "c", semconv.PROMPT_VERSION: "2"}
    agent[semconv.REQUEST_MODEL] = "m"
    judged = make_score(judge_model="j", source="fallback", applies=True, explanation="why")
    for one in (judged, failed(), undefined()):
        sink(memory.providers, content=True).emit(
            replace(a_scored_unit(**agent), inner=InnerGroup("tool", "search")), [one]
        )

    written = {name for held in (*memory.spans, *memory.events) for name in held.attributes}
    places = {getattr(semconv, constant): where for constant, (_, where, _) in ATTRIBUTES.items()}
    assert [
        name for name in sorted(written & places.keys()) if not {place, "every span"} & {*places[name].split(", ")}
    ] == []
    if place == "event":
        unwritten = {name for name, where in places.items() if place in where.split(", ")} - written
        assert unwritten == {
            semconv.ANNOTATOR,
            semconv.FEEDBACK_KEY,
            semconv.RESPONSE_ID,
        }  # of people; of a model's span


def _type_of(name: str) -> str:
    """Return the documented type of a name, or of its prefix; empty if there is no type."""
    beginnings = (kind for prefix, kind in ON_SPANS.items() if prefix[-1] == "." and name.startswith(prefix))
    return ON_SPANS.get(name) or next(beginnings, "")


# --- commands, outcomes, errors, metrics ---


def test_every_command_and_option_is_reported() -> None:
    page = WRITTEN["docs/reference/cli.md"]
    shown = CliRunner().invoke(app(), ["--help"]).output
    commands = [*typer.main.get_command(app()).commands]  # type: ignore[attr-defined]

    assert [name for name in commands if f"## spanscore {name}" not in page or name not in shown] == []
    for name in commands:
        output = CliRunner().invoke(app(name), [name, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
        assert {*re.findall(r"--[a-z][a-z-]+", output)} - {"--help"} <= {*re.findall(r"--[a-z][a-z-]+", page)}, name


def test_a_default_of_zero_and_a_required_option_are_reported() -> None:
    page = WRITTEN["docs/reference/cli.md"]

    assert [
        row for row in ("| `--tolerance X` | `0", "| `--timeout SECONDS` | `0", "| `--seed N` | `0") if row not in page
    ] == []
    assert "| `--language TEXT`, `-l TEXT` | required |" in page


@pytest.mark.parametrize("name", command_names())
def test_every_exit_code_that_a_command_has_is_reported(name: str) -> None:
    part = WRITTEN["docs/reference/cli.md"].partition(f"## spanscore {name}\n")[2]
    reported = {*map(int, re.findall(r"(?:^|· )(\d+)", part.partition("Exit codes: ")[2].partition("\n")[0]))}

    assert reported == {0, 2, *_exit_codes(name)}


def _exit_codes(command: str) -> set[int]:
    """Return the exit codes in a command's module, and in the run that it imports."""
    own = import_module(f"spanscore.cli.{command}")
    runs = re.findall(r"from (spanscore\.cli\._\w+_run) import", inspect.getsource(own))
    return {code for module in (own, *map(import_module, runs)) for code in _exit_codes_in(module)}


def _exit_codes_in(module: ModuleType) -> Iterator[int]:
    """Yield the numbers in ``Exit(…)``, and the named numbers in ``return`` and ``exit_code = …``."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        is_exit = isinstance(node, ast.Call) and ast.unparse(node.func) == "typer.Exit"
        is_code = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "exit_code"
        if is_exit or is_code or isinstance(node, ast.Return):
            names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            literals = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and is_exit]
            yield from (code for code in [*literals, *(vars(module).get(name) for name in names)] if type(code) is int)


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("outcomes", [f"| `{outcome}` |" for outcome in Outcome]),
        ("errors", [f"## {name}" for name in errors.__all__ if name != "writing"]),
        ("metrics", [f"## {name}" for name in built_ins()]),
    ],
)
def test_every_one_is_reported(page: str, names: list[str]) -> None:
    assert [name for name in names if name not in WRITTEN[f"docs/reference/{page}.md"]] == []


def test_every_outcome_and_every_parameter_of_a_metric_says_what_it_is() -> None:
    assert "| |" not in WRITTEN["docs/reference/outcomes.md"].partition("| --- |")[0]
    assert re.findall(r"^\| `(\w+)` \| `[^|]*` \|  \|$", WRITTEN["docs/reference/metrics.md"], re.MULTILINE) == []


# --- compatibility ---


def test_the_versions_that_are_said_to_be_tested_are_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    page = (ROOT / "docs/reference/compatibility.md").read_text("utf-8")
    (lowest,) = [line for line in page.splitlines() if line.startswith("|") and "1.38" in line]
    named = [*project["dependencies"], *project["optional-dependencies"]["demo"]]
    floors = [
        one.partition(">=")[2]
        for name in ("langchain-core", "opentelemetry-sdk", "langgraph")
        for one in named
        if one.startswith(f"{name}>=")
    ]

    assert [cell.strip() for cell in lowest.split("|")[2:5]] == floors
    assert {*re.findall(r"3\.\d+", page)} >= {kind[-4:] for kind in project["classifiers"] if "Python :: 3." in kind}
    assert project["version"].rpartition(".")[0] in (ROOT / "SECURITY.md").read_text("utf-8")


# --- the example ---


def test_the_example_does_what_its_metrics_alone_would_do(tmp_path: Path) -> None:
    alone = tmp_path / "alone.yaml"
    alone.write_text("metrics: [faithfulness, string_presence]")

    assert _read(tmp_path, EXAMPLE) == read_settings(alone).settings.model_dump()


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
    "limits: {queue_bytes: 64MB}": "sizes as texts",
    "sampling: {rate: '${RATE}'}": "what the environment holds",
    "serve_metrics: 9464": "a port alone",
    "judge: {fallback: ['openai:gpt-4o-mini', {model: 'openai:gpt-5-mini', timeout: 1m}]}": "names and sections",
    "metrics: ['my_pkg.metrics:Politeness', {'my_pkg.metrics:Politeness': {strict: true}}]": "metrics of one's own",
    "metrics: [{agent_goal_accuracy: {per: session}}, {faithfulness: {per: unit}}]": "metrics of whole conversations",
    "metrics: [{context_recall: {shadow: 'openai:gpt-5-mini'}}, {faithfulness: }]": "aliases, second judges, no parameters",
    "metrics: [{agent_goal_accuracy: {per: session, shadow: null}}, {faithfulness: {shadow: null}}]": "no second judge",
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
    "spanscore.evaluator.version",
    "tier: []",
)
"""Faults that depend on other keys of the file, or on other files."""


@pytest.mark.parametrize("text", [text for text in WRONG if _is_yaml(text)])
def test_the_schema_refuses_what_it_can_know(text: str) -> None:
    assert VALIDATOR.is_valid(yaml.safe_load(text)) == any(word in text for word in NOT_A_SCHEMAS)


def _read(folder: Path, text: str) -> dict[str, Any]:
    file = folder / "spanscore.yaml"
    file.write_text(text, "utf-8")
    return read_settings(file).settings.model_dump()


def _with_its_examples(text: str) -> str:
    """Return the text after a reader has uncommented every example."""
    without = re.sub(r"^([^#\n].*:) (\[\]|\{\}|null)\n(?=#  )", r"\1\n", text, flags=re.MULTILINE)
    return re.sub(r"^#(?=  )", "", without, flags=re.MULTILINE)


def test_every_error_type_that_a_metric_ends_with_stands_in_the_table_of_outcomes() -> None:
    modules = ("metrics/kit/base.py", "pipeline/evaluation.py")
    types = {
        name
        for module in modules
        for name in re.findall(
            r'(?:METRIC_ERROR,.*error_type=|_UnusableValueError\()"([a-z_]+)"',
            (ROOT / "src/spanscore" / module).read_text("utf-8"),
        )
    }

    (row,) = re.findall(r"^\| `metric_error` \|.*$", WRITTEN["docs/reference/outcomes.md"], re.MULTILINE)
    assert types >= {"no_number", "out_of_range", "no_score", "unknown_metric"}
    assert [name for name in sorted(types) if f"`{name}`" not in row] == []
