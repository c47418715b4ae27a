"""No function has more ways through it than a reader can hold in mind."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
MOST = 12
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
# One way more each. ruff's C901 counts neither operators nor expressions, and passed functions of 25.
BRANCHES = (
    ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case, ast.Assert, ast.comprehension,
)  # fmt: skip


@pytest.mark.parametrize("module", sorted(SRC.rglob("*.py")), ids=lambda file: str(file.relative_to(SRC)))
def test_no_function_has_more_than_twelve_ways_through_it(module: Path) -> None:
    over = [f"{name} has {ways} ways" for name, ways in _functions(ast.parse(module.read_text())) if ways > MOST]

    assert not over, f"{over}: at most {MOST}; give a part of it a name"


def test_operators_and_expressions_count() -> None:
    code = "def f(a, b):\n    return [x for x in a if x and b] if a or b else b"

    assert dict(_functions(ast.parse(code))) == {"f": 6}


def _functions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    return ((node.name, 1 + sum(map(_ways, ast.walk(node)))) for node in ast.walk(tree) if isinstance(node, FUNCTION))


def _ways(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    return isinstance(node, BRANCHES) + (len(node.ifs) if isinstance(node, ast.comprehension) else 0)
