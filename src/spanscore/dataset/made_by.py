"""A metric → a hash of all that its evaluator version leaves out: where and with which parameters it asks, and the user's own
code.

By it a later run takes over only rows that it would make itself. The evaluator version, and with it every mean of live traffic,
stays the same when an address or a comment changes.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from hashlib import blake2b
from types import CellType, CodeType, FunctionType
from typing import Any, Final

from spanscore.judges.effects.middleware import unwrapped
from spanscore.judges.langchain.models import account_of_model
from spanscore.judges.lexical.judge import is_offline
from spanscore.metrics.kit.base import plain_parameter
from spanscore.protocols import Metric

__all__ = ["made_by"]

_ASKED: Final = ("ask", "embed", "ainvoke", "aembed_documents")
"""Methods by which judges, embedders and models are asked."""
_PARAMETERS: Final = ("temperature", "top_p", "seed")
"""Attributes of a judge or model that says nothing of how it draws its answers."""
_BYTES: Final = 8


def made_by(metric: Metric) -> str:
    """Return 16 hex digits; an empty text for a metric of ours that asks nobody."""
    held = vars(metric).values() if hasattr(metric, "__dict__") else ()
    parts = [*filter(None, map(_way, held)), *(_source(function) for function in _own_code(metric))]
    if not parts:
        return ""
    text = json.dumps(parts, sort_keys=True, default=str)
    return blake2b(text.encode("utf-8", "replace"), digest_size=_BYTES).hexdigest()


def _way(value: Any) -> Any:
    """Return address and parameters of what a metric asks; None for anything else, and for the offline judge."""
    asked = getattr(value, "asked", value)  # of embeddings: the judge that asks for them
    if isinstance(value, type) or is_offline(asked) or not any(callable(getattr(asked, name, None)) for name in _ASKED):
        return None
    inner = unwrapped(asked)
    account = getattr(inner, "account", None) or account_of_model(inner)
    told = {name: getattr(inner, name, None) for name in _PARAMETERS}
    return [type(inner).__qualname__, account.address, _plain(getattr(inner, "drawing", told))]


def _own_code(metric: Metric) -> Iterator[FunctionType]:
    """Yield the functions that a metric holds or inherits, but for those of the library."""
    held = [*vars(metric).values()] if hasattr(metric, "__dict__") else []
    held += [value for kind in type(metric).__mro__ for value in vars(kind).values()]
    functions = (getattr(value, "__func__", getattr(value, "fget", None)) or value for value in held)
    for function in functions:
        if isinstance(function, FunctionType) and not f"{function.__module__}.".startswith("spanscore."):
            yield function


def _source(function: FunctionType) -> Any:
    """Return a function's text, or its code if there is no text, with the values that it has enclosed."""
    inner = inspect.unwrap(function)
    try:
        text: Any = inspect.getsource(inner)
    except (OSError, TypeError):
        text = _compiled(inner.__code__)
    return [text, _plain(inner.__defaults__), [*map(_enclosed, inner.__closure__ or ())]]


def _enclosed(cell: CellType) -> Any:
    try:
        return _plain(cell.cell_contents)
    except ValueError:  # empty
        return None


def _compiled(code: CodeType) -> Any:
    constants = [_compiled(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return [code.co_code.hex(), [*code.co_names], constants]


def _plain(value: Any) -> Any:
    try:
        return plain_parameter(value)
    except Exception:  # noqa: BLE001  (whatever a user's object does when it is looked at)
        return type(value).__qualname__
