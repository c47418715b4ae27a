"""The JSON Schema of a configuration (draft 2020-12), its table of keys, and the example file, all made from docstrings."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from textwrap import wrap
from typing import Any, Final, get_args

from pydantic import BaseModel, PydanticSchemaGenerationError, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from spanscore.cli._options import NO_KEYS
from spanscore.config.judging import ChatModelSettings, JurySettings, ShadowSettings
from spanscore.config.kinds import PERCENT, SIZE
from spanscore.config.messages import file_fields
from spanscore.config.outputs import SINK_SETTINGS
from spanscore.config.sampling import HeadSampling
from spanscore.config.tree import Configuration
from spanscore.core.printable import DURATION, format_duration
from spanscore.judges import judge
from spanscore.metrics.catalog.configured import JUDGES, PER, SESSION, SHADOW, UNIT
from spanscore.metrics.catalog.registry import ALIASES, RENAMED, built_ins, metric_doc_of

# --- docstrings -----------------------------------------------------------------------------------------------------

_DESCRIBED_BY: Mapping[type[BaseModel], Any] = {ChatModelSettings: judge}
"""Section → the function that has the keys as parameters and describes them in its docstring."""
_SECTION = re.compile(r"^(?:Args|Attributes):\n((?:[ ]{4}.*\n|\n)+)", re.MULTILINE)
_PARAMETER = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def parameters_in(documented: Any) -> dict[str, str]:
    """Return parameter or attribute → its description in the docstring, in Markdown."""
    text = inspect.cleandoc(documented.__doc__ or "") + "\n"
    sections = (match[1] for match in _SECTION.finditer(text))
    return {name: plain(meaning) for section in sections for name, meaning in _PARAMETER.findall(section)}


def summary_of(documented: Any) -> str:
    """Return the text of a docstring above its first heading, in Markdown, one line per paragraph."""
    text = re.split(r"^\w+:\n", inspect.cleandoc(documented.__doc__ or ""), maxsplit=1, flags=re.MULTILINE)[0]
    return "\n\n".join(plain(paragraph) for paragraph in text.strip().split("\n\n"))


def plain(text: str) -> str:
    """Return a docstring's text on one line, in Markdown."""
    return " ".join(text.split()).replace("``", "`")


def meaning_of(section: type[BaseModel], key: str) -> str:
    """Return the description of a section's key, from the section's docstring, or else from that of the key's own section."""
    classes = [base for base in section.__mro__ if issubclass(base, BaseModel)]
    documented = [*classes, *(_DESCRIBED_BY[base] for base in classes if base in _DESCRIBED_BY)]
    meaning = next((meanings[key] for meanings in map(parameters_in, documented) if key in meanings), "")
    annotation = section.model_fields[key].annotation
    held = next((kind for kind in (annotation, *get_args(annotation)) if hasattr(kind, "model_fields")), None)
    if not meaning and held is not None:
        meaning = summary_of(held).partition("\n\n")[0]
    meaning = re.sub(r"\b(?:True|False)\b", lambda word: f"`{word[0].lower()}`", meaning[:1].upper() + meaning[1:])
    return re.sub(r"\bNone\b", "`null`", meaning)


# --- schema ---------------------------------------------------------------------------------------------------------

Schema = dict[str, Any]
CUSTOM_METRIC: Final = r"^[\w.]+:[\w.]+$"
"""Pattern of a metric outside the package: ``my_pkg.metrics:Politeness``."""
_FROM_ENVIRONMENT: Schema = {"$ref": "#/$defs/FromEnvironment"}
_PLAIN = ("number", "integer", "boolean")


class _Untitled(GenerateJsonSchema):
    """pydantic's generator, without titles, which it would derive from names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False, because each key has a description instead."""
        return False


