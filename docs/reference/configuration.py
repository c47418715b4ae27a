"""The keys and the variables → the made parts of configuration.md and environment.md."""

from __future__ import annotations

from collections.abc import Sequence

from docs.reference.pages import table

from spanscore.cli._schema import Key, Schema, keys_in
from spanscore.judges.langchain.models import KEYS

__all__ = ["configuration", "environment"]

_HEADERS = ("key", "what may stand there", "default", "what it does", "in Python")


def configuration(schema: Schema) -> str:
    """Return every key, section by section."""
    keys = keys_in(schema)
    judge = {key.path.removeprefix("judge."): key for key in keys if key.section == "judge"}
    told = [key for key in keys if not _is_as_of_the_judge(key, judge)]
    names = dict.fromkeys(key.section for key in told)
    many = [name for name in names if sum(key.section == name for key in told) > 1]
    top = ["## Keys of the top", _rows([key for key in told if key.section not in many])]
    return "\n\n".join([*top, *(_section(name, [key for key in told if key.section == name], schema) for name in many)])


def _is_as_of_the_judge(key: Key, judge: dict[str, Key]) -> bool:
    section, _, name = key.path.rpartition(".")
    return section.endswith((".shadow", ".fallback[]")) and name in judge and name not in ("model", "budget")


def _section(name: str, keys: Sequence[Key], schema: Schema) -> str:
    told = schema["properties"][name]["description"] if not any(key.path == name for key in keys) else ""
    return "\n\n".join(filter(None, [f"## {name}", told.replace("``", "`"), _rows(keys)]))


def _rows(keys: Sequence[Key]) -> str:
    rows = [
        [f"`{key.path}`", _may_stand(key), _default(key), key.meaning, f"`{key.python}`" if key.python else "–"]
        for key in keys
    ]
    return table(_HEADERS, rows)


def _may_stand(key: Key) -> str:
    return f"{key.type}: {key.allowed}" if key.type == "word" else ", ".join(filter(None, [key.type, key.allowed]))


def _default(key: Key) -> str:
    return "must be given" if key.default is None else f"`{key.default}`"


# --- the environment ----------------------------------------------------------------------------------------------


def environment() -> str:
    """Return the names of the variables that hold the keys of judges."""
    rows = [[f"`{provider}:…`", ", ".join(f"`{name}`" for name in names)] for provider, names in KEYS.items()]
    return table(["judge", "its key, any one of them"], rows)
