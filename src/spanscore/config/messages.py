"""Messages about wrong settings: the key, the value, the allowed form, and the new name of a renamed key.

The file has three parts: the new names of renamed keys, the correct YAML for a misplaced value (``ready_form``), and the
message for each error of pydantic (``describe_faults``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema

from spanscore.config.credentials import HOW_TO_GIVE, Place, may_be_credential, without_credentials
from spanscore.core.printable import did_you_mean, format_count, printable, shorten
from spanscore.errors import ConfigurationError, NotReadyError

# --- renamed keys ---------------------------------------------------------------------------------------------------

NEW_KEYS: Final[Mapping[str, str]] = {
    "alerts.*.series": "alerts.*.evaluator_version",
    "alerts.*.slack": "alerts.*.baseline_sd",
    "attach": "outputs",
    "canary": "judge_check",
    "canary.file": "judge_check.golden_set",
    "capture.response": "capture.extract.response",
    "capture.retrieved_contexts": "capture.extract.retrieved_contexts",
    "capture.steps": "capture.all_runs",
    "capture.user_input": "capture.extract.user_input",
    "dialects": "units.dialects",
    "elsewhere": "remote_scoring",
    "judge.attempts": "judge.max_attempts",
    "judge.max_wait": "judge.queue_timeout",
    "judge.share": "judge.replica_share",
    "kafka.max_pinned": "kafka.max_open_age",
    "labels": "feedback_scales",
    "limits.hooks": "limits.hook_timeout",
    "limits.inbox": "limits.event_queue_size",
    "limits.queue": "limits.queue_size",
    "monitoring.segments": "monitoring.dimensions",
    "queue": "limits.job_queue",
    "sampling.feedback.within": "sampling.feedback.max_age",
    "sampling.upstream_probability": "sampling.head_sampling_rate",
    "sessions.idle": "sessions.idle_timeout",
    "sinks": "outputs.sinks",
    "spans_to": "outputs.spans_to",
    "units.foreign_scores": "units.external_scores",
    "units.quiet": "units.idle_timeout",
}
"""Old key of a configuration file → present key; ``*`` is the name of any metric."""

NEW_OPTIONS: Final[Mapping[str, str]] = {
    "attach": "outputs",
    "canary": "judge_check",
    "capture_content": "capture.content",
    "capture_context": "capture.context",
    "capture_metadata": "capture.metadata",
    "capture_metrics": "capture.metrics",
    "elsewhere": "remote_scoring",
    "feedback_sampling": "sampling.feedback",
    "hooks_timeout": "limits.hook_timeout",
    "inbox_size": "limits.event_queue_size",
    "keep": "sample_filter",
    "labels": "feedback_scales",
    "queue": "limits.job_queue",
    "sampling_key": "sampling.key",
    "segments": "monitoring.dimensions",
    "session_metrics": "sessions.metrics",
    "share": "judge.replica_share",
    "steps": "capture.all_runs",
    "trace_judges": "judge.trace",
    "upstream_probability": "sampling.head_sampling_rate",
}
"""Argument of ``OnlineScorer`` in release 0.2 → its present name, or the field of a section that it is now.

An argument that became a field of the same name is not listed; it is found by a search of the sections."""


def renamed_key(place: Sequence[int | str]) -> str | None:
    """Return the present name of a renamed key; None if the key was not renamed."""
    parts = [str(part) for part in place if not isinstance(part, int)]
    for path in (parts, [*parts[:1], "*", *parts[2:]]):
        if new := NEW_KEYS.get(".".join(path)):
            return ".".join(part if part != "*" else parts[1] for part in new.split("."))
    return None


# --- correct forms --------------------------------------------------------------------------------------------------

_LONGEST_FORM: Final = 100
"""Longest form that a message shows, in characters."""
_PLAIN: Final = re.compile(r"[A-Za-z_][\w./-]*|(?!0x)\d+(?:\.\d+)?(?:%|[A-DF-Za-df-z]+)")
"""A text that YAML reads as a text without quotes, except the words in ``_NOT_TEXT``.

