"""Reads definitions of tools in the forms of model providers and instrumentations as ``ToolDefinition``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from spanscore.core.codecs.text import from_wire, jsonable
from spanscore.core.sample import ToolDefinition

_LIST_KEYS: Final = ("function_declarations", "functionDeclarations", "function_tools", "output_tools")
"""Keys of lists of definitions: Gemini's, in both spellings, and Pydantic AI's."""
_DEFINITION_KEYS: Final = ("function", "toolSpec")
"""Keys under which OpenAI's chat API and Bedrock's Converse API have the definition."""
_SCHEMA_KEYS: Final = ("parameters", "input_schema", "inputSchema", "parameters_json_schema", "parametersJsonSchema")
_INNER_SCHEMA_KEYS: Final = ("json", "jsonSchema")
"""Keys under which Bedrock and Vercel's SDK have the schema itself."""
_FUNCTION: Final = "function"
_DEEPEST: Final = 50


def tool_definitions(value: Any) -> list[ToolDefinition]:
    """Return the tools in a definition, a list of them or JSON text, in order; the last definition of a name counts.

    A provider's own tool has no name in some APIs (``{"type": "web_search"}``); the type is then the name. Values in an unknown
    form are left out.
    """
    return [*{tool.name: tool for tool in _read(value, _DEEPEST)}.values()]


def union(
    tools: Iterable[ToolDefinition], limit_bytes: int, first: Iterable[str] = ()
) -> tuple[list[ToolDefinition], int]:
    """Return the tools of several definitions that fit into the limit, in order, and the number of the other tools.

    Args:
        tools: definitions; the last definition of a name counts.
        limit_bytes: maximum size of the returned definitions together, as JSON.
        first: names of tools that are chosen before all others.
    """
    by_name = {tool.name: tool for tool in tools}
    preferred = [name for name in first if name in by_name]
    kept: set[str] = set()
    for name in dict.fromkeys([*preferred, *by_name]):
        size = len(by_name[name].model_dump_json(exclude_none=True).encode("utf-8", "replace"))
        if size <= limit_bytes:
            limit_bytes -= size
            kept.add(name)
    return [tool for name, tool in by_name.items() if name in kept], len(by_name) - len(kept)


def _read(value: Any, depth: int) -> Iterator[ToolDefinition]:
    parsed = from_wire(value) if isinstance(value, str) else value
    if depth <= 0:
        return
    if isinstance(parsed, ToolDefinition):
        yield parsed
    elif isinstance(parsed, list | tuple):
        for item in parsed:
            yield from _read(item, depth - 1)
    elif isinstance(parsed, Mapping):
        lists = [parsed[key] for key in _LIST_KEYS if isinstance(parsed.get(key), list | tuple)]
        for listed in lists:
            yield from _read(listed, depth - 1)
        definition = None if lists else _definition(parsed)
        if definition is not None:
            yield definition


def _definition(value: Mapping[str, Any]) -> ToolDefinition | None:
    inner = next((value[key] for key in _DEFINITION_KEYS if isinstance(value.get(key), Mapping)), value)
    kind = value.get("type")
    name = inner.get("name") or (kind if kind != _FUNCTION else None)
    if not isinstance(name, str) or not name:
        return None
    description = inner.get("description")
    return ToolDefinition(
        name=name,
        description=description if isinstance(description, str) and description else None,
        parameters=_schema(next((inner[key] for key in _SCHEMA_KEYS if inner.get(key) is not None), None)),
    )


def _schema(value: Any) -> dict[str, Any] | None:
    parsed = from_wire(value) if isinstance(value, str) else value
    if not isinstance(parsed, Mapping):
        return None
    inner = next((parsed[key] for key in _INNER_SCHEMA_KEYS if isinstance(parsed.get(key), Mapping)), parsed)
    schema: dict[str, Any] = _in_lower_case(jsonable(inner))
    return schema


def _in_lower_case(schema: Any) -> Any:
    """Return a schema with its types in lower case, as in JSON Schema; Gemini's are in upper case (``OBJECT``)."""
    if isinstance(schema, list):
        return [_in_lower_case(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    types = {"type": kind.lower()} if isinstance(kind, str) and kind.isupper() else {}
    return {key: _in_lower_case(item) for key, item in schema.items()} | types
