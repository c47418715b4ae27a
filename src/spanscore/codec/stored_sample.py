"""Fields of a stored record → a sample: ragas's field names of today and before 0.2; lists as text, as arrays, as objects."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from spanscore.codec.json_text import json_in
from spanscore.codec.stored_messages import conversation_of, looks_like_messages, text_of
from spanscore.errors import SampleError
from spanscore.meant import did_you_mean
from spanscore.model.sample import MultiTurnSample, Sample, SingleTurnSample

__all__ = ["ID", "KNOWN", "Columns", "columns_of", "plain", "sample_of"]

ID: Final = "id"
"""Name of the column that identifies a record."""
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
_AROUND: Final = " \t\r\n\u00a0\ufeff"
"""Characters around a column's name that are no part of it."""
_DEEPEST: Final = 100
_SPANS = "resourceSpans"
"""What a line of spans holds, which is taken for samples now and then."""


class Columns(NamedTuple):
    """The columns of a record.

    Attributes:
        read: field, or ``id`` → the name of its column.
        unread: names of all other columns, in their order.
    """

    read: Mapping[str, Any]
    unread: Sequence[Any]


@lru_cache(maxsize=256)
def columns_of(names: tuple[Any, ...]) -> Columns:
    """Return which column holds which field. A name is trimmed and case-folded unless two columns would be one field."""
    fields = KNOWN | {ID}
    read = {name: name for name in names if name in fields}
    folded = [(name.strip(_AROUND).casefold(), name) for name in names if isinstance(name, str) and name not in read]
    alike = [field for field, _ in folded]
    read |= {field: name for field, name in folded if field in fields - read.keys() and alike.count(field) == 1}
    return Columns(read, tuple(name for name in names if name not in read.values()))


def sample_of(record: Any, *, texts: bool = False) -> Sample:
    """Return the sample of a record: a mapping, an object with ``to_dict`` (ragas's own samples), or a sample of ours.

    A ``user_input`` that is a list of messages, or the text of one, makes a conversation. Unknown fields are left alone.

    Args:
        record: field → value. NaN and ``pandas.NA`` count as missing. Lists may be arrays, tuples, or text in the notation of
            JSON or Python; any other text is a list of one text.
        texts: every value is text, as in CSV: an empty text counts as missing.

    Raises:
        SampleError: it cannot be one; the message names field, fault and type, and quotes nothing.
    """
    if isinstance(record, SingleTurnSample | MultiTurnSample):
        return record
    held = _mapping(record)
    named = {name: plain(value) for name, value in _named(held).items() if not (texts and value == "")}
    fields = {name: _field(name, value) for name, value in named.items() if not _is_missing(value)}
    kind = MultiTurnSample if isinstance(fields.get("user_input"), list) else SingleTurnSample
    given = {name: value for name, value in fields.items() if name in kind.model_fields}
    if not given:
        raise SampleError(_lacks(held))
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise SampleError(_fault(error)) from None


def plain(value: Any, depth: int = _DEEPEST) -> Any:
    """Return arrays and tuples as lists, and NumPy's scalars as Python's; any other value as it is.

    Raises:
        SampleError: it is nested deeper than ``depth``.
    """
    if isinstance(value, str):
        return value
    made = getattr(value, "tolist", None)
    value = made() if callable(made) else value
    if not isinstance(value, list | tuple | dict):
        return value
    if depth <= 0:
        raise SampleError(f"a field is nested deeper than {_DEEPEST} levels")
    if isinstance(value, dict):
        return {name: plain(inner, depth - 1) for name, inner in value.items()}
    return [plain(inner, depth - 1) for inner in value]


def _lacks(record: Mapping[Any, Any]) -> str:
    if _SPANS in record:
        return "it holds spans, and no sample; spanscore collect makes samples of them"
    near = [hint for name in map(str, record) if (hint := did_you_mean(name, KNOWN))]
    hint = f" ({near[0].removesuffix('?')})" if near else ""
    return f"it has none of the fields of a sample{hint}; known fields: {', '.join(sorted(KNOWN))}"


def _mapping(record: Any) -> Mapping[Any, Any]:
    to_dict = getattr(record, "to_dict", None)
    if not isinstance(record, Mapping) and callable(to_dict):
        record = to_dict()
    if not isinstance(record, Mapping):
        raise SampleError(f"a sample is an object with fields, not a {type(record).__name__}")
    return record


