"""The JSON Schema → a row per key of a configuration file: where it stands, what may stand there, what it does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from spanscore.cli._schema import Schema
from spanscore.config.judging import OF_SCORER
from spanscore.config.kinds import DURATION, PERCENT, SIZE, duration
from spanscore.config.tree import SHORT_FORMS, ScorerSettings
from spanscore.metrics.catalog.configured import SHADOW

__all__ = ["Key", "keys_in"]

_PYTHON: Final = {
    "metrics": "OnlineScorer(metrics=…)",
    f"metrics[].<metric>.{SHADOW}": "JudgeSettings(shadows=…)",
    f"metrics[].<metric>.{SHADOW}.budget": "JudgeSettings(shadow_budget=…)",
    "embeddings": "embedder(…)",
    "judge": "judge({}=…)",
    "judge.fallback[]": "judge({}=…)",
    **{f"judge.{field}": f"JudgeSettings({field}=…)" for field in OF_SCORER},
    "judge.budget[]": "Budget({}=…)",
    f"metrics[].<metric>.{SHADOW}.budget[]": "Budget({}=…)",
    "judge.prices.<model>": "judge(prices=…)",
    "sampling.rules[]": "Rule({}=…)",
    "sampling.rules[].when": "RuleCondition({}=…)",
    "sampling.rules[].when.score": "ScoreBelow({}=…)",
    "sampling.feedback": "FeedbackSampling({}=…)",
    "sampling.head_sampling_rate": "HeadSampling({}=…)",
    "capture.extract": "Extract({}=…)",
    "serve_metrics": "scorer.serve_metrics(…)",
}
"""Key, or the section of it → what it is called in Python, where that is no option of ``OnlineScorer``."""
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
"""Sections as a user meets them; the others stand behind."""
_UNITS: Final = {"duration": "s", "list of durations": "s", "size": "bytes"}
_PATTERNS: Final = {f"^{DURATION}$": "duration", f"^{SIZE}$": "size", f"^{PERCENT}$": "share"}
_GUARD: Final = 10**9
"""A bound from here on keeps nonsense out, and is none that a user meets."""
_SIZES: Final = {"MB": 10**6, "kB": 10**3, "B": 1}
_NAMES: Final = {"alerts": "<metric>", "prices": "<model>"}
"""Mapping of sections → what its keys are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key.

    Attributes:
        path: from the top; ``[]`` is each entry of a list, ``<metric>`` a name.
        type: what may stand there, in words.
        unit: of a number; empty where it has none.
        allowed: bounds, or the words that there are; empty = all of the type.
        default: None = it must be given.
        meaning: what it does.
        python: what it is called in Python; empty where it is a file's alone.
        is_collection: whether it lists or names sections, whose keys follow.
    """

    path: str
    type: str
    unit: str
    allowed: str
    default: str | None
    meaning: str
    python: str
    is_collection: bool

    @property
    def section(self) -> str:
        """The part of the file in which it stands."""
        return self.path.partition(".")[0].removesuffix("[]")


def keys_in(schema: Schema) -> list[Key]:
    """Return the keys, section by section, each in the order of the tree."""
    shadow = f"metrics[].<metric>.{SHADOW}."
    keys = [*_of_section(schema, schema, ""), *_of_section(schema["$defs"]["ShadowSettings"], schema, shadow)]
    return sorted(keys, key=lambda key: [*_ORDER, key.section].index(key.section))


def _of_section(section: Schema, whole: Schema, above: str) -> Iterator[Key]:
    for name, value in section["properties"].items():
        path = f"{above}{name}"
        forms = _forms(value, whole)
        inner = [*_sections(forms, whole)] if path != "metrics" else []
        is_section = isinstance(value.get("default"), dict) or len(forms) == 1
        if [place for place, _ in inner] != [""] or not is_section:  # its keys follow, and say all
            yield _key(path, value, forms, required=name in section.get("required", ()))
        for place, form in inner:
            named = place.replace("*", _NAMES.get(name, ""))
            yield from _of_section(form, whole, f"{path}{named}.")


def _sections(forms: Sequence[Schema], whole: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the sections that a value is (``""``), lists (``[]``) or names (``.*``)."""
    for form in forms:
        for place, inner in (("", form), ("[]", form.get("items")), (".*", form.get("additionalProperties"))):
            listed = [form] if not place else _forms(inner, whole) if isinstance(inner, dict) else []
            yield from ((place, section) for section in listed if "properties" in section)


