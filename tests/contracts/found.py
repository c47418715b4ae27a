"""Finds the parts in a folder by their methods, whether they have a test or not."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from importlib import import_module
from inspect import isabstract, signature
from typing import Any

import spanscore


def implementations(room: str, protocol: Any) -> list[type]:
    """Return the classes of a folder of spanscore that have every method of a protocol; private classes are left out."""
    methods = {name: member for name, member in vars(protocol).items() if name[0] != "_" and callable(member)}
    found = [kind for kind in _classes(room) if all(_has(kind, name, like) for name, like in methods.items())]
    assert found, f"{room}/ holds nothing that has {[*methods]}"
    return found


def _has(kind: type, name: str, like: Any) -> bool:
    own = getattr(kind, name, None)
    return callable(own) and not isabstract(kind) and len(signature(own).parameters) == len(signature(like).parameters)


def _classes(room: str) -> list[type]:
    package = import_module(f"{spanscore.__name__}.{room}")
    names = [found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    modules = [import_module(name) for name in names]
    return [
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__ and kind.__name__[0] != "_"
    ]


def checks_of(suite: type) -> set[str]:
    """Return the names of a suite's checks."""
    return {name for name in dir(suite) if name.startswith("test_")}


def failing(suite: type) -> set[str]:
    """Return the names of the failing checks."""
    return {name for name in checks_of(suite) if not _holds(suite, name)}


def never_failing(contract: type, suites: Iterable[type]) -> set[str]:
    """Return the checks that hold for each of these broken suites: they may be checks of nothing."""
    return checks_of(contract) - set[str]().union(*map(failing, suites))


def _holds(suite: type, check: str) -> bool:
    try:
        getattr(suite(), check)()
    except Exception:
        return False
    return True
