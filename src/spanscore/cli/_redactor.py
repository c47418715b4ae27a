"""``--redactor my_pkg.privacy:redact`` → the function."""

from __future__ import annotations

from spanscore.protocols import Redactor
from spanscore.runtime.plugins import Registry

__all__ = ["redactor_named"]

_REDACTORS = Registry(kind="redactor", protocol=Redactor, outside="my_pkg.privacy:redact", built_in={})


def redactor_named(name: str) -> Redactor | None:
    """Return the function that an option names; None where it names none.

    Raises:
        ConfigurationError: there is no such function.
    """
    found: Redactor | None = _REDACTORS.found(name) if name else None
    return found