The unit after a number has no letter e, which begins an exponent, and the number does not begin a hexadecimal one (``0xF``).
"""
_NOT_TEXT: Final = {"true", "false", "yes", "no", "on", "off", "null"}
_MAPPING: Final = re.compile(r"\b(?:dict|Mapping)\[")
_FOR_PYTHON: Final = get_args(SkipJsonSchema[int])[1]
"""Pydantic's marker of a field that can be set in Python only, and is left out of the JSON Schema."""
_SOME_METRIC: Final = "faithfulness"


def ready_form(place: Place, value: Any, tree: type[BaseModel]) -> str:
    """Return the correct YAML for a value, such as ``sampling: {rate: 0.1}``; empty if no correct form is known.

    A text under an unknown key is shown only if the key exists elsewhere or the text fits into a mapping ``metadata``, because
    the key may be a misspelt ``api_key``.

    Args:
        place: the wrong setting: an unknown key, or a key with a value of the wrong type.
        value: the given value.
        tree: the settings.
    """
    found = _path_and_field(place, value, tree)
    if found is None or any(map(may_be_credential, found[0])):
        return ""
    path, field = found
    shown = without_credentials(value)
    forms = list(_fit_value(path, field, shown, tree))
    # If only the brackets of a list are missing, the key is in the right section: the keys above it are left out.
    if path == place and forms and isinstance(forms[0][1], list):
        forms = [(place[-1:], forms[0][1])]
    written = []
    for target, fitted in forms:  # written below its keys; keys above the innermost list are left out
        start = max((position + 1 for position, part in enumerate(target) if isinstance(part, int)), default=0)
        written.append(yaml_of(_within(list(map(str, target[start:])), fitted)))
    form = " or ".join(written)
    return printable(form) if len(form) <= _LONGEST_FORM else ""


def section_at(tree: type[BaseModel], place: Place) -> type[BaseModel]:
    """Return the section at a place. A position in a list, or a key of the user, leads to the section below it."""
    for part in place:
        if part in tree.model_fields:
            tree = _model(tree.model_fields[str(part)].annotation) or tree
    return tree


def file_fields(section: type[BaseModel]) -> list[str]:
    """Return the keys of a section that a file may have; keys for Python only are left out."""
    fields = section.model_fields.items()
    return [name for name, field in fields if not any(type(note) is type(_FOR_PYTHON) for note in field.metadata)]


def paths_in(tree: type[BaseModel], above: str = "") -> Iterator[str]:
    """Yield the path of every key below a section: ``sampling.rate``."""
    for name in file_fields(tree):
        yield f"{above}{name}"
        annotation = tree.model_fields[name].annotation
        inner = _model(annotation)
        if inner is not None and get_origin(annotation) not in (Mapping, Sequence):
            yield from paths_in(inner, f"{above}{name}.")


def _path_and_field(place: Place, value: Any, tree: type[BaseModel]) -> tuple[Place, FieldInfo | None] | None:
    """Return the right path of the value, and its field; None if no path is found.

    The field None means that the path accepts any value.
    """
    name, above = str(place[-1]), place[:-1]
    section = section_at(tree, above)
    if name in section.model_fields:
        return place, section.model_fields[name]
    if path := _ends_with(name, section):
        return (*above, *path), _field(section, path)
    path = _find_elsewhere(name, tree) or _spelt_alike(name, value, section, tree)
    if path is not None:
        return path, _field(tree, path)
    if section is tree or get_close_matches(name, section.model_fields, n=1):
        return None
    free = _free_mapping(section, {name: value})
    return None if free is None else ((*above, *free, name), None)


def _spelt_alike(name: str, value: Any, section: type[BaseModel], tree: type[BaseModel]) -> tuple[str, ...] | None:
    """Return the path of a similarly spelt key elsewhere; None if only the spelling is wrong, or if there is no such key.

    A path is returned only if the value is a number that the similar key of this section does not accept.
    """
    near = get_close_matches(name, [*section.model_fields, *getattr(tree, "python_names", ())])
    near.sort(key=lambda other: other[0] != name[0])
    if not near or not isinstance(value, bool | int | float):
        return None
    field = section.model_fields.get(near[0])
    return None if field is not None and _fits(field, value) else _find_elsewhere(near[0], tree)


