"""Does another library trace LangChain in this process? Then each run has two span trees, and a person should know.

OpenInference, OpenLLMetry and their kin wrap ``BaseCallbackManager.__init__`` to put their handler into every run. The wrapper
itself is read: so a library is named only where it is active, not where it is merely installed, and none is imported.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any, Final

__all__ = ["announce", "neighbours", "who_counts"]

_log = logging.getLogger("spanscore")
_KNOWN: Final = {
    "openinference.instrumentation.langchain": "OpenInference",
    "opentelemetry.instrumentation.langchain": "OpenLLMetry",
}
_SPANS_ONLY: Final = "OpenInference "
"""Has no instruments; any other library that traces LangChain may have them, as OpenLLMetry does."""
_HOME: Final = "langchain_core"
_NOBODY: Final = frozenset({_HOME, "builtins"})
_DEEPEST: Final = 32
"""Wrappers looked through: a wrapper that names itself as what it wraps must not hold up a root."""

_said: set[str] = set()


def neighbours() -> list[str]:
    """Return who else traces LangChain now, outermost first: ``OpenInference (openinference.instrumentation.langchain)``.

    Empty where none does. Never raises; some microseconds, so not for every run.
    """
    callbacks = sys.modules.get(f"{_HOME}.callbacks")  # not loaded: there is nothing to trace
    manager = getattr(callbacks, "BaseCallbackManager", object)
    modules = [m for m in _modules(manager.__dict__.get("__init__")) if m.split(".")[0] not in _NOBODY]
    return [_format_name(module) for module in dict.fromkeys(modules)]


def announce(active: Sequence[str]) -> None:
    """Log each neighbour as a warning, once per process however many scorers there are."""
    for name in active:
        if name not in _said:
            _said.add(name)
            _log.warning(
                "%s also traces LangChain in this process. Its spans stay as they are; each run is scored once, on spanscore's"
                " own span. capture=Capture(enabled=False) with a ScoringSpanProcessor scores on its spans instead.",
                name,
            )


def who_counts(active: Sequence[str]) -> str | None:
    """Return the first neighbour that may emit metrics of model runs, too; None where there is none."""
    return next((name for name in active if not name.startswith(_SPANS_ONLY)), None)


def _modules(function: Any) -> Iterator[str]:
    """Yield the module of each wrapper around a function, outermost first, and of the function."""
    for _ in range(_DEEPEST):
        yield _module(getattr(function, "_self_wrapper", function))  # wrapt keeps the wrapper there
        function = getattr(function, "__wrapped__", None)
        if function is None:
            return


def _module(wrapper: Any) -> str:
    """Return where a wrapper was written: ``functools.wraps`` copies ``__module__``, the globals are its own."""
    if isinstance(wrapper, FunctionType):
        return str(wrapper.__globals__.get("__name__", _HOME))
    return type(wrapper).__module__


def _format_name(module: str) -> str:
    library = next((name for prefix, name in _KNOWN.items() if module.startswith(prefix)), None)
    return module if library is None else f"{library} ({module})"
