"""What pydantic says of a wrong setting → a line a person can act on.

A line names the key, what was given and what is allowed. What was given under a key that is none is not shown: nobody knows
what it is, and whoever mistypes ``api_key`` has typed the key behind it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from spanscore.core.printable import did_you_mean, printable
from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.settings.credentials import HOW_TO_GIVE, may_be_credential, without_credentials
from spanscore.settings.ready_forms import Place, file_fields, paths_in, ready_form, section_at, yaml_of
from spanscore.settings.renamed import renamed_key

__all__ = ["Place", "place_of", "refuse_problems", "told", "written_place", "wrong_settings"]

_LONGEST = 100
"""Characters of a wrong value that are shown."""
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
"""Keys that were or could be → how it is written; what merely stands elsewhere in the tree is found there."""
_METRIC = "write a name, alone or with its parameters: faithfulness, or faithfulness: {pass_at: 0.7}"
_EXAMPLES = {
    "alerts": "{faithfulness: {baseline: 0.9}}",
    "budget": "[{usd: 5, per: 1d}]",
    "per": "per: 1d",
    "rate": "rate: 1",
    "rules": "[{when: {status: error}, rate: 1}]",
    "dimensions": "{user_tier: [gold, free]}",
    "when": "when: {status: error}",
}
"""Key → how it is written."""


def wrong_settings(path: str | Path, errors: Sequence[str]) -> ConfigurationError:
    """Return the error that tells all that is wrong in a file."""
    count = f"{len(errors)} wrong setting{'s' if len(errors) > 1 else ''}"
    return ConfigurationError("\n".join([f"{path}: {count}", *(f"  {error}" for error in errors)]))


def refuse_problems(path: str | Path, problems: Iterable[ConfigurationError]) -> None:
    """Raise what is wrong in a file, and what this environment lacks for it; without a problem do nothing.

    Raises:
        NotReadyError: nothing is wrong; this environment lacks a library, a key or a file.
        ConfigurationError: a setting is wrong; below the wrong settings the message names what is lacking.
    """
    wrong, lacking = list[str](), list[str]()
    for problem in problems:
        (lacking if isinstance(problem, NotReadyError) else wrong).append(str(problem))
    if wrong:
        raise ConfigurationError("\n".join([str(wrong_settings(path, wrong)), *lacking]))
    if lacking:
        raise NotReadyError("\n".join(lacking))


def told(
    entries: Iterable[Any], tree: type[BaseModel], as_written: Callable[[str], str] = lambda text: text
) -> dict[Place, str]:
    """Return place → line for pydantic's entries.

    Args:
        entries: of a ``ValidationError``.
        tree: what it read.
        as_written: makes of a value what may be shown; the lines may still quote it, but not cut.
    """
    lines: dict[Place, str] = {}
    for entry in entries:
        place = place_of(entry)
        if place not in lines:
            lines[place] = _line(entry, tree, f" (given: {_shown(entry, as_written)})")
    return lines


def place_of(entry: Any) -> Place:
    """Return where it is, without what pydantic adds: which of the types that a metric's entry could have it tried."""
    location: Place = entry["loc"]
    return location[:2] if location[:1] == ("metrics",) else location


def written_place(place: Place) -> str:
    """Return a place as messages name it: ``sampling.rules.0.when``."""
    return printable(".".join(map(str, place)))


def _line(entry: Any, tree: type[BaseModel], given: str) -> str:
    place, kind = place_of(entry), _kind(entry)
    if not place:  # what does not fit together in a whole section
        return _wrong(entry)
    key = written_place(place)
    if place[0] == "metrics":  # pydantic says of it which types it could have
        return f"{key}: {_wrong(entry) if kind == 'value_error' else _of_metrics(place, kind, entry['input'], given)}"
    if kind == "extra_forbidden":
        return f"{key}: {_unknown(place, entry['input'], tree)}"
    if kind in ("model_type", "model_attributes_type"):
        fields = file_fields(section_at(tree, place))
        ready = ready_form(place, entry["input"], tree) if place else ""
        such = f"such as {ready or f'{_last_name(place)}: {{{fields[0]}: …}}'}" if place else ""
        return f"{key}: {_kind_of(entry['input'])}{given}; write keys with values, {such}. Keys are {', '.join(fields)}"
    ready = ready_form(place, entry["input"], tree) if kind in ("dict_type", "mapping_type", "list_type") else ""
    example = f"; write {ready}" if ready else _example(entry, place)
    return f"{key}: {_wrong(entry)}{'' if kind == 'missing' else given}{example}"


