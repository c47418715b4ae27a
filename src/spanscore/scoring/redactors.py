"""Redactors by name: a function of the user's, ``my_pkg.privacy:redact``, or a class of theirs with its parameters."""

from __future__ import annotations

from spanscore.core.plugins import Entry, Registry
from spanscore.protocols import Redactor

__all__ = ["REDACTORS", "redactor_in"]

REDACTORS = Registry(kind="redactor", protocol=Redactor, outside="my_pkg.privacy:redact", built_in={})


def redactor_in(entry: Redactor | Entry | None) -> Redactor | None:
    """Return the redactor that is given, or that a configuration or an option of a command names; None if none is.

    Raises:
        ConfigurationError: there is no such function or class, or it cannot be called.
    """
    redactor: Redactor | None = REDACTORS.one(entry) if entry else None
    return redactor
