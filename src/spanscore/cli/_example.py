"""The keys → a configuration file that has every one of them, with what it does and its default.

As it stands, it does what its metrics alone would do: collections are empty, and below each an entry stands as a comment (``#``
in the first column), which becomes one by removing the ``#`` and the ``[]``, ``{}`` or ``null`` above it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Final

from spanscore.cli._schema import Schema, schema
from spanscore.cli._schema_keys import Key, keys_in

__all__ = ["example_file"]

_HEADER: Final = """\
# yaml-language-server: $schema=spanscore.schema.json
# For an editor that reads the line above: spanscore check --schema > spanscore.schema.json
#
# Every key of a configuration, with its default: as it stands, this file does what its metrics alone would do.
# Lines that begin with # in the first column are an example of an entry: remove the #, and the [], {} or null above them.
# null is what a key is when it is left out. Durations: 500ms, 30s, 5m, 1h, 7d or seconds; sizes: 64MB, 500kB or bytes.
# ${NAME} in a text is what the environment holds; SPANSCORE_SAMPLING__RATE=0.2 there is sampling.rate.
"""
_GIVEN: Final[Mapping[str, str]] = {
    "metrics": "\n  - faithfulness\n  - string_presence",
    "metrics[].<metric>.shadow.model": '"openai:gpt-5-mini"',
    "metrics[].<metric>.shadow.budget[].calls": "1000",
    "metrics[].<metric>.shadow.budget[].per": "1d",
    "judge.fallback[].model": '"openai:gpt-4o-mini"',
    "judge.prices.<model>.input": "0.15",
    "judge.prices.<model>.output": "0.60",
    "judge.budget[].calls": "10000",
    "judge.budget[].per": "1h",
    "sampling.rules[].rate": "0.5",
    "sampling.rules[].when.score.metric": "string_presence",
    "sampling.rules[].when.score.below": "0.5",
    "sampling.feedback.rate": "0.5",
    "alerts.<metric>.baseline": "0.85",
    "judge_check.golden_set": '"labelled.jsonl"',
    "compare.by": "service.version",
    "remote_scoring.endpoint": '"https://scorer:4318"',
    "remote_scoring.token_file": '"/run/secrets/spanscore"',
    "collect.when": '["faithfulness<0.5"]',
    "collect.out": '"cases.jsonl"',
    "spool.path": '"/var/lib/spanscore/spool.db"',
    "serve.forward.endpoint": '"http://127.0.0.1:14318"',
    "serve.tls.cert": '"server.pem"',
    "serve.tls.key": '"server.key"',
    "kafka.brokers": '["127.0.0.1:9092"]',
}
"""What stands where there is no default, or where the default would be no example."""
_NAMED: Final = {
    ("<metric>", "metrics"): "response_relevancy",
    ("<metric>", "alerts"): "faithfulness",
    ("<model>", "judge"): "gpt-4o-mini",
}
_OPTIONAL: Final = (
    *(
        "serve_metrics",
        "serve.forward",
        "serve.tls",
        "kafka",
        "judge_check",
        "collect",
        "compare",
        "remote_scoring",
        "spool",
    ),
    "capture.extract",
    "sampling.feedback",
)
"""Sections that are not there by default."""
_ONE_OF: Final = ("alerts.<metric>.baseline.", "remote_scoring.kafka.", "sampling.head_sampling_rate.")
"""Keys of sections that may stand in the place of others: what that means says it."""
_WIDTH: Final = 110


def example_file() -> str:
    """Return the text of the file."""
    whole = schema()
    keys = [*_keys_of_example(whole)]
    rows = [key.path for key in keys]
    lines, above, section = list[str](), list[str](), ""
    for key in keys:
        parents = key.path.split(".")[:-1]
        if key.section != section:
            lines.append("")
        same = next((depth for depth, name in enumerate(parents) if above[depth : depth + 1] != [name]), len(parents))
        for depth in range(same, len(parents)):
            lines += _section_lines(parents[: depth + 1], rows, whole)
        lines += _lines(key, holds_more=any(row != key.path and _is_below(row, key.path) for row in rows))
        above, section = parents, key.section
    return _HEADER + "\n".join(lines) + "\n"


def _keys_of_example(whole: Schema) -> Iterator[Key]:
    """Yield the keys without alternatives, and without those that a judge below another section repeats."""
    every = keys_in(whole)
    judge = {key.path.removeprefix("judge.") for key in every if key.section == "judge"} - {"model", "budget"}
    yield from (key for key in every if not key.path.startswith(_ONE_OF) and not _is_as_of_the_judge(key, judge))


def _is_as_of_the_judge(key: Key, judge: Container[str]) -> bool:
    section, _, name = key.path.rpartition(".")
    return section.endswith((".shadow", ".fallback[]")) and name in judge


def _is_below(path: str, above: str) -> bool:
    return path.startswith((f"{above}.", f"{above}[]"))


def _section_lines(place: Sequence[str], rows: Sequence[str], whole: Schema) -> Iterator[str]:
    """Yield what opens a section: its name, or the dash of an entry; nothing where a row of its own has named it."""
    name, indent = place[-1], _indent(place[:-1])
    if name.endswith("[]"):
        yield _comment_out(f"{indent}  -", place)
    elif name.startswith("<"):
        yield _comment_out(f"{indent}{_NAMED[name, place[0].removesuffix('[]')]}:", place)
    elif ".".join(place) not in rows:
        meaning = whole["properties"][name]["description"] if len(place) == 1 else ""
        yield from (_comment_out(f"{indent}# {line}", place) for line in wrap(meaning, _WIDTH))
        yield _comment_out(f"{indent}{name}:", place)


def _lines(key: Key, *, holds_more: bool) -> Iterator[str]:
    """Yield what a key does, and the key with its default; in an example without one, where its own keys follow."""
    place = key.path.split(".")
    indent = _indent(place[:-1])
    allowed = f" Allowed: {key.allowed.replace('`', '')}." if key.allowed else ""
    for line in wrap(f"{key.meaning.replace('`', '')}{allowed}", _WIDTH - len(indent)):
        yield _comment_out(f"{indent}# {line}", place[:-1])
    value = "" if holds_more and _is_example(place[:-1]) else _GIVEN.get(key.path, key.default or "")
    yield _comment_out(
        f"{indent}{place[-1]}: {value}".rstrip() if not value.startswith("\n") else f"{place[-1]}:{value}", place[:-1]
    )


def _indent(parents: Sequence[str]) -> str:
    return " " * (2 * len(parents) + 2 * sum(name.endswith("[]") for name in parents))


def _comment_out(line: str, place: Sequence[str]) -> str:
    return f"#{line}" if _is_example(place) else line


def _is_example(place: Sequence[str]) -> bool:
    within = {".".join(place[:depth]) for depth in range(1, len(place) + 1)}
    return not within.isdisjoint(_OPTIONAL) or any(name.endswith(("[]", ">")) for name in place)
