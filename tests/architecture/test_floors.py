"""Imports follow the floors: a part imports only from floors below its own, no imports form a circle, and optional libraries
are imported in one file.

The floors come from the map in ``docs/architecture.md``, the only one. Imports are read from the source, at any place in it. An
import under ``if TYPE_CHECKING:`` never runs, so it does not count in a circle between modules of one part, but it must follow
the floors.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from spanscore import protocols

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
MAP = (ROOT / "docs" / "architecture.md").read_text()
PARTS_PER_FLOOR = re.findall(r"^```floors\n(.*?)^```", MAP, flags=re.MULTILINE | re.DOTALL)[0].splitlines()
FLOORS = [line.partition("·")[0].split() for line in reversed(PARTS_PER_FLOOR)]
FLOOR = {part: floor for floor, parts in enumerate(FLOORS) for part in parts}
TESTING_AND_ABOVE = FLOOR["testing"]  # these may use the public names, ``from spanscore import …``

# Hard dependencies of a core dependency, which therefore are always there.
BROUGHT_ALONG = {
    "google": "protobuf of the OTLP exporters",
    "grpc": "the OTLP exporter",
    "langsmith": "langchain-core",
    "requests": "the OTLP exporters, which send through it",
    "urllib3": "requests",
}

MODULES = {
    ".".join(file.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): file
    for file in sorted(SRC.rglob("*.py"))
}
INSIDE = [name for name in MODULES if name != "spanscore"]


def test_the_map_names_every_part_once_and_no_other() -> None:
    assert sorted(part for parts in FLOORS for part in parts) == sorted({_part(name) for name in INSIDE})


@pytest.mark.parametrize("module", INSIDE)
def test_module_imports_only_from_floors_below_its_own(module: str) -> None:
    wrong = [name for name in _ours(module) if not _may(module, name)]

    assert not wrong, f"{module} (floor {FLOOR[_part(module)]}) may not import {wrong}"


def test_no_imports_run_in_a_circle() -> None:
    graph = {module: _run_by(module) - {module} for module in INSIDE}

    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_an_import_for_types_alone_does_not_run() -> None:
    code = "import a\nif TYPE_CHECKING:\n    import b\nelse:\n    import c\nif typing.TYPE_CHECKING:\n    import d"

    assert _imports_in(_without_typing(ast.parse(code)), "m") == ["a", "c"]
    assert _imports_in(ast.parse(code), "m") == ["a", "b", "c", "d"]


@pytest.mark.parametrize("module", INSIDE)
def test_optional_library_is_imported_only_in_the_file_that_carries_its_name(module: str) -> None:
    optional = {name.split(".")[0] for name in _imports(module)} - _always_there()

    assert all(name.replace("_", "") in MODULES[module].stem.replace("_", "") for name in optional), optional


def test_every_seam_is_used() -> None:
    used = {name for module in INSIDE for name in _imports(module)}

    assert [name for name in protocols.__all__ if f"spanscore.protocols.{name}" not in used] == []


def _may(module: str, name: str) -> bool:
    if name == "spanscore":
        return FLOOR[_part(module)] >= TESTING_AND_ABOVE
    return _part(name) == _part(module) or FLOOR[_part(name)] < FLOOR[_part(module)]


def _part(module: str) -> str:
    return module.split(".")[1]


def _ours(module: str) -> list[str]:
    """Return the modules of spanscore that a module imports; a name in a package counts as its ``__init__``."""
    return [_module(name) for name in _imports(module) if name.split(".")[0] == "spanscore"]


def _module(name: str) -> str:
    return name if name in MODULES else name.rpartition(".")[0]


def _run_by(module: str) -> set[str]:
    """Return the modules that count in a circle: not those of the same part that are imported for types alone."""
    tree = ast.parse(MODULES[module].read_text())
    running = {_module(name) for name in _imports_in(_without_typing(tree), module)}
    return {name for name in _ours(module) if name in running or _part(name) != _part(module)}


@cache  # a module is read by three tests
def _imports(module: str) -> list[str]:
    """Return dotted names: of ``import a.b`` that, of ``from a import b`` the name ``a.b``."""
    return _imports_in(ast.parse(MODULES[module].read_text()), module)


def _imports_in(tree: ast.AST, module: str) -> list[str]:
    return [name for node in ast.walk(tree) for name in _names(node, module)]


def _without_typing(tree: ast.AST) -> ast.AST:
    """Return the tree without the bodies of ``if TYPE_CHECKING:``; an ``else`` of one stays."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            node.body = []
    return tree


def _names(node: ast.AST, module: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{module}: relative import; write the whole name"
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


@cache  # the distributions of an environment are a tenth of a second to list, and a module is a test
def _always_there() -> set[str]:
    """Return the top-level names of the standard library, spanscore and its core dependencies."""
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    core = {_normal(requirement.split(">")[0]) for requirement in requirements}
    namespaces = {"opentelemetry"}  # many distributions share it; only the SDK's and the exporter's are depended on
    named = {name for name, found in packages_distributions().items() if {_normal(one) for one in found} & core}
    return {"spanscore"} | set(sys.stdlib_module_names) | named | namespaces | BROUGHT_ALONG.keys()


def _normal(distribution: str) -> str:
    return distribution.strip().lower().replace("_", "-")
