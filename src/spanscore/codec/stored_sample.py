"""Fields of a stored record → a sample: the names ragas uses now, those it used before, and what CSV makes of lists."""

from __future__ import annotations

import ast
import io
import json
import tokenize
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from pydantic import ValidationError

from spanscore.errors import SampleError
from spanscore.model.sample import MultiTurnSample, Sample, SingleTurnSample

__all__ = ["KNOWN", "sample_of"]

_FORMERLY = {
    "question": "user_input",
    "answer": "response",
    "contexts": "retrieved_contexts",
    "ground_truth": "reference",
    "ground_truths": "reference",
    "ground_truth_contexts": "reference_contexts",
}
"""ragas's names before 0.2 → today's."""
_TEXTS = frozenset({"retrieved_contexts", "reference_contexts"})
_LISTS = _TEXTS | {"retrieved_context_ids", "reference_context_ids", "reference_topics", "reference_tool_calls"}
_SINGLE, _MULTI = frozenset(SingleTurnSample.model_fields), frozenset(MultiTurnSample.model_fields)
KNOWN = _SINGLE | _MULTI | _FORMERLY.keys()
"""Every field that is read; others of a record are left alone."""
_SPANS = "resourceSpans"
"""What a line of spans holds, which is taken for samples now and then."""


def sample_of(record: Any, *, texts: bool = False) -> Sample:
    """Return the sample of a record: a mapping, an object with ``to_dict`` (ragas's own samples), or a sample of ours.

    A ``user_input`` that is a list of messages makes a conversation. Fields that are not known are left alone.

    Args:
        record: field → value; nan counts as missing, a text where a list of texts belongs as a list of one.
        texts: every value is text, as in CSV: lists and dicts are read from JSON or from Python's notation, and an empty
            text counts as missing.

    Raises:
        SampleError: it cannot be one; the message names field and fault and quotes nothing.
    """
    if isinstance(record, SingleTurnSample | MultiTurnSample):
        return record
    held = _mapping(record)
    fields = _named(held)
    if texts:
        fields = {name: _from_text(name, value) for name, value in fields.items()}
    fields = {name: _listed(name, value) for name, value in fields.items() if not _is_missing(value)}
    kind = MultiTurnSample if isinstance(fields.get("user_input"), list) else SingleTurnSample
    given = {name: value for name, value in fields.items() if name in kind.model_fields}
    if not given:
        raise SampleError(_lacks(held))
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise SampleError(_fault(error)) from None


def _lacks(record: Mapping[Any, Any]) -> str:
    if _SPANS in record:
        return "it holds spans, and no sample; spanscore collect makes samples of them"
    return f"it has none of the fields of a sample; known fields: {', '.join(sorted(KNOWN))}"


def _mapping(record: Any) -> Mapping[Any, Any]:
    to_dict = getattr(record, "to_dict", None)
    if not isinstance(record, Mapping) and callable(to_dict):
        record = to_dict()
    if not isinstance(record, Mapping):
        raise SampleError(f"a sample is an object with fields, not a {type(record).__name__}")
    return record


def _named(record: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the known fields under today's names; a field that stands there under both names is today's."""
    fields = {name: value for name, value in record.items() if name in _SINGLE | _MULTI}
    for old, new in _FORMERLY.items():
        if old in record and _is_missing(fields.get(new)):
            fields[new] = _first(record[old]) if old == "ground_truths" else record[old]
    return fields


def _first(value: Any) -> Any:
    """ragas once had a list of right answers, and used the first."""
    if isinstance(value, str):
        value = _literal("reference", value) if value.lstrip().startswith("[") else value
    return (value[0] if value else None) if isinstance(value, list | tuple) else value


def _is_missing(value: Any) -> bool:
    return value is None or value != value  # noqa: PLR0124  (nan: what pandas makes of an empty cell)


def _listed(name: str, value: Any) -> Any:
    """Return plain lists: a single text as one of one, an array or a tuple as a list."""
    if name in _TEXTS and isinstance(value, str):
        return [value]
    if name in _LISTS | {"user_input"} and not isinstance(value, str | list):
        made = getattr(value, "tolist", None)
        return made() if callable(made) else list(value) if isinstance(value, tuple) else value
    return value


def _from_text(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value:
        return None
    opens = value.lstrip()[:1]
    if name in _LISTS:
        return _literal(name, value) if opens == "[" else [value] if name in _TEXTS else value
    if name == "rubrics":
        return _literal(name, value)
    if name == "user_input" and value.lstrip()[:2] in ("[{", "[ "):  # else a question in brackets
        return _literal(name, value)
    return value


def _literal(name: str, text: str) -> Any:
    """Read a list or dict from a cell.

    Raises:
        SampleError: it is neither JSON nor Python; the printed form of a NumPy array, ``['a' 'b']``, is neither, and Python
            would read its two texts as one.
    """
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        if not _has_neighbouring_texts(text):
            return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, tokenize.TokenError):
        pass
    raise SampleError(f"{name}: the cell is neither JSON nor a Python list (commas separate the items of a list)")


def _has_neighbouring_texts(text: str) -> bool:
    kinds = [
        token.type
        for token in tokenize.generate_tokens(io.StringIO(text.strip()).readline)
        if token.type not in (tokenize.NL, tokenize.NEWLINE)
    ]
    return any(one == other == tokenize.STRING for one, other in pairwise(kinds))


def _fault(error: ValidationError) -> str:
    """Return what is wrong, by field: pydantic's own text quotes the value."""
    faults = [
        f"{'.'.join(str(part) for part in entry['loc'])}: {entry['msg']}"
        for entry in error.errors(include_input=False, include_url=False)
    ]
    return "; ".join(dict.fromkeys(faults))