def _named(record: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the known fields under today's names; a field that stands there under both names is today's."""
    known = {name: record[column] for name, column in columns_of(tuple(record)).read.items()}
    fields = {name: value for name, value in known.items() if name in _SINGLE | _MULTI}
    for old, new in _FORMERLY.items():
        if old in known and _is_missing(fields.get(new)):
            fields[new] = _first(plain(known[old])) if old == "ground_truths" else known[old]
    return fields


def _first(value: Any) -> Any:
    """ragas once had a list of right answers, and used the first."""
    if isinstance(value, str):
        value = _literal("reference", value) if value.lstrip().startswith("[") else value
    return (value[0] if value else None) if isinstance(value, list) else value


def _is_missing(value: Any) -> bool:
    """Whether a value stands for none: None, NaN, NaT, ``pandas.NA``."""
    if value is None or hasattr(value, "__len__"):  # an array has no truth value
        return value is None
    try:
        return bool(value != value)  # noqa: PLR0124
    except TypeError:  # pandas.NA
        return True


def _field(name: str, value: Any) -> Any:
    if name == "user_input" and isinstance(value, str):
        value = _messages_in(value)
    if name in _LISTS:
        return _listed(name, value)
    if name == "user_input" and isinstance(value, list):
        return conversation_of(value)
    if name == "rubrics":
        value = _literal(name, value) if isinstance(value, str) else value
        return {key: text for key, text in value.items() if text is not None} if isinstance(value, dict) else value
    return text_of(value)


def _listed(name: str, value: Any) -> Any:
    """Return a list: of a text that is one in the notation of JSON or Python, or of the one text."""
    if isinstance(value, str):
        value = _list_in(name, value)
    return [text_of(item) for item in value] if name in _TEXTS and isinstance(value, list) else value


def _list_in(name: str, text: str) -> Any:
    """Return the list that a text is.

    Raises:
        SampleError: it begins as a list of texts, and is none.
    """
    is_texts, inner = name in _TEXTS, text.strip().removeprefix("[")
    if inner == text.strip():  # no bracket
        return [text] if is_texts else text
    try:
        found = _literal(name, text)
    except SampleError:
        if not is_texts or inner.lstrip()[:1] in ("'", '"'):
            raise
        return [text]  # such as "[sic] …"
    has_texts = isinstance(found, list) and (not found or any(isinstance(item, str) for item in found))
    return found if has_texts or not is_texts else [text]  # such as "[1]"


def _messages_in(text: str) -> Any:
    """Return the messages that a text holds as JSON or Python; any other text, such as a question in brackets, as it is."""
    shown = text.strip()
    if not (shown.startswith("[") and shown.endswith("]") and shown[1:].lstrip().startswith("{")):
        return text
    found = _literal("user_input", text)
    return found if looks_like_messages(found) else text


def _literal(name: str, text: str) -> Any:
    """Read a list or dict from a cell.

    Raises:
        SampleError: it is neither JSON nor Python; the printed form of a NumPy array, ``['a' 'b']``, is neither, and Python
            would read its two texts as one.
    """
    try:
        return json_in(text)
    except ValueError:
        pass
    try:
        if not _has_neighbouring_texts(text):
            return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, tokenize.TokenError):
        pass
    raise SampleError(f"{name}: the text is neither JSON nor a Python list (commas separate the items of a list)")


def _has_neighbouring_texts(text: str) -> bool:
    kinds = [
        token.type
        for token in tokenize.generate_tokens(io.StringIO(text.strip()).readline)
        if token.type not in (tokenize.NL, tokenize.NEWLINE)
    ]
    return any(one == other == tokenize.STRING for one, other in pairwise(kinds))


def _fault(error: ValidationError) -> str:
    """Return what is wrong and which type is there, by field: pydantic's own text quotes the value."""
    faults = [
        f"{'.'.join(str(part) for part in entry['loc'])}: {entry['msg']}, not {type(entry['input']).__name__}"
        if entry["type"].endswith("_type")
        else f"{'.'.join(str(part) for part in entry['loc'])}: {entry['msg']}"
        for entry in error.errors(include_url=False)
    ]
    return "; ".join(dict.fromkeys(faults))