def schema() -> Schema:
    """Return the whole schema."""
    models = [(model, "validation") for model in (Configuration, ShadowSettings, JurySettings, *SINK_SETTINGS.values())]
    _, made = models_json_schema(models, schema_generator=_Untitled)  # type: ignore[arg-type]  # its literals are str here
    described = {section.__name__: section for section, _ in sections()}
    definitions = {name: _describe(made["$defs"][name], described[name]) for name in made["$defs"]}
    definitions["Configuration"]["properties"]["metrics"]["items"] = _metrics()
    definitions["Outputs"]["properties"]["sinks"]["items"]["anyOf"][1]["properties"] = _sinks()
    written = _with_environment(definitions)
    top = written.pop("Configuration")
    per = {
        "anyOf": [{"enum": [UNIT, SESSION]}, _FROM_ENVIRONMENT],
        "description": "`unit`: the metric scores each unit; `session`: each whole conversation.",
    }
    environment = {
        "type": "string",
        "pattern": r"\$\{[A-Za-z_]\w*\}",
        "description": "`${NAME}` is replaced by the environment variable NAME; its value is shown in no message.",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "spanscore.yaml",
        **top,
        "$defs": {**written, "Per": per, "FromEnvironment": environment},
    }


def schema_file() -> str:
    """Return the text of ``spanscore.schema.json``."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def sections() -> Iterator[tuple[type[BaseModel], str]]:
    """Yield each section with its path, without list positions and the user's names: ``sampling.rules.when``."""
    yield from _sections(Configuration, "")
    yield from _sections(ShadowSettings, f"metrics.{SHADOW}")
    yield from _sections(JurySettings, "metrics")
    for name, settings in SINK_SETTINGS.items():
        yield from _sections(settings, f"outputs.sinks.{name}")


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
    described = {**definition, **({"description": own} if own else {}), "properties": properties}
    return {name: value for name, value in described.items() if name != "title"}


def _with_file_default(schema: Schema, section: type[BaseModel], key: str) -> Schema:
    """Return a key with its default in a file: without fields that only Python has, and with a share as a number."""
    if not isinstance(default := schema.get("default"), dict):
        return schema
    if set(default) == {*HeadSampling.model_fields}:
        return {**schema, "default": default["default"]}
    inner = next(_models(section.model_fields[key].annotation), None)
    allowed = default if inner is None else file_fields(inner)
    return {**schema, "default": {name: value for name, value in default.items() if name in allowed}}


def _metrics() -> Schema:
    """Return the schema of an entry of ``metrics``: a name, or names with their parameters."""
    names = dict(sorted(built_ins().items()))
    names |= {alias: names[name] for alias, name in {**ALIASES, **RENAMED}.items()}
    with_parameters = {
        "type": "object",
        "minProperties": 1,
        "properties": {name: _parameters(kind) for name, kind in names.items()},
        "patternProperties": {CUSTOM_METRIC: {"type": ["object", "null"]}},
        "additionalProperties": False,
    }
    from_outside = {"type": "string", "pattern": CUSTOM_METRIC}
    return {"anyOf": [{"type": "string", "enum": [*names]}, from_outside, _FROM_ENVIRONMENT, with_parameters]}


def _sinks() -> Schema:
    """Return name → schema of the parameters, for the built-in sinks; a sink without required parameters needs none."""
    properties = {}
    for name, settings in SINK_SETTINGS.items():
        form = {"$ref": f"#/$defs/{settings.__name__}"}
        needs_none = not any(field.is_required() for field in settings.model_fields.values())
        forms = [form, {"type": "null"}] if needs_none else [form]
        default: Schema = {"default": {}} if needs_none else {}
        properties[name] = {"anyOf": forms, "description": summary_of(settings), **default}
    return properties


