"""No function has more ways through it than a reader can hold in mind, and no module more lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
MOST = 12
MOST_LINES = 800
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
# One way more each. ruff's C901 counts neither operators nor expressions, and passed functions of 25.
BRANCHES = (
    ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case, ast.Assert, ast.comprehension,
)  # fmt: skip


@pytest.mark.parametrize("module", sorted(SRC.rglob("*.py")), ids=lambda file: str(file.relative_to(SRC)))
def test_no_function_has_more_than_twelve_ways_through_it(module: Path) -> None:
    over = [f"{name} has {ways} ways" for name, ways in _functions(ast.parse(module.read_text())) if ways > MOST]

    assert not over, f"{over}: at most {MOST}; give a part of it a name"


def test_no_module_has_more_than_800_lines() -> None:
    lines = {str(file.relative_to(SRC)): len(file.read_text().splitlines()) for file in SRC.rglob("*.py")}

    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def test_no_class_name_stands_for_two_things() -> None:
    names = [
        node.name.lstrip("_")
        for file in SRC.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    ]

    assert sorted(name for name in set(names) if names.count(name) > 1) == []


def test_operators_and_expressions_count() -> None:
    code = "def f(a, b):\n    return [x for x in a if x and b] if a or b else b"

    assert dict(_functions(ast.parse(code))) == {"f": 6}


def _functions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    return ((node.name, 1 + sum(map(_ways, ast.walk(node)))) for node in ast.walk(tree) if isinstance(node, FUNCTION))


def _ways(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    return isinstance(node, BRANCHES) + (len(node.ifs) if isinstance(node, ast.comprehension) else 0)