def _find_elsewhere(name: str, tree: type[BaseModel]) -> tuple[str, ...] | None:
    """Return the path of a key that exists elsewhere in the file, or is an argument of ``OnlineScorer``."""
    if name in tree.model_fields:
        return (name,)
    name_in_python: str | None = getattr(tree, "python_names", {}).get(name)
    return tuple(name_in_python.split(".")) if name_in_python else _ends_with(name, tree)


def _ends_with(name: str, section: type[BaseModel]) -> tuple[str, ...] | None:
    return next((tuple(path.split(".")) for path in paths_in(section) if path.endswith(f".{name}")), None)


def _free_mapping(section: type[BaseModel], entry: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the path of a mapping in a section that accepts this entry under a key of the user; None if there is no such
    mapping.

    A text is accepted only for ``metadata``, because under another key it may be a secret.
    """
    is_text = isinstance(next(iter(entry.values())), str)
    paths = [tuple(path.split(".")) for path in paths_in(section)]
    kinds = {path: str(_field(section, path).annotation) for path in paths if path[-1] == "metadata" or not is_text}
    mappings = [path for path, kind in kinds.items() if _MAPPING.search(kind)]
    takes_it = [path for path in mappings if _fits(_field(section, path), entry)]
    return min(takes_it, key=lambda path: "Any" in kinds[path], default=None)


def _field(section: type[BaseModel], path: Sequence[str]) -> FieldInfo:
    return section_at(section, tuple(path[:-1])).model_fields[path[-1]]


def _fit_value(path: Place, field: FieldInfo | None, value: Any, tree: type[BaseModel]) -> Iterator[tuple[Place, Any]]:
    """Yield each place with a form of the value that it accepts.

    If a plural key (``rates``) does not accept a single value but its singular (``rate``) does, the singular is yielded, then
    the plural with an example metric.
    """
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
    """Yield a section with a boolean under its first boolean key, or any other value under its first other key.

    Otherwise a text becomes a key of the user, if the section has a mapping for such keys.
    """
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
    """Return the section type of a value or of its items; None for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for member in get_args(annotation) if (found := _model(member))), None)


def yaml_of(section: Mapping[str, Any]) -> str:
    """Return keys and values as one line of YAML: ``sampling: {rate: 0.1}``."""
    return _yaml(section)[1:-1]


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


# --- lines of a message ---------------------------------------------------------------------------------------------

# A line names the key, the given value and the allowed values. The value of an unknown key is shown only in the suggested form,
# because it may be a secret under a mistyped ``api_key``.

_LONGEST_VALUE = 100
"""Longest wrong value that a message shows, in characters."""
_METRICS = (
    "write a list of names, each alone or with its parameters: [response_relevancy, {faithfulness: {pass_at: 0.7}}]"
)
_RENAMED = {
    "min_duration_s": "slower_than",
    "equals": "metadata: {key: value}",
    "api_key": HOW_TO_GIVE.removeprefix("write "),
    "temperature": "model_kwargs: {temperature: 0}",
    "max_tokens": "model_kwargs: {max_tokens: 500}",
}
"""Unknown key that users write → the correct form. Keys that exist elsewhere in the tree need no entry."""
_METRIC = "write a name, alone or with its parameters: faithfulness, or faithfulness: {pass_at: 0.7}"
_EXAMPLES = {
    "alerts": "{faithfulness: {baseline: 0.9}}",
    "budget": "[{usd: 5, per: 1d}]",
    "per": "per: 1d",
    "rate": "rate: 1",
    "rules": "[{when: {status: error}, rate: 1}]",
    "dimensions": "{user_tier: [gold, free]}",
    "rules.when": "when: {status: error}",
    "when": 'when: ["faithfulness<0.5"]',
}
"""Key, alone or with the key around it → an example of its value."""


