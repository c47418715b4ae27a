"""Registries that make metrics, sinks, extractors and queues from a name and parameters, built in or a user's own."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from spanscore.core.printable import did_you_mean
from spanscore.errors import ConfigurationError, SpanscoreError

Entry = str | Mapping[str, Mapping[str, Any] | None]
"""The name of a part in a configuration, alone or with parameters."""


def entries(listed: Iterable[Entry]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and the parameters of each part in a configuration."""
    for entry in listed:
        if isinstance(entry, str):
            yield entry, {}
        else:
            yield from ((name, parameters or {}) for name, parameters in entry.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """The parts of one kind.

    Attributes:
        kind: name of the kind (``metric``).
        protocol: protocol of each part; checked at run time.
        example: how the name of a user's own part is written, for the error of an unknown name.
        built_in: name → class, or its place (``"module:Class"``), which is imported on first use.
        aliases: alternative name → name of a built-in part.
        offers: names of the parameters that a scorer passes to a user's part if the part has them.
    """

    kind: str
    protocol: Any
    example: str
    built_in: Mapping[str, Any]
    aliases: Mapping[str, str] = field(default_factory=dict)
    offers: tuple[str, ...] = ()

    def each(self, items: Iterable[Any], /, **offered: Any) -> list[Any]:
        """Return the parts of items: a ready-made part itself, and a new part for each name of an ``Entry``.

        Args:
            items: ready-made parts and entries.
            offered: as for ``make``.

        Raises:
            ConfigurationError: an item is not such a part, or cannot be made.
        """
        parts: list[Any] = []
        for item in items:
            if isinstance(item, str | Mapping):
                parts += [self.make(name, params, **offered) for name, params in entries([item])]
            elif self._is_part(item):
                parts.append(item)
            else:
                members = [name for name in vars(self.protocol) if not name.startswith("_")]
                listed = " and ".join([", ".join(members[:-1]), members[-1]] if members[1:] else members)
                raise ConfigurationError(f"{item!r} is not a {self.kind}: it needs {listed}")
        return parts

    def one(self, value: Any, /, **offered: Any) -> Any:
        """Return the part of an item that is a ready-made part, or names exactly one.

        Raises:
            ConfigurationError: the item names several parts or no part, is not such a part, or cannot be made.
        """
        self.check_one(value)
        return self.each([value], **offered)[0]

    def check_one(self, value: Any) -> None:
        """Make sure that a mapping names exactly one part; other items are not checked.

        Raises:
            ConfigurationError: the mapping names several parts, or no part.
        """
        if isinstance(value, Mapping) and len(value) != 1:
            raise ConfigurationError(f"{value!r} names {len(value)} {self.kind}s; name one")

    def make(self, name: str, params: Mapping[str, Any], /, **offered: Any) -> Any:
        """Make a part from its name.

        Args:
            name: name or alias of a built-in part, or ``"my_pkg:Class"``: a class, a function that returns a part, or a part
                itself.
            offered: passed to parts that have a parameter of the name and no value for it in ``params``; not passed to other
                parts.

        Raises:
            ConfigurationError: an error of ``resolve`` (for an unknown name or parameter, the message suggests similar ones);
                or the part raised an error, or the result is not such a part.
        """
        maker, values = self.resolve(name, params, **offered)
        if self._is_part(maker):
            return maker
        try:
            made = maker(**values)
        except SpanscoreError:
            raise
        except Exception as error:  # a user's own code may raise anything
            raise ConfigurationError(f"{self.kind} {name!r} cannot be made: {type(error).__name__}: {error}") from error
        if not self._is_part(made):
            raise ConfigurationError(f"{self.kind} {name!r} made a {type(made).__name__}, which is not a {self.kind}")
        return made

    def resolve(self, name: str, params: Mapping[str, Any], /, **offered: Any) -> tuple[Any, Mapping[str, Any]]:
        """Return the maker of a part and its parameters, without making the part.

        Raises:
            ConfigurationError: the part cannot be found (see ``find``), is not such a part, or is ready made and got
                parameters; or a parameter is unknown or missing. Errors that only making the part shows are not raised.
        """
        maker = self.find(name)
        if callable(maker) and not self._is_part(maker):
            written = {key: value for key, value in params.items() if value is not None or key not in offered}
            values = {**_select_offered(maker, offered), **written}
            self._check_parameters(name, maker, values)
            return maker, values
        if not self._is_part(maker):
            raise ConfigurationError(f"{self.kind} {name!r} is a {type(maker).__name__}, which is not a {self.kind}")
        if params:
            raise ConfigurationError(f"{self.kind} {name!r} is ready made and has no parameters, got {sorted(params)}")
        return maker, {}

    def find(self, name: str) -> Any:
        """Return the class, function or part with a name.

        Raises:
            ConfigurationError: the name is unknown, its module cannot be imported, or the module lacks the attribute.
        """
        place = self.built_in.get(self.aliases.get(name, name), name)
        if not isinstance(place, str):
            return place
        module, colon, attribute = place.partition(":")
        if not colon:
            built_in = (
                f"built-in names are {', '.join(sorted(self.built_in))}." if self.built_in else "none is built in."
            )
            hint = did_you_mean(name, [*self.built_in, *self.aliases], most=3) or built_in
            raise ConfigurationError(f"unknown {self.kind} {name!r}: {hint} Your own is written {self.example!r}")
        try:
            imported = import_module(module)
        except Exception as error:  # a user's own code may raise anything
            raise ConfigurationError(f"{self.kind} {name!r}: {_import_problem(module, error)}") from error
        if not hasattr(imported, attribute):
            hint = did_you_mean(attribute, [member for member in vars(imported) if member[0] != "_"])
            missing = f"module {imported.__name__} has no {attribute}{hint and f'; {hint}'}"
            raise ConfigurationError(f"{self.kind} {name!r}: {missing}")
        return getattr(imported, attribute)

    def _is_part(self, thing: object) -> bool:
        return isinstance(thing, self.protocol) and not isinstance(thing, type)

    def _check_parameters(self, name: str, maker: Any, values: Mapping[str, Any]) -> None:
        signature = inspect.signature(maker)
        allowed = [parameter for parameter in signature.parameters if parameter != "self"]
        for parameter in values:
            if parameter not in allowed and not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
                hint = did_you_mean(parameter, allowed) or f"it has {', '.join(allowed)}"
                raise ConfigurationError(f"{self.kind} {name!r} has no parameter {parameter!r}: {hint}")
        try:
            signature.bind(**values)
        except TypeError as error:
            raise ConfigurationError(f"{self.kind} {name!r}: {error}") from error


def _select_offered(maker: Any, offered: Mapping[str, Any]) -> dict[str, Any]:
    """Return the offered values that the maker accepts. None for a required parameter is passed on: the part rejects it."""
    parameters = inspect.signature(maker).parameters
    return {
        name: value
        for name, value in offered.items()
        if name in parameters and (value is not None or parameters[name].default is inspect.Parameter.empty)
    }


def _import_problem(module: str, error: Exception) -> str:
    top = module.partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and error.name == top:
        return f"Python finds no module {top!r}; install it, or name its folder in PYTHONPATH"
    if isinstance(error, ImportError):
        return str(error)
    return f"importing {module} raised {type(error).__name__}: {error}"
