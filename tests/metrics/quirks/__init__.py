"""Quirk of the reference → the required result of its case, by the table in tests/data/vectors/README.md.

One file per family of metrics, each with ``EXPECTED``: quirk id → check, or (metric, quirk id) if a metric needs its own.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeAlias

from spanscore.core.score import Score
from spanscore.testing import ScriptedJudge

__all__ = ["Check", "check_of"]

Check: TypeAlias = Callable[[dict[str, Any], Score, ScriptedJudge], None]

_CHECKS: dict[Any, Check] = {}
for _module in sorted(found.name for found in iter_modules(__path__)):
    for _key, _check in import_module(f"{__name__}.{_module}").EXPECTED.items():
        assert _key not in _CHECKS, f"{_module} checks {_key}, which another file does too"
        _CHECKS[_key] = _check


def check_of(metric: str, quirk: str) -> Check:
    """Return the check of a quirk: the metric's own, else the common one."""
    return _CHECKS.get((metric, quirk)) or _CHECKS[quirk]