def wrong_settings(path: str | Path, errors: Sequence[str]) -> ConfigurationError:
    """Return one error that lists all wrong settings of a file."""
    headline = f"{path}: {format_count(len(errors), 'wrong setting')}"
    return ConfigurationError("\n".join([headline, *(f"  {error}" for error in errors)]))


def refuse_problems(path: str | Path, problems: Iterable[ConfigurationError]) -> None:
    """Raise one error for all problems of a file and of this environment; without a problem, return.

    Raises:
        NotReadyError: every setting is right, but the environment lacks a library, a key or a file.
        ConfigurationError: a setting is wrong. Below the wrong settings, the message lists the missing libraries, keys and
            files.
    """
    wrong, lacking = list[str](), list[str]()
    for problem in problems:
        (lacking if isinstance(problem, NotReadyError) else wrong).append(str(problem))
    if wrong:
        raise ConfigurationError("\n".join([str(wrong_settings(path, wrong)), *lacking]))
    if lacking:
        raise NotReadyError("\n".join(lacking))


def describe_faults(
    entries: Iterable[Any], tree: type[BaseModel], as_written: Callable[[str], str] = lambda text: text
) -> dict[Place, str]:
    """Return place → line of the message, for pydantic's errors.

    Args:
        entries: errors of a ``ValidationError``.
        tree: the settings that were validated.
        as_written: masks the secrets in a value before the value is shortened, so that no line has a part of a secret. The rest
            of a line may have whole secrets; the caller masks them.
    """
    lines: dict[Place, str] = {}
    for entry in entries:
        place, shown = place_of(entry), "not shown"
        if place in lines:
            continue
        if not any(map(may_be_credential, place)):
            shown = shorten(printable(as_written(repr(without_credentials(entry["input"])))), _LONGEST_VALUE)
        lines[place] = _line(entry, tree, f" (given: {shown})")
    return lines


def place_of(entry: Any) -> Place:
    """Return the place of an error, without the union member that pydantic appends for an entry of ``metrics``."""
    location: Place = entry["loc"]
    return location[:2] if location[:1] == ("metrics",) else location


def written_place(place: Place) -> str:
    """Return a place as messages name it: ``sampling.rules.0.when``."""
    return printable(".".join(map(str, place)))


def _line(entry: Any, tree: type[BaseModel], text: str) -> str:
    place, kind, value = place_of(entry), _kind(entry), entry["input"]
    if not place:  # values of a section contradict each other
        return _describe_value(entry)
    key = written_place(place)
    if place[0] == "metrics":  # pydantic lists the types that it could have
        return f"{key}: {_describe_value(entry) if kind == 'value_error' else _of_metrics(place, kind, value, text)}"
    if kind == "extra_forbidden":
        new = renamed_key(place)
        return f"{key}: {f'is now {new}' if new else f'no such setting{_suggest_key(place, value, tree)}'}"
    if kind in ("model_type", "model_attributes_type"):
        fields = file_fields(section_at(tree, place))
        ready = ready_form(place, value, tree) or f"{_last_name(place)}: {{{fields[0]}: …}}"
        return f"{key}: {_form_of(value)}{text}; write keys with values, such as {ready}. Keys are {', '.join(fields)}"
    ready = ready_form(place, value, tree) if kind in ("dict_type", "mapping_type", "list_type") else ""
    example = f"; write {ready}" if ready else _example(entry, place)
    return f"{key}: {_describe_value(entry)}{'' if kind == 'missing' else text}{example}"


def _of_metrics(place: Place, kind: str, value: Any, text: str) -> str:
    if kind == "missing":
        return f"is required; {_METRICS}"
    if len(place) == 1:
        return f"is no list{text}; {_METRICS}{_suggest_list(value)}" if value else f"is empty; {_METRICS}"
    if isinstance(value, Mapping) and len(value) > 1 and next(iter(value.values())) is None:
        name, parameter = [printable(str(one)) for one in value][:2]
        return f"{parameter} is on the level of {name}; indent it further: {name}: {{{parameter}: …}}"
    return f"names no metric{text}; {_METRIC}"