def _parameters(kind: type) -> Schema:
    meanings, signature = parameters_in(kind), inspect.signature(kind, eval_str=True).parameters
    settable = {name: parameter for name, parameter in signature.items() if name not in NO_KEYS}
    properties = {
        name: {**_type(parameter.annotation), "description": meanings.get(name, "")}
        for name, parameter in settable.items()
    }
    if "judge" in signature:
        second = [{"type": "string"}, {"$ref": "#/$defs/ShadowSettings"}, {"type": "null"}]
        properties[SHADOW] = {"anyOf": second, "description": plain(summary_of(ShadowSettings))}
        jury = JurySettings.model_fields
        properties |= {key: {"$ref": f"#/$defs/JurySettings/properties/{key}"} for key in jury}
    properties[PER] = {"$ref": "#/$defs/Per"}
    required = [name for name, parameter in settable.items() if parameter.default is parameter.empty]
    described = {"description": plain(metric_doc_of(kind).question)}
    mapping = {"type": "object", "properties": properties, "additionalProperties": False, "required": required}
    return {**described, **mapping} if required else {**described, "anyOf": [{"type": "null"}, mapping]}


def _type(hint: Any) -> Schema:
    """Return the schema of a parameter; empty for Python objects."""
    try:
        return TypeAdapter(hint).json_schema(schema_generator=_Untitled)
    except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema):
        return {}


def _with_environment(node: Any) -> Any:
    """Return a schema that also accepts ``${NAME}`` for each value other than a text; nested choices are flattened."""
    if isinstance(node, list):
        return [_with_environment(item) for item in node]
    if not isinstance(node, dict):
        return node
    inner = {name: _keyword_with_environment(name, value) for name, value in node.items()}
    if "anyOf" in inner:
        return {**inner, "anyOf": _flatten(inner["anyOf"])}
    if node.get("type") not in _PLAIN and "enum" not in node and "pattern" not in node:
        return inner
    beside = {name: inner.pop(name) for name in ("default", "description") if name in inner}
    return {"anyOf": [inner, _FROM_ENVIRONMENT], **beside}


def _keyword_with_environment(keyword: str, value: Any) -> Any:
    if keyword == "properties":  # names of properties may be keywords of a schema, such as ``pattern``
        return {name: _with_environment(schema) for name, schema in value.items()}
    return value if keyword in {"enum", "default"} else _with_environment(value)


def _flatten(choices: list[Schema]) -> list[Schema]:
    """Return the choices and their nested choices, each once, ``${NAME}`` last."""
    all_forms = [form for choice in choices for form in (choice["anyOf"] if [*choice] == ["anyOf"] else [choice])]
    distinct = [form for position, form in enumerate(all_forms) if form not in all_forms[:position]]
    return sorted(distinct, key=lambda form: form == _FROM_ENVIRONMENT)


# --- schema keys ----------------------------------------------------------------------------------------------------

_TYPES: Final = {
    "integer": "whole number",
    "boolean": "true or false",
    "string": "text",
    "object": "mapping",
    "array": "list",
}
_ORDER: Final = (
    "metrics",
    "judge",
    "embeddings",
    "sampling",
    "outputs",
    "capture",
    "serve_metrics",
    "alerts",
    "monitoring",
    "limits",
)
"""Sections in the order of the pages; the others follow."""
_PATTERNS: Final = {f"^{DURATION}$": "duration", f"^{SIZE}$": "size", f"^{PERCENT}$": "share"}
_HIGHEST_BOUND: Final = 10**9
"""Bounds from this value on only refuse nonsense, and are not shown."""
_SIZES: Final = {"MB": 10**6, "kB": 10**3, "B": 1}
_PLACEHOLDERS: Final = {"alerts": "<metric>", "prices": "<model>"}
"""Mapping of sections → placeholder for its keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a configuration.

    Attributes:
        path: dotted path from the top; ``[]`` is each entry of a list, ``<metric>`` a name.
        type: type in words.
        allowed: bounds or allowed words; empty = each value of the type.
        default: None = the key is required.
        meaning: description, a sentence or more.
    """

    path: str
    type: str
    allowed: str
    default: str | None
    meaning: str

    @property
    def section(self) -> str:
        """The top-level section of the key."""
        return self.path.partition(".")[0].removesuffix("[]")


