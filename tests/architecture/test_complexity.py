"""No function has more ways through it than a reader can follow; class names are unique in a folder; long modules are named."""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
MOST = 12
MANY_LINES = 800
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
# One way more each. ruff's C901 counts neither operators nor expressions, and passed functions of 25.
BRANCHES = (
    ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case, ast.Assert, ast.comprehension,
)  # fmt: skip


@pytest.mark.parametrize("module", sorted(SRC.rglob("*.py")), ids=lambda file: str(file.relative_to(SRC)))
def test_no_function_has_more_than_twelve_ways_through_it(module: Path) -> None:
    over = [f"{name} has {ways} ways" for name, ways in _functions(ast.parse(module.read_text())) if ways > MOST]

    assert not over, f"{over}: at most {MOST}; give a part of it a name"


def test_a_module_of_more_than_800_lines_is_named_in_a_warning() -> None:
    _warn_of_long({str(file.relative_to(SRC)): len(file.read_text().splitlines()) for file in SRC.rglob("*.py")})

    with pytest.warns(UserWarning, match=r"long\.py has 801 lines"):
        _warn_of_long({"short.py": 800, "long.py": 801})


def test_no_class_name_stands_twice_in_a_folder() -> None:
    classes = Counter(
        (str(file.parent.relative_to(SRC)), node.name.lstrip("_"))
        for file in SRC.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    )

    assert sorted(place for place, times in classes.items() if times > 1) == []


def test_operators_and_expressions_count() -> None:
    code = "def f(a, b):\n    return [x for x in a if x and b] if a or b else b"

    assert dict(_functions(ast.parse(code))) == {"f": 6}


def _warn_of_long(lines: Mapping[str, int]) -> None:
    """Warn of every module of more than 800 lines: it may have two ideas, but one idea is not cut to meet a number."""
    for name, count in lines.items():
        if count > MANY_LINES:
            warnings.warn(f"{name} has {count} lines; does it hold more than one idea?", stacklevel=2)


def _functions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    return ((node.name, 1 + sum(map(_ways, ast.walk(node)))) for node in ast.walk(tree) if isinstance(node, FUNCTION))


def _ways(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    return isinstance(node, BRANCHES) + (len(node.ifs) if isinstance(node, ast.comprehension) else 0)