def _forms(value: Schema, whole: Schema) -> list[Schema]:
    """Return the alternatives that a value has, references resolved, but for what the environment holds."""
    forms = [form for form in _choices(value) if form.get("$ref") != "#/$defs/FromEnvironment"]
    return [whole["$defs"][form["$ref"].rpartition("/")[2]] if "$ref" in form else form for form in forms]


def _key(path: str, value: Schema, forms: Sequence[Schema], *, required: bool) -> Key:
    kind = _types(forms)
    return Key(
        path=path,
        type=kind,
        unit=_UNITS.get(kind, ""),
        allowed="; ".join(filter(None, (_format_allowed(form, kind) for form in forms))),
        default=None if required else _default(value, kind=kind),
        meaning=value["description"],
        python=_python(path),
        is_collection=_is_collection(forms),
    )


def _is_collection(forms: Sequence[Schema]) -> bool:
    inner = (form.get(place) for form in forms for place in ("items", "additionalProperties"))
    listed = (form for value in inner if isinstance(value, dict) for form in _choices(value))
    return any("$ref" in form for form in listed)


def _choices(value: Schema) -> list[Schema]:
    choices: list[Schema] = value.get("anyOf", [value])
    return choices


def _type(form: Schema) -> str:
    if "enum" in form:
        return "word"
    if form.get("type") == "array":
        inner = dict.fromkeys(_type(item) for item in _choices(form["items"]) if "$ref" not in item)
        items = "durations" if "duration" in inner else " or ".join(kind for kind in inner if kind != "word")
        return f"list of {items}" if items else "list"
    kind: str = form.get("type", "")
    return _PATTERNS.get(form.get("pattern", ""), _TYPES.get(kind, kind))


def _types(forms: Sequence[Schema]) -> str:
    """Return what may stand there, in words; a number of seconds or bytes is no form of its own."""
    kinds = dict.fromkeys(_type(form) for form in forms if form.get("type") != "null")
    units = [kind for kind in kinds if kind in _PATTERNS.values()]
    return " or ".join(units or kinds)


def _format_allowed(form: Schema, kind: str) -> str:
    if "enum" in form:
        return ", ".join(f"`{word}`" for word in form["enum"])
    low, above, high, below = (
        None if form.get(bound) is None or form[bound] >= _GUARD else _format_value(form[bound], kind)
        for bound in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
    )
    if high is not None or below is not None:
        opened = f"({above}" if low is None else f"[{low}"
        return f"{opened}, {below})" if high is None else f"{opened}, {high}]"
    return f"at least {low}" if low is not None else f"above {above}" if above is not None else ""


def _default(value: Schema, *, kind: str) -> str:
    default: Any = value.get("default", {} if value.get("type") == "object" else [])
    if isinstance(default, list):
        return f"[{', '.join(_format_value(item, kind) for item in default)}]"
    return _format_value(default, kind)


def _format_value(value: Any, kind: str) -> str:
    """Return a value as a person writes it in a file."""
    if "duration" in kind and value:
        return duration(value).replace(" ", "")
    if kind == "size" and value:
        return next(f"{value // size}{unit}" for unit, size in _SIZES.items() if value % size == 0)
    whole = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if whole else value, ensure_ascii=False)


def _python(path: str) -> str:
    """Return what a key is called in Python, by itself or by the section in which it stands."""
    section, _, name = path.rpartition(".")
    if short := next((argument for argument, key in SHORT_FORMS.items() if key == path), None):
        return f"OnlineScorer({short}=…)"
    if written := _PYTHON.get(path) or _PYTHON.get(section):
        return written.format(name)
    top = section or name
    if top not in ScorerSettings.model_fields:
        return ""
    kind = _section_class(top)
    return f"OnlineScorer({name}=…)" if not section else f"OnlineScorer({section}={kind}({name}=…))"


def _section_class(name: str) -> str:
    """Return the name of the class of a section."""
    annotation = ScorerSettings.model_fields[name].annotation
    return next((kind.__name__ for kind in (annotation, *get_args(annotation)) if hasattr(kind, "model_fields")), "")