def _suggest_list(value: Any) -> str:
    """Return the hint that rewrites names without a list as a list; empty without names."""
    if isinstance(value, Mapping):
        entries = [{name: parameters} if parameters else name for name, parameters in value.items()]
    else:
        entries = [name for name in re.split(r"[\s,]+", value) if name] if isinstance(value, str) else []
    return f"; here: {yaml_of({'metrics': entries})}" if entries else ""


def _kind(entry: Any) -> str:
    """Return pydantic's type of an error. Pydantic's two types for a value that is not a sequence become one."""
    kind: str = entry["type"]
    return "list_type" if kind in ("sequence_str", "is_instance_of") else kind


def _describe_value(entry: Any) -> str:
    kind = _kind(entry)
    if kind not in _WORDS:
        return str(entry["msg"].removeprefix("Value error, "))
    bounds = entry.get("ctx", {}).items()
    return _WORDS[kind].format(**{name: f"{n:,.16g}" if isinstance(n, float | int) else n for name, n in bounds})


_WORDS: Final[Mapping[str, str]] = {
    "missing": "is required",
    "bool_parsing": "is neither true nor false",
    "bool_type": "is neither true nor false",
    "dict_type": "is no mapping",
    "mapping_type": "is no mapping",
    "finite_number": "is no finite number",
    "float_parsing": "is no number",
    "float_type": "is no number",
    "int_from_float": "is no whole number",
    "int_parsing": "is no whole number",
    "int_parsing_size": "is too large",
    "int_type": "is no whole number",
    "list_type": "is no list",
    "literal_error": "is not one of {expected}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be {le} or less",
    "string_type": "is no text",
    "string_too_short": "is empty",
    "too_short": "is empty",
}
"""Pydantic's type of an error → text of the message."""


def _example(entry: Any, place: Place) -> str:
    """Return an example for the message; empty if the message shows the form already."""
    kind, name = _kind(entry), _last_name(place)
    if kind in ("less_than", "less_than_equal") and next(iter(entry["ctx"].values())) == 1:
        return "; 5 per cent are 0.05, or 5%"
    if kind in ("string_type", "bool_parsing", "bool_type"):
        return "; write it in quotes" if kind == "string_type" else "; write true or false"
    if kind in ("dict_type", "mapping_type"):
        return f"; write keys with values: {name}: {_EXAMPLES.get(name, '{key: value}')}"
    if kind == "list_type" and name == place[-1]:
        return f"; write {name}: {_EXAMPLES.get(name, '[…, …]')}"
    if kind == "list_type":
        return f"; write {written_place(place[-1:])}: […, …]"
    return _example_of_missing(place) if kind == "missing" else ""


def _example_of_missing(place: Place) -> str:
    keys = [part for part in place if isinstance(part, str)]
    ready = _EXAMPLES.get(".".join(keys[-2:]), _EXAMPLES.get(_last_name(place)))
    return f"; write for example {ready}" if ready else ""


def _last_name(place: Place) -> str:
    """Return the innermost key; for a place in a list, the key of the list."""
    return next((part for part in reversed(place) if isinstance(part, str)), "")


def _form_of(value: Any) -> str:
    return "is empty" if value is None else "is a list" if isinstance(value, list) else "is a single value"


def _suggest_key(place: Place, value: Any, tree: type[BaseModel]) -> str:
    """Return the likely meaning of an unknown key: another name, a key of another section, or one of this section."""
    name = str(place[-1])
    if name in _RENAMED:
        return f"; write {_RENAMED[name]}"
    allowed, ready = file_fields(section_at(tree, place[:-1])), ready_form(place, value, tree)
    elsewhere = [path for path in paths_in(tree) if path.endswith(f".{name}")]
    meant = did_you_mean(name, allowed, likely=elsewhere)
    hint = " ".join(filter(None, [meant, f"write {ready}." if ready else ""]))
    return f"{f'; {hint}' if hint else '.'} Allowed here: {', '.join(allowed)}"
