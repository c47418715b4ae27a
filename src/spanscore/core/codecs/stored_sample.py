"""Reads a stored record, in the forms of ragas, OpenAI and LangChain, into a sample; and hashes a sample's content.

The first section reads JSON dumps of LangChain's values. The normalizers also call it, for dumps on spans.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from spanscore.core.codecs.media import add_images, images_in, mark_media
from spanscore.core.codecs.messages import (
    TOOL,
    USER,
    bare_message,
    dict_message,
    is_message,
    join_text_blocks,
    langchain_message,
    message_of_calls,
    message_text,
    parts_of,
    role_of,
    sample_messages,
    text_message,
)
from spanscore.core.codecs.text import MAX_DEPTH, json_in
from spanscore.core.codecs.tool_definitions import tool_definitions
from spanscore.core.printable import did_you_mean
from spanscore.core.sample import MEASURES, Message, MultiTurnSample, Sample, SingleTurnSample
from spanscore.errors import SampleError

# --- langchain dumps ------------------------------------------------------------------------------------------------

# JSON dumps of LangChain's values → the forms in which ``langchain.py`` renders live values: GenAI messages, documents and
# commands. LangChain is not imported. The dumps are:
#
# {"lc": 1, "id": […, "HumanMessage"], "kwargs": {…}}    langchain_core.load.dumps    a message, a document, a prompt
# {"type": "human", "data": {…}}                         message_to_dict              a message
# {"type": "human", "content": …, "additional_kwargs"}   model_dump                   a message
# {"page_content", "metadata", "type": "Document"}       model_dump                   a document
# {"pageContent", "metadata"}                            JSON.stringify               a document of LangChain.js
# {"graph", "update", "resume", "goto"}                  asdict                       a LangGraph Command

_MESSAGES_KEY: Final = "messages"
_COMMAND: Final = frozenset({"graph", "update", "resume", "goto"})
_SUFFIXES: Final = ("MessageChunk", "Message")
_PAIR: Final = 2
"""Number of items of ``["user", text]``."""
_TYPE_AND_DATA: Final = frozenset({"type", "data"})
_CALL_ID: Final = re.compile(r'"tool_call_id":\s*"([^"\\]+)"')
"""The id in the fields of a dump: in a text inside the dump, quotes are escaped."""


def unfold_dump(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Return a parsed dump with its messages, documents and commands converted; levels beyond ``depth`` are markers."""
    kind = type(value)
    if kind is not list and kind is not dict:
        return value
    if depth <= 0:
        return {"type": kind.__name__}
    if kind is list:
        return [unfold_dump(inner, depth - 1) for inner in value]
    fields = _message_fields(value)
    if fields is None:
        return _unfold_dict(value, depth)
    role, listed = _role(fields), fields.get("tool_calls")
    calls = [call for call in listed if type(call) is dict] if type(listed) is list else None
    return langchain_message(role, fields, fields.get("content"), calls, is_human=role == USER)


def _unfold_dict(value: dict[str, Any], depth: int) -> Any:
    if value.get("lc") == 1 and type(value.get("id")) is list:
        return _unfold_constructor(value, depth)
    if value.keys() == _COMMAND:
        return _command(value, depth)
    if (value.get("type") == "Document" or "metadata" in value) and (text := _page_text(value)) is not None:
        return _document(value, text)
    if ("source" in value or "text" in value) and (message := bare_message(value)) is not None:
        return message
    return {key: unfold_dump(inner, depth - 1) for key, inner in value.items()}


def content_of_side(value: Any, messages_name: str, value_name: str) -> dict[str, Any]:
    """Return the content attributes of the input or output of a unit's root span: its messages, and the rest as a value.

    Args:
        value: the parsed dump of the input or output; None without one.
        messages_name: name of the attribute for messages.
        value_name: name of the attribute for other content.
    """
    content = unfold_dump(value)
    if content is None:
        return {}
    messages = messages_from(content)
    if messages:
        return {messages_name: messages}
    conversation = messages_from(content.get(_MESSAGES_KEY), loose=True) if type(content) is dict else []
    if not conversation:
        return {value_name: content}
    rest = {key: inner for key, inner in content.items() if key != _MESSAGES_KEY}
    return {messages_name: conversation, value_name: rest} if rest else {messages_name: conversation}


def messages_from(value: Any, *, loose: bool = False) -> list[dict[str, Any]]:
    """Return an unfolded message, or a list that has only messages, as messages; ``[]`` for every other value.

    ``loose`` also accepts plain texts; it is for the value under the key ``messages``.
    """
    message = message_from(value, loose=loose)
    if message is not None:
        return [message]
    converted = [message_from(item, loose=loose) for item in value] if type(value) is list else []
    messages = [message for message in converted if message is not None]
    return messages if len(messages) == len(converted) else []


