"""Tests ask public parts: no test reads, patches or imports a private name of spanscore, and few read those of libraries.

A private name may change on any day, and a test that reads it holds the implementation and not the promise. ``OF_LIBRARIES``
has the private names of libraries that tests need, each with its reason; the list is exact, so it only gets shorter.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]

OF_LIBRARIES = {
    ("capture/callback/test_ends.py", "_log_destroy_pending"): "asyncio would report a task that a test leaves pending",
    ("capture/callback/test_spans.py", "_set_tracer_configurator"): "the SDK has no public way to switch a tracer off",
    ("capture/callback/test_spans.py", "_tracer_config"): "as above",
    ("docs/test_blocks.py", "_internal"): "OpenTelemetry sets a global provider once; each block needs its own",
    (
        "judges/langchain/test_copied_client.py",
        "_client",
    ): "the connections of the user's client are visible only inside",
    ("judges/langchain/test_copied_client.py", "_transport"): "as above",
    ("judges/langchain/test_copied_client.py", "_pool"): "as above",
    ("outputs/test_deferred_span.py", "_on_ending"): "the SDK's hook for ending spans, which newer versions have",
    ("outputs/test_deferred_span.py", "_tracer_metrics"): "tells whether this version of the SDK counts spans",
    ("servers/phoenix_launch.py", "_server"): "grpc has no option for the address that Phoenix binds",
    ("wiring/test_status.py", "_preferred_temporality"): "the exporter's choice by its environment variable",
}
"""File and private name of a library → why a test needs it."""
PUBLIC = frozenset({"_asdict", "_exit", "_fields", "_make", "_replace"})
"""Names of the standard library with an underscore that are public: of named tuples, and ``os._exit``."""
BY_NAME = frozenset({"delattr", "getattr", "hasattr", "setattr"})


def test_no_test_reads_a_private_name() -> None:
    found = {(path.relative_to(TESTS).as_posix(), name) for path in TESTS.rglob("*.py") for name in _read_in(path)}

    new, gone = sorted(found - OF_LIBRARIES.keys()), sorted(OF_LIBRARIES.keys() - found)
    assert not new, "ask a public part, or make the name public:\n" + "\n".join(map(": ".join, new))
    assert not gone, "take out of OF_LIBRARIES:\n" + "\n".join(map(": ".join, gone))


def test_private_names_are_found_in_each_form() -> None:
    code = """
from spanscore.core.log import _told, log_once
from spanscore.cli import _plan
class Mine(Theirs):
    def read(self): return self._own, super()._own, row._asdict(), thing.__class__, thing._read
monkeypatch.setattr(thing, "_patched", 1)
monkeypatch.setattr("spanscore.core.log._by_path", getattr(self, "_own"))
"""

    assert [*_private_names(ast.parse(code))] == ["_told", "_patched", "_by_path", "_read"]


def _read_in(path: Path) -> Iterator[str]:
    text = path.read_text("utf-8")
    return _private_names(ast.parse(text)) if "_" in text else iter(())


def _private_names(tree: ast.AST) -> Iterator[str]:
    """Yield the private names that a module reads of others, imports from spanscore, or passes to ``setattr`` and the like."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and not _is_own(node.value):
            yield node.attr
        elif (
            isinstance(node, ast.ImportFrom) and (node.module or "").startswith("spanscore") and not _of_commands(node)
        ):
            yield from filter(_is_private, (alias.name for alias in node.names))
        elif isinstance(node, ast.Call) and _name_of(node.func) in BY_NAME and not any(map(_is_own, node.args)):
            texts = (argument.value for argument in node.args if isinstance(argument, ast.Constant))
            yield from filter(_is_private, (str(text).rpartition(".")[2] for text in texts if isinstance(text, str)))


def _is_private(name: str) -> bool:
    return name.startswith("_") and name.isidentifier() and not name.startswith("__") and name not in PUBLIC


def _is_own(value: ast.expr) -> bool:
    """Whether a class reads its own attribute."""
    return _name_of(value) in {"self", "cls"} or (isinstance(value, ast.Call) and _name_of(value.func) == "super")


def _of_commands(node: ast.ImportFrom) -> bool:
    """Whether modules of ``cli`` that are no commands are imported: their names begin with an underscore."""
    return node.module == "spanscore.cli"


def _name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
