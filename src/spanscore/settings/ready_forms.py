"""A wrong setting → its right form with the value that was given, ready to paste."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Final, TypeAlias, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema

from spanscore.core.printable import printable
from spanscore.errors import ConfigurationError
from spanscore.settings.credentials import may_be_credential, without_credentials

__all__ = ["Place", "file_fields", "paths_in", "ready_form", "section_at", "yaml_of"]

Place: TypeAlias = tuple[int | str, ...]
"""Keys and positions, from the top of the tree down."""
_LONGEST: Final = 100
"""Characters of a form that is shown."""
_PLAIN: Final = re.compile(r"[A-Za-z_][\w./-]*|\d+(?:\.\d+)?(?:%|[A-DF-Za-df-z]+)")
"""A text that YAML reads as itself without quotes; words that it reads as something else aside."""
_NOT_TEXT: Final = {"true", "false", "yes", "no", "on", "off", "null"}
_MAPPING: Final = re.compile(r"\b(?:dict|Mapping)\[")
_FOR_PYTHON: Final = get_args(SkipJsonSchema[int])[1]
"""Note of a field that no JSON Schema has, as only Python can give it."""
_SOME_METRIC: Final = "faithfulness"


def ready_form(place: Place, value: Any, tree: type[BaseModel]) -> str:
    """Return how a value is written; empty where that is not known.

    A text under a key that is none is shown only where the key is known elsewhere: it may be a misspelt ``api_key``.

    Args:
        place: the setting that is wrong: a key that is none, or one with a value of another kind.
        value: the value that was given.
        tree: the settings.
    """
    found = _path_and_field(place, value, tree)
    if found is None or any(map(may_be_credential, found[0])):
        return ""
    path, field = found
    shown = without_credentials(value)
    forms = list(_fitted(path, field, shown, tree))
    if path == place and forms and isinstance(forms[0][1], list):  # it stands in its section already
        forms = [(place[-1:], forms[0][1])]
    form = " or ".join(_nested(target, fitted) for target, fitted in forms)
    return printable(form) if len(form) <= _LONGEST else ""


def section_at(tree: type[BaseModel], place: Place) -> type[BaseModel]:
    """Return the section at a place; positions in lists and keys of the user's own lead to the one below them."""
    for part in place:
        if part in tree.model_fields:
            tree = _model(tree.model_fields[str(part)].annotation) or tree
    return tree


def file_fields(section: type[BaseModel]) -> list[str]:
    """Return the keys of a section that a file may have: those that only Python can give are left out."""
    return [name for name, field in section.model_fields.items() if not _is_for_python(field)]


def _is_for_python(field: FieldInfo) -> bool:
    return any(type(note) is type(_FOR_PYTHON) for note in field.metadata)


def paths_in(tree: type[BaseModel], above: str = "") -> Iterator[str]:
    """Yield every key below a section, with the sections above it: ``sampling.rate``."""
    for name in file_fields(tree):
        yield f"{above}{name}"
        annotation = tree.model_fields[name].annotation
        inner = _model(annotation)
        if inner is not None and get_origin(annotation) not in (Mapping, Sequence):
            yield from paths_in(inner, f"{above}{name}.")


def _path_and_field(place: Place, value: Any, tree: type[BaseModel]) -> tuple[Place, FieldInfo | None] | None:
    """Return where the value belongs, and what may stand there; None as the field = anything."""
    name, above = str(place[-1]), place[:-1]
    section = section_at(tree, above)
    if name in section.model_fields:
        return place, section.model_fields[name]
    if path := _ends_with(name, section):
        return (*above, *path), _field(section, path)
    path = _known_elsewhere(name, tree) or _spelt_alike(name, value, section, tree)
    if path is not None:
        return path, _field(tree, path)
    if section is tree or get_close_matches(name, section.model_fields, n=1):
        return None
    free = _free_mapping(section, {name: value})
    return None if free is None else ((*above, *free, name), None)


def _spelt_alike(name: str, value: Any, section: type[BaseModel], tree: type[BaseModel]) -> tuple[str, ...] | None:
    """Return the path of what is spelt alike and does not take a number as it is: there more is wrong than a letter."""
    near = get_close_matches(name, [*section.model_fields, *_python_names(tree)])
    near.sort(key=lambda other: other[0] != name[0])
    if not near or not isinstance(value, bool | int | float):
        return None
    field = section.model_fields.get(near[0])
    return None if field is not None and _fits(field, value) else _known_elsewhere(near[0], tree)