def message_from(value: Any, *, loose: bool = False) -> dict[str, Any] | None:
    """Return a dict with a role, ``["user", text]`` or, if ``loose``, a text as a message; None for every other value."""
    if type(value) is str:
        return text_message(USER, value) if loose else None
    if type(value) is list:
        role = role_of(value[0]) if len(value) == _PAIR and type(value[1]) in (str, list) else None
        return None if role is None else {"role": role, "parts": parts_of(value[1])}
    has_role = is_message(value) and ("parts" in value or role_of(value["role"]) is not None)
    return dict_message(value) if has_role else message_of_calls(value)


def tool_answer(value: Any) -> tuple[Any, list[dict[str, Any]], str | None]:
    """Return a tool's output, the documents in its artifact (without one, in the output), and the id of the call."""
    fields = _message_fields(value) if type(value) is dict else None
    if fields is not None and _role(fields) == TOOL:
        documents, identity = documents_of(unfold_dump(fields.get("artifact"))), fields.get("tool_call_id")
        return join_text_blocks(fields.get("content")), documents, identity if type(identity) is str else None
    if type(value) is dict and value.keys() == _COMMAND:
        return _command_answer(value)
    output = unfold_dump(value)
    return output, documents_of(output), None


def call_id_in(dump: Any) -> str | None:
    """Return the call id in the unparsed dump of a tool message; None for every other value."""
    match = _CALL_ID.search(dump) if isinstance(dump, str) else None
    return match[1] if match else None


def documents_of(value: Any, depth: int = 3) -> list[dict[str, Any]]:
    """Return the documents in an unfolded value, in the form of ``gen_ai.retrieval.documents``.

    An empty text stays under ``page_content``, because an empty ``content`` means an unknown text.
    """
    if type(value) is dict and type(value.get("page_content")) is str:
        text_key = "content" if value["page_content"] else "page_content"
        identity = {} if value.get("id") is None else {"id": value["id"]}
        return [{**identity, text_key: value["page_content"]}]
    if depth <= 0 or is_message(value):
        return []
    items = value.values() if type(value) is dict else value if type(value) is list else ()
    return [document for item in items for document in documents_of(item, depth - 1)]


