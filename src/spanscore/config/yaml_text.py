"""Parses a YAML file into plain values. Errors are one line: the line number, the fault, and the correct form.

A configuration is small, and its author may be hostile. Content that would take a parser minutes or gigabytes is therefore
rejected before it is built. Messages quote no line of the file, because the line may have a key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from spanscore.config.credentials import Place
from spanscore.config.messages import written_place
from spanscore.core.printable import printable
from spanscore.errors import ConfigurationError

_LARGEST: Final = 1_000_000
"""Largest file, in bytes. The longest configuration seen has 12,000."""
_DEEPEST: Final = 32
_MOST_VALUES: Final = 100_000
"""Largest number of values; the values of an alias count at each use."""
_LONGEST_NUMBER: Final = 40
"""Longest number, in digits. Python's parsing takes quadratic time, and refuses more than 4,300."""
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_DATE = "tag:yaml.org,2002:timestamp"
_TOO_DEEP = f"values are nested deeper than {_DEEPEST} levels"
_EXAMPLE = "write keys with values, such as metrics: [faithfulness]"


def read_yaml(file: Path) -> tuple[dict[str, Any], dict[Place, str]]:
    """Return the values of a YAML file by key, and place → message about each repeated key, whose last value counts.

    Raises:
        ConfigurationError: the file cannot be read, or is not a YAML mapping. The message is one line, with the line of the
            fault.
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
        raise ConfigurationError(_describe_error(file, text, error)) from None  # the parser's text quotes the line
    except (AttributeError, LookupError, TypeError, ValueError):  # a tag that does not fit: !!int x
        raise ConfigurationError(
            f"{file} is no YAML: a tag (!!) is before a value of another kind; leave it out"
        ) from None
    if values is not None and not (isinstance(values, dict) and all(isinstance(key, str) for key in values)):
        raise ConfigurationError(f"{file} holds no settings; {_EXAMPLE}")
    return values or {}, walk.faults


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
    """Raised for text that is YAML, but not a configuration."""


def _refuse(problem: str, mark: Any) -> NoReturn:
    raise _RefusedError(problem=problem, problem_mark=mark)


class _Loader(yaml.SafeLoader):
    """A safe loader with a limit on nesting, which reads a date as a text because no setting is a date."""

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
    """Checks all nodes of a file before values are built: sizes, nesting and repeated keys."""

    faults: dict[Place, str] = field(default_factory=dict)
    _seen: int = 0

    def check(self, node: Node, place: Place = ()) -> None:
        """Collect repeated keys in ``faults``.

        Raises:
            MarkedYAMLError: the file has too many values, too deep nesting or too long numbers.
        """
        self._seen += 1
        if self._seen > _MOST_VALUES:
            _refuse(f"this value has more than {_MOST_VALUES:,} values, by its aliases (*)", node.start_mark)
        if len(place) > _DEEPEST:  # an alias may refer to the node around it
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
        for name, line_numbers in lines.items():
            if len(line_numbers) > 1:
                at = (*place, name)
                self.faults[at] = f"{written_place(at)}: is given {_times(line_numbers)}; keep one of them"


def _times(lines: list[int]) -> str:
    if len(set(lines)) == 1:
        return f"{len(lines)} times in line {lines[0]}"
    return f"in lines {', '.join(map(str, lines[:-1]))} and {lines[-1]}"


# --- errors of the parser, in one line ---------------------------------------------------------------------------------


def _describe_error(file: Path, text: str, error: yaml.YAMLError) -> str:
    if isinstance(error, ReaderError):
        line, character = text.count("\n", 0, error.position) + 1, printable(text[error.position])
        return f"{file}, line {line}: YAML does not allow the control character {character}"
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"{file} is no YAML: {type(error).__name__}"
    problem = f"{error.problem} {error.context or ''}"
    begins, hint = next(
        ((begins, hint) for part, begins, hint in _HINTS if part in problem), (False, str(error.problem))
    )
    mark = (error.context_mark if begins else None) or error.problem_mark
    at = f"{file}, line {mark.line + 1}" if mark is not None else str(file)
    return f"{at}: {hint}" if isinstance(error, _RefusedError) else f"{at} is no YAML: {printable(hint)}"


_QUOTE = "put it in quotes"
_HINTS: Final[tuple[tuple[str, bool, str], ...]] = (
    ("found character '\\t'", False, "the line is indented with a tab; indent with spaces"),
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
    ("duplicate anchor", False, "the anchor (&) exists already; give each anchor a name of its own"),
    (
        "undefined alias",
        False,
        f"a value that begins with * is read as an alias, and no anchor (&) has its name; {_QUOTE}",
    ),
    ("for the tag", False, f"a value that begins with ! is read as a tag, and none has this name; {_QUOTE}"),
    ("cannot start any token", False, f"no value begins with @, ` or %; {_QUOTE}"),
    ("expected <block end>", False, "this line is not indented like the lines above; align the keys of a mapping"),
)
"""Part of PyYAML's message → (whether to report the first line of the construct, advice in plain words)."""