def _known_elsewhere(name: str, tree: type[BaseModel]) -> tuple[str, ...] | None:
    """Return the path of a key that stands elsewhere in the file, or is an argument of ``OnlineScorer``."""
    if name in tree.model_fields:
        return (name,)
    known = _python_names(tree).get(name)
    return tuple(known.split(".")) if known else _ends_with(name, tree)


def _python_names(tree: type[BaseModel]) -> Mapping[str, str]:
    names: Mapping[str, str] = getattr(tree, "python_names", {})
    return names


def _ends_with(name: str, section: type[BaseModel]) -> tuple[str, ...] | None:
    return next((tuple(path.split(".")) for path in paths_in(section) if path.endswith(f".{name}")), None)


def _free_mapping(section: type[BaseModel], entry: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the path of a mapping in a section that takes an entry, with a key of the user's own; None where none does.

    A text is for ``metadata`` alone: under another key it may be a secret.
    """
    is_text = isinstance(next(iter(entry.values())), str)
    paths = [tuple(path.split(".")) for path in paths_in(section)]
    kinds = {path: str(_field(section, path).annotation) for path in paths if path[-1] == "metadata" or not is_text}
    mappings = [path for path, kind in kinds.items() if _MAPPING.search(kind)]
    takes_it = [path for path in mappings if _fits(_field(section, path), entry)]
    return min(takes_it, key=lambda path: "Any" in kinds[path], default=None)


def _field(section: type[BaseModel], path: Sequence[str]) -> FieldInfo:
    return section_at(section, tuple(path[:-1])).model_fields[path[-1]]


def _fitted(path: Place, field: FieldInfo | None, value: Any, tree: type[BaseModel]) -> Iterator[tuple[Place, Any]]:
    """Yield the place and the form of a value that may stand there; two where a key has a brother of one value."""
    if field is None or _fits(field, value):
        yield path, value
    elif _fits(field, [value]):
        yield path, [value]
    elif isinstance(value, Mapping):
        return
    elif (model := _model(field.annotation)) is not None and get_origin(field.annotation) not in (Mapping, Sequence):
        yield from ((path, inner) for inner in _in_section(model, value))
    else:
        section, one = section_at(tree, path[:-1]), str(path[-1]).removesuffix("s")
        if one in section.model_fields and _fits(section.model_fields[one], value):
            yield (*path[:-1], one), value
            yield path, {_SOME_METRIC: value}


def _in_section(section: type[BaseModel], value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a section with a value under its first key, or its first one of yes or no, or as a key of the user's own."""
    fields = section.model_fields
    names = [name for name, field in fields.items() if (field.annotation is bool) is isinstance(value, bool)]
    is_plain = not isinstance(value, str) or _PLAIN.fullmatch(value)
    if names and is_plain and _fits(fields[names[0]], value):
        yield {names[0]: value}
    elif isinstance(value, str) and (free := _free_mapping(section, {value: ""})):
        yield _within([*free, value], "…")


def _fits(field: FieldInfo, value: Any) -> bool:
    kind: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    try:
        TypeAdapter(kind).validate_python(value)
    except (ValueError, TypeError, ConfigurationError):
        return False
    return True


def _model(annotation: Any) -> type[BaseModel] | None:
    """Return the section that a value is, or is made of; None for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in get_args(annotation) if (found := _model(one))), None)


def yaml_of(section: Mapping[str, Any]) -> str:
    """Return keys with values as one line of YAML: ``sampling: {rate: 0.1}``."""
    return _yaml(section)[1:-1]


def _nested(path: Place, value: Any) -> str:
    """Return a value as YAML under its keys, from the innermost list on."""
    start = max((position + 1 for position, part in enumerate(path) if isinstance(part, int)), default=0)
    return yaml_of(_within(list(map(str, path[start:])), value))


def _within(path: Sequence[str], value: Any) -> Any:
    return {path[0]: _within(path[1:], value)} if path else value


def _yaml(value: Any) -> str:
    if isinstance(value, BaseModel):
        return _yaml(value.model_dump(exclude_unset=True))
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_yaml(key)}: {_yaml(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_yaml, value))}]"
    if isinstance(value, str) and (value == "…" or (_PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT)):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
