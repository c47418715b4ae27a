"""The configuration's tree → a JSON Schema (draft 2020-12) that says what its reader takes, and what each key means."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from pydantic import BaseModel, PydanticSchemaGenerationError, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import models_json_schema

from spanscore.cli._docstrings import meaning_of, parameters_in, plain, summary_of
from spanscore.config.judging import ShadowSettings
from spanscore.config.messages import file_fields
from spanscore.config.sampling import HeadSampling
from spanscore.config.tree import Configuration
from spanscore.metrics.catalog.configured import PER, SESSION, SHADOW, UNIT
from spanscore.metrics.catalog.registry import ALIASES, RENAMED, built_ins, metric_doc_of

__all__ = ["METRIC_OF_ONES_OWN", "Schema", "schema", "schema_file", "sections"]

Schema = dict[str, Any]
METRIC_OF_ONES_OWN: Final = r"^[\w.]+:[\w.]+$"
"""``my_pkg.metrics:Politeness``."""
_NO_KEYS = frozenset({"self", "judge", "embeddings", "classifier"})
"""Parameters of a metric that the configuration fills in by other keys, or that are objects."""
_FROM_ENVIRONMENT: Schema = {"$ref": "#/$defs/FromEnvironment"}
_PLAIN = ("number", "integer", "boolean")


def schema() -> Schema:
    """Return the whole schema."""
    _, made = models_json_schema([(Configuration, "validation"), (ShadowSettings, "validation")])
    described = {section.__name__: section for section, _ in sections()}
    definitions = {name: _describe(made["$defs"][name], described[name]) for name in made["$defs"]}
    metrics = definitions["Configuration"]["properties"]["metrics"]
    metrics["items"] = _metrics()
    written = _with_environment(_without_titles(definitions))
    top = written.pop("Configuration")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "spanscore.yaml",
        **top,
        "$defs": {**written, "Per": _per(), "FromEnvironment": _environment()},
    }


def schema_file() -> str:
    """Return the text of ``spanscore.schema.json``."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def sections() -> Iterator[tuple[type[BaseModel], str]]:
    """Yield each section of the tree with its path, without positions and names of the user's: ``sampling.rules.when``."""
    yield from _sections(Configuration, "")
    yield from _sections(ShadowSettings, f"metrics.{SHADOW}")


def _sections(section: type[BaseModel], path: str) -> Iterator[tuple[type[BaseModel], str]]:
    yield section, path
    for name, field in section.model_fields.items():
        for inner in _models(field.annotation):
            yield from _sections(inner, f"{path}.{name}".lstrip("."))


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _describe(definition: Schema, section: type[BaseModel]) -> Schema:
    properties = {
        key: {**_with_file_default(value, section, key), "description": meaning_of(section, key)}
        for key, value in definition["properties"].items()
    }
    own = summary_of(section) if section.__doc__ else ""
    return {**definition, **({"description": own} if own else {}), "properties": properties}


def _with_file_default(schema: Schema, section: type[BaseModel], key: str) -> Schema:
    """Return a key with its default as a file would have it: without what only Python can give, and a share as the number."""
    if not isinstance(default := schema.get("default"), dict):
        return schema
    if set(default) == {*HeadSampling.model_fields}:
        return {**schema, "default": default["default"]}
    inner = next(_models(section.model_fields[key].annotation), None)
    allowed = default if inner is None else file_fields(inner)
    return {**schema, "default": {name: value for name, value in default.items() if name in allowed}}


# --- metrics ------------------------------------------------------------------------------------------------------


def _metrics() -> Schema:
    """Return what stands in ``metrics``: a name, or names with their parameters."""
    names = dict(sorted(built_ins().items()))
    names |= {alias: names[name] for alias, name in {**ALIASES, **RENAMED}.items()}
    with_parameters = {
        "type": "object",
        "minProperties": 1,
        "properties": {name: _parameters(kind) for name, kind in names.items()},
        "patternProperties": {METRIC_OF_ONES_OWN: {"type": ["object", "null"]}},
        "additionalProperties": False,
    }
    from_outside = {"type": "string", "pattern": METRIC_OF_ONES_OWN}
    return {"anyOf": [{"type": "string", "enum": [*names]}, from_outside, _FROM_ENVIRONMENT, with_parameters]}


def _parameters(kind: type) -> Schema:
    meanings, signature = parameters_in(kind), inspect.signature(kind, eval_str=True).parameters
    settable = {name: parameter for name, parameter in signature.items() if name not in _NO_KEYS}
    properties = {
        name: {**_type(parameter.annotation), "description": meanings.get(name, "")}
        for name, parameter in settable.items()
    }
    if "judge" in signature:
        second = [{"type": "string"}, {"$ref": "#/$defs/ShadowSettings"}]
        properties[SHADOW] = {"anyOf": second, "description": plain(summary_of(ShadowSettings))}
    properties[PER] = {"$ref": "#/$defs/Per"}
    required = [name for name, parameter in settable.items() if parameter.default is parameter.empty]
    described = {"description": plain(metric_doc_of(kind).question)}
    mapping = {"type": "object", "properties": properties, "additionalProperties": False, "required": required}
    return {**described, **mapping} if required else {**described, "anyOf": [{"type": "null"}, mapping]}


def _per() -> Schema:
    """Return what ``per`` of a metric may be."""
    meaning = "`unit`: the metric scores each unit; `session`: each whole conversation."
    return {"anyOf": [{"enum": [UNIT, SESSION]}, _FROM_ENVIRONMENT], "description": meaning}


def _type(hint: Any) -> Schema:
    """Return what a parameter may be; anything where that is an object of Python's."""
    try:
        return TypeAdapter(hint).json_schema()
    except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema):
        return {}


# --- what all values have in common -------------------------------------------------------------------------------


def _environment() -> Schema:
    meaning = "`${NAME}`: what the environment holds; shown in no message."
    return {"type": "string", "pattern": r"\$\{[A-Za-z_]\w*\}", "description": meaning}


def _with_environment(node: Any) -> Any:
    """Return a schema in which ``${NAME}`` may stand for every value that is no text itself, and no choice is in another."""
    if isinstance(node, list):
        return [_with_environment(item) for item in node]
    if not isinstance(node, dict):
        return node
    inner = {name: value if name in {"enum", "default"} else _with_environment(value) for name, value in node.items()}
    if "anyOf" in inner:
        return {**inner, "anyOf": _flat(inner["anyOf"])}
    if node.get("type") not in _PLAIN and "enum" not in node and "pattern" not in node:
        return inner
    beside = {name: inner.pop(name) for name in ("default", "description") if name in inner}
    return {"anyOf": [inner, _FROM_ENVIRONMENT], **beside}


def _flat(choices: list[Schema]) -> list[Schema]:
    spread = [form for choice in choices for form in (choice["anyOf"] if [*choice] == ["anyOf"] else [choice])]
    distinct = [form for position, form in enumerate(spread) if form not in spread[:position]]
    return sorted(distinct, key=_FROM_ENVIRONMENT.__eq__)


def _without_titles(node: Any) -> Any:
    """Return a schema without the titles that pydantic makes of names."""
    if isinstance(node, list):
        return [_without_titles(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    return {
        name: _without_titles(value) for name, value in node.items() if not (name == "title" and isinstance(value, str))
    }