def keys_in(schema: Schema) -> list[Key]:
    """Return the keys, section by section, in the order of the schema."""
    shadow = f"metrics[].<metric>.{SHADOW}."
    keys = [*_keys_of_section(schema, schema, ""), *_keys_of_section(schema["$defs"]["ShadowSettings"], schema, shadow)]
    jury = _keys_of_section(schema["$defs"]["JurySettings"], schema, "metrics[].<metric>.")
    # The keys of a juror are those of ``judge``, which are not repeated.
    keys += [key for key in jury if key.path.rpartition(".")[2] in JurySettings.model_fields]
    return sorted(keys, key=lambda key: [*_ORDER, key.section].index(key.section))


def _keys_of_section(section: Schema, whole: Schema, above: str) -> Iterator[Key]:
    """Yield the keys of a section, each followed by the keys of its own sections. A key that is only a section is left out."""
    for name, value in section["properties"].items():
        path = f"{above}{name}"
        forms = _forms(value, whole)
        inner = [*_inner_sections(forms, whole)] if path != "metrics" else []
        is_section = [place for place, _ in inner] == [""]
        if not is_section or (len(forms) > 1 and not isinstance(value.get("default"), dict)):
            yield _key(path, value, forms, required=name in section.get("required", ()))
        for place, form in inner:
            named = place.replace("*", _PLACEHOLDERS.get(name, ""))
            yield from _keys_of_section(form, whole, f"{path}{named}.")