def _unknown(place: Place, value: Any, tree: type[BaseModel]) -> str:
    if new := renamed_key(place):
        return f"is now {new}"
    allowed = file_fields(section_at(tree, place[:-1]))
    return f"no such setting{_meant(str(place[-1]), tree, allowed, ready_form(place, value, tree))}"


def _of_metrics(place: Place, kind: str, value: Any, given: str) -> str:
    if kind == "missing":
        return f"is required; {_METRICS}"
    if len(place) == 1:
        return f"is no list{given}; {_METRICS}{_listed(value)}" if value else f"is empty; {_METRICS}"
    if isinstance(value, Mapping) and len(value) > 1 and next(iter(value.values())) is None:
        name, parameter = [printable(str(one)) for one in value][:2]
        return f"{parameter} stands beside {name}; indent it further: {name}: {{{parameter}: …}}"
    return f"names no metric{given}; {_METRIC}"


def _listed(value: Any) -> str:
    """Return names that were written without a list as one."""
    if isinstance(value, Mapping):
        entries = [{name: given} if given else name for name, given in value.items()]
    else:
        entries = [name for name in re.split(r"[\s,]+", value) if name] if isinstance(value, str) else []
    return f"; here: {yaml_of({'metrics': entries})}" if entries else ""


def _kind(entry: Any) -> str:
    """Return pydantic's type of an error; of a value that is no sequence, it has two."""
    kind: str = entry["type"]
    return "list_type" if kind in ("sequence_str", "is_instance_of") else kind


def _wrong(entry: Any) -> str:
    kind = _kind(entry)
    if kind not in _WORDS:
        return str(entry["msg"].removeprefix("Value error, "))
    return _WORDS[kind].format(**{name: _bound(bound) for name, bound in entry.get("ctx", {}).items()})


def _bound(bound: Any) -> Any:
    return f"{bound:,.16g}" if isinstance(bound, float | int) else bound


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
    "literal_error": "is none of {expected}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be {le} or less",
    "string_type": "is no text",
    "too_short": "is empty",
}
"""pydantic's type of an error → what is wrong."""


def _example(entry: Any, place: Place) -> str:
    """Return how it is written; empty where what is wrong says so."""
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
    return f"; write for example {_EXAMPLES[name]}" if kind == "missing" and name in _EXAMPLES else ""


def _last_name(place: Place) -> str:
    """Return the innermost key, in a list that of the list."""
    return next((part for part in reversed(place) if isinstance(part, str)), "")


def _kind_of(value: Any) -> str:
    return "is empty" if value is None else "is a list" if isinstance(value, list) else "is a single value"


def _meant(name: str, tree: type[BaseModel], allowed: Sequence[str], ready: str) -> str:
    """Return what was meant by a key that is not here: one with another name, one that stands elsewhere, or one of these.

    ``ready``: how it is written, with its value; empty where that is not known.
    """
    if name in _RENAMED:
        return f"; write {_RENAMED[name]}"
    elsewhere = [path for path in paths_in(tree) if path.endswith(f".{name}")]
    meant = did_you_mean(name, allowed, likely=elsewhere)
    told = " ".join(filter(None, [meant, f"write {ready}." if ready else ""]))
    return f"{f'; {told}' if told else '.'} Allowed here: {', '.join(allowed)}"


def _shown(entry: Any, as_written: Callable[[str], str]) -> str:
    if any(map(may_be_credential, place_of(entry))):
        return "not shown"
    text = printable(as_written(repr(without_credentials(entry["input"]))))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
