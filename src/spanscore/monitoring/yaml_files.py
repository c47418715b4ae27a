"""Trees → the YAML that an operator loads: texts of several lines as they are, short mappings in one line."""

from __future__ import annotations

from typing import Any

import yaml

__all__ = ["as_yaml"]

_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""libyaml's writes the same in a tenth of the time; a PyYAML that was built without it has none."""

_MADE = "# Made by `spanscore rules`: change the configuration and make it again.\n"


BRIEF = 120
"""Characters of a mapping of texts, such as labels, that is written in one line."""


class _Literal(_Dumper):  # type: ignore[misc, valid-type]  # one of two classes
    """Writes texts of several lines as they are."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


def _mapping(dumper: yaml.SafeDumper, tree: dict[str, Any]) -> yaml.Node:
    node = dumper.represent_mapping("tag:yaml.org,2002:map", tree.items())
    node.flow_style = all(isinstance(one, str) for one in tree.values()) and len(str(tree)) <= BRIEF
    return node


_Literal.add_representer(str, _text)
_Literal.add_representer(dict, _mapping)


def as_yaml(tree: Any) -> str:
    """Return the file of a tree, with a first line that says what made it."""
    return _MADE + yaml.dump(tree, Dumper=_Literal, sort_keys=False, allow_unicode=True, width=10_000)