def _inner_sections(forms: Sequence[Schema], whole: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the sections that a value is (``""``), contains as a list (``[]``) or maps names to (``.*``)."""
    for form in forms:
        for place, inner in (("", form), ("[]", form.get("items")), (".*", form.get("additionalProperties"))):
            listed = [form] if not place else _forms(inner, whole) if isinstance(inner, dict) else []
            yield from ((place, section) for section in listed if "properties" in section)


def _forms(value: Schema, whole: Schema) -> list[Schema]:
    """Return the alternatives of a value, with references resolved, without ``${NAME}``."""
    forms = [form for form in _choices(value) if form.get("$ref") != "#/$defs/FromEnvironment"]
    return [whole["$defs"][form["$ref"].rpartition("/")[2]] if "$ref" in form else form for form in forms]


def _key(path: str, value: Schema, forms: Sequence[Schema], *, required: bool) -> Key:
    names = dict.fromkeys(_type_name(form) for form in forms if form.get("type") != "null")
    # Plain numbers are left out if a duration or size is also accepted.
    kind = " or ".join([name for name in names if name in _PATTERNS.values()] or names)
    default = value.get("default", {} if value.get("type") == "object" else [])
    items = ", ".join(_format_value(item, kind) for item in default) if isinstance(default, list) else ""
    shown = f"[{items}]" if isinstance(default, list) else _format_value(default, kind)
    return Key(
        path=path,
        type=kind,
        allowed="; ".join(filter(None, (_format_allowed(form, kind) for form in forms))),
        default=None if required else shown,
        meaning=value["description"],
    )


def _choices(value: Schema) -> list[Schema]:
    choices: list[Schema] = value.get("anyOf", [value])
    return choices


def _type_name(form: Schema) -> str:
    if "enum" in form:
        return "word"
    if form.get("type") == "array":
        items = [item for item in _choices(form["items"]) if item != _FROM_ENVIRONMENT]
        inner = dict.fromkeys("mapping" if "$ref" in item else _type_name(item) for item in items)
        kinds = "durations" if "duration" in inner else " or ".join(kind for kind in inner if kind != "word")
        return f"list of {kinds}" if kinds not in ("", "mapping") else "list"
    kind: str = form.get("type", "")
    return _PATTERNS.get(form.get("pattern", ""), _TYPES.get(kind, kind))


def _format_allowed(form: Schema, kind: str) -> str:
    if "enum" in form:
        return ", ".join(f"`{word}`" for word in form["enum"])
    low, above, high, below = (
        None if form.get(bound) is None or form[bound] >= _HIGHEST_BOUND else _format_value(form[bound], kind)
        for bound in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
    )
    if high is not None or below is not None:
        opened = f"({above}" if low is None else f"[{low}"
        return f"{opened}, {below})" if high is None else f"{opened}, {high}]"
    return f"at least {low}" if low is not None else f"above {above}" if above is not None else ""


def _format_value(value: Any, kind: str) -> str:
    if "duration" in kind and value:
        return format_duration(value).replace(" ", "")
    if kind == "size" and value:
        return next(f"{value // size}{unit}" for unit, size in _SIZES.items() if value % size == 0)
    whole = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if whole else value, ensure_ascii=False)


# --- example --------------------------------------------------------------------------------------------------------

_HEADER: Final = """\
# yaml-language-server: $schema=spanscore.schema.json
# For an editor that reads the line above: spanscore check --schema > spanscore.schema.json
#
# Every key of a configuration, with its default: this file does the same as its metrics alone.
# Lines that begin with # in the first column are an example of an entry: remove the #, and the [], {} or null above them.
# null is the value of a key that is left out. Durations: 500ms, 30s, 5m, 1h, 7d or seconds; sizes: 64MB, 500kB or bytes.
# ${NAME} in a text is replaced by that environment variable; SPANSCORE_SAMPLING__RATE=0.2 there sets sampling.rate.
"""
_EXAMPLE_VALUES: Final[Mapping[str, str]] = {
    "metrics": "\n  - faithfulness\n  - string_presence",
    "metrics[].<metric>.shadow.model": '"openai:gpt-5-mini"',
    "metrics[].<metric>.shadow.budget[].calls": "1000",
    "metrics[].<metric>.shadow.budget[].per": "1d",
    f"metrics[].<metric>.{JUDGES}": '["openai:gpt-5-mini", "anthropic:claude-haiku-4-5"]',
    "metrics[].<metric>.then": '"openai:gpt-5"',
    "judge.fallback[].model": '"openai:gpt-4o-mini"',
    "judge.prices.<model>.input": "0.15",
    "judge.prices.<model>.output": "0.60",
    "judge.budget[].calls": "10000",
    "judge.budget[].per": "1h",
    "units.also[].kind": "retriever",
    "sampling.rules[].rate": "0.5",
    "sampling.rules[].when.score.metric": "string_presence",
    "sampling.rules[].when.score.below": "0.5",
    "sampling.feedback.rate": "0.5",
    "alerts.<metric>.baseline": "0.85",
    "judge_check.golden_set": '"labelled.jsonl"',
    "compare.by": "service.version",
    "remote_scoring.endpoint": '"https://scorer:4318"',
    "remote_scoring.token_file": '"/run/secrets/spanscore"',
    "outputs.sinks[].webhook.url": '"https://hooks.example/spanscore"',
    "outputs.sinks[].webhook.when": '["faithfulness<0.5"]',
    "collect.when": '["faithfulness<0.5"]',
    "collect.out": '"cases.jsonl"',
    "spool.path": '"/var/lib/spanscore/spool.db"',
    "serve.forward.endpoint": '"http://127.0.0.1:14318"',
    "serve.tls.cert": '"server.pem"',
    "serve.tls.key": '"server.key"',
    "kafka.brokers": '["127.0.0.1:9092"]',
}
"""Key → its value in the example, for keys without a default or with a default that shows nothing."""
_EXAMPLE_NAMES: Final = {
    ("<metric>", "metrics"): "response_relevancy",
    ("<metric>", "alerts"): "faithfulness",
    ("<model>", "judge"): "gpt-4o-mini",
}
_LEFT_OUT: Final = (
    "alerts.<metric>.baseline.",
    "remote_scoring.kafka.",
    "sampling.head_sampling_rate.",
    "units.also[].alerts.",
)
"""Keys of sections that replace or repeat other sections, as their descriptions state."""
_WIDTH: Final = 110


def example_file() -> str:
    """Return a configuration file with each key, its description and its default.

    The file does the same as its metrics alone: collections are empty, and a commented entry follows each.
    """
    whole = schema()
    keys = _keys_of_example(keys_in(whole))
    rows = [key.path for key in keys]
    lines, above, section = list[str](), list[str](), ""
    for key in keys:
        parents = key.path.split(".")[:-1]
        if key.section != section:
            lines.append("")
        common = next((depth for depth, name in enumerate(parents) if above[depth : depth + 1] != [name]), len(parents))
        for depth in range(common, len(parents)):
            lines += _section_lines(parents[: depth + 1], rows, whole)
        lines += _key_lines(key, holds_more=any(row.startswith((f"{key.path}.", f"{key.path}[]")) for row in rows))
        above, section = parents, key.section
    return _HEADER + "\n".join(lines) + "\n"


def _keys_of_example(keys: Sequence[Key]) -> list[Key]:
    """Return the keys, without those of ``_LEFT_OUT`` and without a judge's keys that another section repeats."""
    judge = {key.path.removeprefix("judge.") for key in keys if key.section == "judge"} - {"model", "budget"}
    chosen = []
    for key in keys:
        section, _, name = key.path.rpartition(".")
        repeats = section.endswith((".shadow", ".fallback[]")) and name in judge
        if not repeats and not key.path.startswith(_LEFT_OUT):
            chosen.append(key)
    return chosen


def _section_lines(place: Sequence[str], rows: Sequence[str], whole: Schema) -> Iterator[str]:
    """Yield the line that opens a section: the name, or the dash of a list entry. Empty if a row has opened the section."""
    name, indent = place[-1], _indent(place[:-1])
    if name.endswith("[]"):
        yield _comment_out(f"{indent}  -", place)
    elif name.startswith("<"):
        yield _comment_out(f"{indent}{_EXAMPLE_NAMES[name, place[0].removesuffix('[]')]}:", place)
    elif ".".join(place) not in rows:
        meaning = whole["properties"][name]["description"] if len(place) == 1 else ""
        yield from (_comment_out(f"{indent}# {line}", place) for line in wrap(meaning, _WIDTH))
        yield _comment_out(f"{indent}{name}:", place)


def _key_lines(key: Key, *, holds_more: bool) -> Iterator[str]:
    """Yield the description of a key, then the key with its default; the default is left out if the key's own keys follow."""
    place = key.path.split(".")
    indent = _indent(place[:-1])
    allowed = f" Allowed: {key.allowed.replace('`', '')}." if key.allowed else ""
    for line in wrap(f"{key.meaning.replace('`', '')}{allowed}", _WIDTH - len(indent)):
        yield _comment_out(f"{indent}# {line}", place[:-1])
    value = "" if holds_more and _is_example(place[:-1]) else _EXAMPLE_VALUES.get(key.path, key.default or "")
    yield _comment_out(
        f"{indent}{place[-1]}: {value}".rstrip() if not value.startswith("\n") else f"{place[-1]}:{value}", place[:-1]
    )


def _indent(parents: Sequence[str]) -> str:
    return " " * (2 * len(parents) + 2 * sum(name.endswith("[]") for name in parents))


def _comment_out(line: str, place: Sequence[str]) -> str:
    return f"#{line}" if _is_example(place) else line


def _is_example(place: Sequence[str]) -> bool:
    within = {".".join(place[:depth]) for depth in range(1, len(place) + 1)}
    return not within.isdisjoint(_optional_sections()) or any(name.endswith(("[]", ">")) for name in place)


@cache
def _optional_sections() -> frozenset[str]:
    """Return the paths of sections that are left out by default."""
    fields = ((path, section.model_fields.items()) for section, path in sections())
    return frozenset(
        f"{path}.{name}".lstrip(".")
        for path, named in fields
        for name, field in named
        if field.default is None and [*_models(field.annotation)]
    )
