"""The bytes of a YAML file → plain values, or in one line why not: where it is, what is wrong, what to write.

A configuration is small, and whoever wrote it is not always a friend: what takes a parser minutes or gigabytes is refused
before it is built. No line of the file is quoted: a key may stand in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from spanscore.config.messages import Place, written_place
from spanscore.core.printable import printable
from spanscore.errors import ConfigurationError

__all__ = ["read_yaml"]

_LARGEST: Final = 1_000_000
"""Bytes of a file. The longest configuration seen has 12,000."""
_DEEPEST: Final = 32
_MOST_VALUES: Final = 100_000
"""Values, those of an alias counted wherever it stands."""
_LONGEST_NUMBER: Final = 40
"""Digits; Python takes quadratic time for a number's, and refuses more than 4,300."""
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_DATE = "tag:yaml.org,2002:timestamp"
_TOO_DEEP = f"values are nested deeper than {_DEEPEST} levels"
_EXAMPLE = "write keys with values, such as metrics: [faithfulness]"


@dataclass(frozen=True, slots=True)
class ParsedYaml:
    """The content of a file.

    Attributes:
        values: by key; of a key that stands there twice, the last.
        faults: place → what is wrong there that the values no longer tell.
    """

    values: dict[str, Any]
    faults: dict[Place, str] = field(default_factory=dict)


def read_yaml(file: Path) -> ParsedYaml:
    """Return what a YAML file holds; nothing where it is empty.

    Raises:
        ConfigurationError: it cannot be read, or is no mapping in YAML; the message is one line, and names that of the file.
    """
    text = _text(file)
    values, walk = None, _Walk()
    try:
        loader = _Loader(text)
        try:
            if (node := loader.get_single_node()) is not None:
                walk.check(node)
                values = loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigurationError(_told(file, text, error)) from None  # its own text quotes the line
    except (AttributeError, LookupError, TypeError, ValueError):  # of a tag that does not fit: !!int x
        raise ConfigurationError(
            f"{file} is no YAML: a tag (!!) stands at a value of another kind; leave it out"
        ) from None
    if values is not None and not (isinstance(values, dict) and all(isinstance(key, str) for key in values)):
        raise ConfigurationError(f"{file} holds no settings; {_EXAMPLE}")
    return ParsedYaml(values or {}, walk.faults)


def _text(file: Path) -> str:
    if file.is_dir():
        raise ConfigurationError(f"{file} is a folder; give the YAML file in it")
    if not file.exists():
        raise ConfigurationError(f"there is no configuration file {file}")
    try:
        with file.open("rb") as stream:
            read = stream.read(_LARGEST + 1)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error
    if len(read) > _LARGEST:
        raise ConfigurationError(f"{file} is larger than {_LARGEST:,} bytes, which no configuration is")
    try:
        return read.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = read.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"{file}, line {line} is not valid UTF-8; save the file as UTF-8") from None


class _RefusedError(yaml.MarkedYAMLError):
    """The text is YAML, but no configuration."""


def _refuse(problem: str, mark: Any) -> NoReturn:
    raise _RefusedError(problem=problem, problem_mark=mark)


class _Loader(yaml.SafeLoader):
    """Safe, and not deeper than a configuration is. A date is a text: no setting is one."""

    yaml_implicit_resolvers = {  # noqa: RUF012  (as in the class above)
        first: [(tag, form) for tag, form in resolvers if tag != _DATE]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    _depth = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        self._depth += 1
        if self._depth > _DEEPEST:
            _refuse(_TOO_DEEP, self.get_mark())
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


@dataclass(slots=True)
class _Walk:
    """Goes through all that a file holds, before values are made of it."""

    faults: dict[Place, str] = field(default_factory=dict)
    _seen: int = 0

    def check(self, node: Node, place: Place = ()) -> None:
        """Find what stands twice.

        Raises:
            MarkedYAMLError: it holds too much.
        """
        self._seen += 1
        if self._seen > _MOST_VALUES:
            _refuse(f"what stands here holds more than {_MOST_VALUES:,} values, by its aliases (*)", node.start_mark)
        if len(place) > _DEEPEST:  # an alias may stand for what it is in
            _refuse(_TOO_DEEP, node.start_mark)
        if isinstance(node, ScalarNode):
            if node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
                digits = f"a number of {len(node.value):,} digits"
                _refuse(f"{digits}; no setting takes more than {_LONGEST_NUMBER}", node.start_mark)
        elif isinstance(node, SequenceNode):
            for position, inner in enumerate(node.value):
                self.check(inner, (*place, position))
        elif isinstance(node, MappingNode):
            self._check_keys(node, place)

    def _check_keys(self, node: MappingNode, place: Place) -> None:
        lines: dict[str, list[int]] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, ScalarNode) else ""
            if isinstance(key, ScalarNode):
                lines.setdefault(name, []).append(key.start_mark.line + 1)
            else:
                self.check(key, place)
            self.check(value, (*place, name))
        for name, stands in lines.items():
            if len(stands) > 1:
                at = (*place, name)
                self.faults[at] = f"{written_place(at)}: stands {_times(stands)}; keep one of them"


def _times(lines: list[int]) -> str:
    if len(set(lines)) == 1:
        return f"{len(lines)} times in line {lines[0]}"
    return f"in lines {', '.join(map(str, lines[:-1]))} and {lines[-1]}"


# --- what the parser says, in one line ----------------------------------------------------------------------------


def _told(file: Path, text: str, error: yaml.YAMLError) -> str:
    if isinstance(error, ReaderError):
        line, found = text.count("\n", 0, error.position) + 1, printable(text[error.position])
        return f"{file}, line {line}: the control character {found} stands there, which YAML does not allow"
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"{file} is no YAML: {type(error).__name__}"
    said = f"{error.problem} {error.context or ''}"
    begins, hint = next(((begins, hint) for part, begins, hint in _HINTS if part in said), (False, str(error.problem)))
    mark = (error.context_mark if begins else None) or error.problem_mark
    at = f"{file}, line {mark.line + 1}" if mark is not None else str(file)
    return f"{at}: {hint}" if isinstance(error, _RefusedError) else f"{at} is no YAML: {printable(hint)}"


_QUOTE = "put it in quotes"
_HINTS: Final[tuple[tuple[str, bool, str], ...]] = (
    ("found character '\\t'", False, "a tab stands where YAML wants spaces; indent with spaces"),
    ("found unhashable key", False, f"a value that begins with {{ or [ is read as a mapping or a list; {_QUOTE}"),
    (
        "mapping values are not",
        False,
        f"a ': ' too many in this line, or none in the one above; a value that holds one: {_QUOTE}",
    ),
    ("expected ',' or ']'", True, "a list that [ begins is not closed; write ]"),
    ("expected ',' or '}'", True, "a mapping that { begins is not closed; write }"),
    ("scanning a quoted scalar", True, "a text that begins with a quote does not end with it"),
    ("another document", False, "a second document begins (---); a configuration is one"),
    ("duplicate anchor", False, "an anchor (&) of this name stands above; give each a name of its own"),
    (
        "undefined alias",
        False,
        f"a value that begins with * is read as an alias, and no anchor (&) has its name; {_QUOTE}",
    ),
    ("for the tag", False, f"a value that begins with ! is read as a tag, and none has this name; {_QUOTE}"),
    ("cannot start any token", False, f"no value begins with @, ` or %; {_QUOTE}"),
    ("expected <block end>", False, "this is not indented as what stands above; align what belongs together"),
)
"""Part of what PyYAML says → whether to tell the line where it began; and what someone can act on who seldom writes YAML."""