def _message_fields(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the fields of a dumped message, with its ``type``; None for every other value."""
    if value.get("lc") == 1:
        return _loadable_fields(value)
    kind, data = value.get("type"), value.get("data")
    if type(kind) is not str:
        return None
    if type(data) is dict and "content" in data and value.keys() == _TYPE_AND_DATA:
        return {**data, "type": kind}
    return value if "content" in value and "additional_kwargs" in value else None


def _loadable_fields(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    path, fields = value.get("id"), value.get("kwargs")
    name = path[-1] if type(path) is list and path else None
    if type(name) is not str or not name.endswith(_SUFFIXES) or type(fields) is not dict:
        return None
    return fields if type(fields.get("type")) is str else {**fields, "type": name}


def _role(fields: Mapping[str, Any]) -> str:
    kind: str = fields["type"]
    kind = next((kind.removesuffix(suffix) for suffix in _SUFFIXES if kind.endswith(suffix)), kind).lower()
    role = fields.get("role")
    return role_of(kind) or (role if type(role) is str else kind)


def _unfold_constructor(value: Mapping[str, Any], depth: int) -> Any:
    """Unfold a dump of ``langchain_core.load`` that is not a message; an unknown object becomes its class name."""
    path, fields = value["id"], value.get("kwargs")
    if type(fields) is dict:
        if (text := _page_text(fields)) is not None:
            return _document(fields, text)
        if type(fields.get(_MESSAGES_KEY)) is list:  # a prompt
            return unfold_dump(fields[_MESSAGES_KEY], depth - 1)
    return {"type": path[-1] if path and type(path[-1]) is str else "object"}


def _page_text(fields: Mapping[str, Any]) -> str | None:
    text = fields.get("page_content", fields.get("pageContent"))
    return text if type(text) is str else None


def _document(fields: Mapping[str, Any], text: str) -> dict[str, Any]:
    metadata = fields.get("metadata")
    return {
        "page_content": text,
        "id": fields.get("id"),
        "metadata": metadata if type(metadata) is dict else {},
    }


def _command(value: Mapping[str, Any], depth: int) -> dict[str, Any]:
    fields = {name: value[name] for name in ("resume", "update", "goto") if value[name] not in (None, [])}
    return {"type": "Command", **{name: unfold_dump(inner, depth - 1) for name, inner in fields.items()}}


def _command_answer(value: Mapping[str, Any]) -> tuple[Any, list[dict[str, Any]], str | None]:
    update = value["update"]
    listed = update.get(_MESSAGES_KEY) if type(update) is dict else None
    messages = listed if type(listed) is list else ()
    answers = [tool_answer(message) for message in messages if _is_tool_message(message)]
    if not answers:
        return unfold_dump(value), [], None
    results = [result for result, _, _ in answers]
    documents = [document for _, retrieved, _ in answers for document in retrieved]
    return results[0] if len(results) == 1 else results, documents, answers[0][2]


def _is_tool_message(value: Any) -> bool:
    fields = _message_fields(value) if type(value) is dict else None
    return fields is not None and _role(fields) == TOOL


# --- stored messages ------------------------------------------------------------------------------------------------

_SAMPLE_MESSAGE: Final[TypeAdapter[Message]] = TypeAdapter(Message)
_LONGEST_ROLE: Final = 30
"""Maximum number of characters of a role in an error."""


def conversation_of(items: list[Any]) -> list[Message]:
    """Return the messages of a conversation, without system messages.

    Args:
        items: messages of a sample, of LangChain or of ragas, or dicts with ``role`` or ``type``, and ``content``.

    Raises:
        SampleError: an item is not a message; the error names its position and its role or type.
    """
    return [message for place, item in enumerate(items) for message in _read_message(place, item)]


def text_of(value: Any) -> Any:
    """Return the text of a LangChain message or document, or of a document's dict; every other value unchanged."""
    page = value.get("page_content") if isinstance(value, dict) else getattr(value, "page_content", None)
    if isinstance(page, str):
        return page
    message = None if isinstance(value, str | list | dict) else message_from(unfold_dump(_fields(value)))
    return value if message is None else message_text(message)


def _read_message(place: int, item: Any) -> list[Message]:
    try:
        return [_SAMPLE_MESSAGE.validate_python(item)]
    except ValidationError as error:
        cause = error
    fields = _fields(item)
    if isinstance(fields, dict) and "role" not in fields and "additional_kwargs" not in fields and "data" not in fields:
        fields = {"role": fields.get("type"), **fields}
    if isinstance(fields, dict) and fields.get("tool_calls"):
        fields = {"content": None, **fields}
    message = message_from(unfold_dump(fields))
    if message is None:
        raise SampleError(f"user_input.{place}: {_describe_item(item)}") from cause
    return sample_messages([mark_media(message)])


def _fields(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) else value


def _describe_item(item: Any) -> str:
    """Return the form of a message, and the deviation of an item from it."""
    form = "a message has content and a role (user, assistant, tool, system) or a type (human, ai, tool, system)"
    if not isinstance(item, Mapping):
        return f"{form}; this is a {type(item).__name__}"
    role = next((item[key] for key in ("role", "type") if key in item), None)
    shown = repr(role[:_LONGEST_ROLE]) if isinstance(role, str) else "none"
    return f"{form}; its role is {shown}, its content is {'present' if 'content' in item else 'missing'}"


# --- content hash ---------------------------------------------------------------------------------------------------


def content_hash(sample: Sample) -> str:
    """Return 32 hex digits that are equal for samples with equal content, regardless of duration and usage."""
    try:
        text = sample.model_dump_json(exclude_none=True, exclude=set(MEASURES))
    except Exception:  # noqa: BLE001  (pydantic cannot write half a surrogate pair, or an object among a tool's arguments)
        text = repr(sample)
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


# --- stored sample --------------------------------------------------------------------------------------------------

# A record of a data set, such as a row of a CSV file → a sample. Field names are those of ragas, also those before 0.2.

ID: Final = "id"
"""Name of the column that identifies a record."""
_OLD_NAMES = {
    "question": "user_input",
    "answer": "response",
    "contexts": "retrieved_contexts",
    "ground_truth": "reference",
    "ground_truths": "reference",
    "ground_truth_contexts": "reference_contexts",
}
"""ragas's names before 0.2 → present names."""
_TEXTS = frozenset({"retrieved_contexts", "reference_contexts"})
_LISTS = _TEXTS | {
    "retrieved_context_ids",
    "reference_context_ids",
    "reference_topics",
    "reference_tool_calls",
    "images",
}
_TOOLS: Final = "tools"
_SINGLE, _MULTI = frozenset(SingleTurnSample.model_fields), frozenset(MultiTurnSample.model_fields)
KNOWN = _SINGLE | _MULTI | _OLD_NAMES.keys()
"""Every field that is read; other fields of a record are ignored."""
_BLANKS: Final = " \t\r\n\u00a0\ufeff"
"""Characters around a column's name that are ignored."""
_DEEPEST: Final = 100
_SPANS = "resourceSpans"
"""Key of a line of spans, which users sometimes pass as samples."""


class Columns(NamedTuple):
    """The columns of a record.

    Attributes:
        read: field, or ``id`` → the name of its column.
        unread: names of all other columns, in order.
    """

    read: Mapping[str, Any]
    unread: Sequence[Any]


@lru_cache(maxsize=256)
def columns_of(names: tuple[Any, ...]) -> Columns:
    """Return the column of each field. Case and surrounding blanks of a name are ignored, unless two columns match a field."""
    fields = KNOWN | {ID}
    read = {name: name for name in names if name in fields}
    folded = [(name.strip(_BLANKS).casefold(), name) for name in names if isinstance(name, str) and name not in read]
    matches = Counter(field for field, _ in folded)
    read |= {field: name for field, name in folded if field in fields - read.keys() and matches[field] == 1}
    return Columns(read, tuple(name for name in names if name not in read.values()))


def sample_of(record: Any, *, texts: bool = False) -> Sample:
    """Return the sample of a record: a mapping, an object with ``to_dict`` (ragas's own samples), or a spanscore sample.

    A ``user_input`` that is a list of messages, or the text of one, makes a conversation. Unknown fields are ignored.

    Args:
        record: field → value. NaN and ``pandas.NA`` count as missing. Lists may be arrays, tuples, or text in the notation of
            JSON or Python; every other text is a list of one text.
        texts: whether every value is text, as in CSV: an empty text counts as missing.

    Raises:
        SampleError: the record is not a sample; the message names field, error and type, and quotes no content.
    """
    if isinstance(record, SingleTurnSample | MultiTurnSample):
        return record
    row = _mapping(record)
    cells = {name: without_arrays(value) for name, value in _rename_fields(row).items() if not (texts and value == "")}
    fields = {name: _field(name, value) for name, value in cells.items() if not _is_missing(value)}
    kind = MultiTurnSample if isinstance(fields.get("user_input"), list) else SingleTurnSample
    values = {name: value for name, value in fields.items() if name in kind.model_fields}
    if not values:
        raise SampleError(_describe_unknown(row))
    try:
        sample = kind.model_validate(values)
    except ValidationError as error:
        raise SampleError(_describe_fault(error)) from None
    return _with_images(sample, [cells.get("user_input"), cells.get("retrieved_contexts")])


def _with_images(sample: Sample, values: list[Any]) -> Sample:
    """Return a sample with the images in the question or messages, and in the contexts, of its record."""
    parsed = [_messages_in(value) if isinstance(value, str) else value for value in values]
    plain = [[_fields(item) for item in value] if isinstance(value, list) else value for value in parsed]
    return add_images(sample, lambda: dict(images_in(plain)))


def without_arrays(value: Any, depth: int = _DEEPEST) -> Any:
    """Return arrays and tuples as lists, and NumPy's scalars as Python's; every other value unchanged.

    Raises:
        SampleError: the value is nested deeper than ``depth``.
    """
    if isinstance(value, str):
        return value
    tolist = getattr(value, "tolist", None)
    value = tolist() if callable(tolist) else value
    if not isinstance(value, list | tuple | dict):
        return value
    if depth <= 0:
        raise SampleError(f"a field is nested deeper than {_DEEPEST} levels")
    if isinstance(value, dict):
        return {name: without_arrays(inner, depth - 1) for name, inner in value.items()}
    return [without_arrays(inner, depth - 1) for inner in value]


def _describe_unknown(record: Mapping[Any, Any]) -> str:
    if _SPANS in record:
        return "it has spans, not a sample; spanscore collect makes samples of spans"
    hints = [hint for name in map(str, record) if (hint := did_you_mean(name, KNOWN))]
    hint = f" ({hints[0].removesuffix('?')})" if hints else ""
    return f"it has none of the fields of a sample{hint}; known fields: {', '.join(sorted(KNOWN))}"


def _mapping(record: Any) -> Mapping[Any, Any]:
    to_dict = getattr(record, "to_dict", None)
    if not isinstance(record, Mapping) and callable(to_dict):
        record = to_dict()
    if not isinstance(record, Mapping):
        raise SampleError(f"a sample is an object with fields, not a {type(record).__name__}")
    return record


def _rename_fields(record: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the known fields under their present names; if a field has both names, the present one counts."""
    values = {name: record[column] for name, column in columns_of(tuple(record)).read.items()}
    fields = {name: value for name, value in values.items() if name in _SINGLE | _MULTI}
    for old, new in _OLD_NAMES.items():
        if old in values and _is_missing(fields.get(new)):
            fields[new] = _first(without_arrays(values[old])) if old == "ground_truths" else values[old]
    return fields


def _first(value: Any) -> Any:
    """Return the first right answer, as ragas did when it had a list of them."""
    if isinstance(value, str):
        value = _literal("reference", value) if value.lstrip().startswith("[") else value
    return (value[0] if value else None) if isinstance(value, list) else value


def _is_missing(value: Any) -> bool:
    """Whether a value means missing: None, NaN, NaT, ``pandas.NA``."""
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
        return _read_list(name, value)
    if name == _TOOLS:
        return _tools_in(value)
    if name == "user_input" and isinstance(value, list):
        return conversation_of(value)
    if name in _OBJECTS:
        value = _literal(name, value) if isinstance(value, str) else value
        return _OBJECTS[name](value) if isinstance(value, dict) else value
    return text_of(value)


def _tools_in(value: Any) -> Any:
    listed = _literal(_TOOLS, value) if isinstance(value, str) else value
    if not isinstance(listed, list):
        return listed  # ``MultiTurnSample`` rejects it
    tools = [tool_definitions(item) for item in listed]
    if [] in tools:
        raise SampleError(
            f"{_TOOLS}.{tools.index([])}: it has no name; a tool has name, description and parameters, or the form of OpenAI's,"
            " Anthropic's, Google's or Bedrock's API"
        )
    return tool_definitions([*chain.from_iterable(tools)])  # the last definition of a name counts


def _read_usage(value: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the token counts of ``TokenUsage``, also from the names of OpenAI's chat API; other counts are left out."""
    openai_names = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
    return {name: value.get(name, value.get(openai_name)) for name, openai_name in openai_names.items()}


_OBJECTS: Final[Mapping[str, Callable[[Mapping[Any, Any]], Any]]] = {
    "rubrics": lambda value: {key: text for key, text in value.items() if text is not None},
    "usage": _read_usage,
}


def _read_list(name: str, value: Any) -> Any:
    """Return a list: parsed from a text in the notation of JSON or Python, or of the one text."""
    if isinstance(value, str):
        value = _list_in(name, value)
    return [mark_media(text_of(item)) for item in value] if name in _TEXTS and isinstance(value, list) else value


def _list_in(name: str, text: str) -> Any:
    """Return the list in a text. Raises SampleError if the text begins like a list of texts, and is not valid."""
    is_texts, inner = name in _TEXTS, text.strip().removeprefix("[")
    if inner == text.strip():  # no bracket
        return [text] if is_texts else text
    try:
        literal = _literal(name, text)
    except SampleError:
        if not is_texts or inner.lstrip()[:1] in ("'", '"'):
            raise
        return [text]  # such as "[sic] …"
    has_texts = isinstance(literal, list) and (not literal or any(isinstance(item, str) for item in literal))
    return literal if has_texts or not is_texts else [text]  # such as "[1]"


def _messages_in(text: str) -> Any:
    """Return the messages in a text of JSON or Python; every other text, such as a question in brackets, unchanged."""
    trimmed = text.strip()
    if not (trimmed.startswith("[") and trimmed.endswith("]") and trimmed[1:].lstrip().startswith("{")):
        return text
    literal = _literal("user_input", text)
    items = literal if isinstance(literal, list) else [None]
    return literal if all(isinstance(item, dict) and ("role" in item or "type" in item) for item in items) else text


def _literal(name: str, text: str) -> Any:
    """Read a list or dict of JSON or Python from a cell, or raise SampleError."""
    try:
        return json_in(text)
    except ValueError:
        pass
    try:  # Python would read the two texts of a printed NumPy array, ``['a' 'b']``, as one
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
    return any(kind == next_kind == tokenize.STRING for kind, next_kind in pairwise(kinds))


def _describe_fault(error: ValidationError) -> str:
    """Return the error and the actual type of each field, because pydantic's own text quotes the value."""
    faults = dict[str, None]()
    for entry in error.errors(include_url=False):
        actual = f", not {type(entry['input']).__name__}" if entry["type"].endswith("_type") else ""
        faults[f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}{actual}"] = None
    return "; ".join(faults)
