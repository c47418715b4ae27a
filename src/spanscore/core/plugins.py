"""A name and plain parameters → a part: metrics, sinks, dialects and queues are found alike, built in or a user's own."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any

from spanscore.core.printable import did_you_mean
from spanscore.errors import ConfigurationError

Entry = str | Mapping[str, Mapping[str, Any] | None]
"""A part as a configuration lists it: its name, alone or with its parameters."""


def entries(listed: Iterable[Entry]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and the parameters of each part that a configuration lists."""
    for entry in listed:
        if isinstance(entry, str):
            yield entry, {}
        else:
            yield from ((name, parameters or {}) for name, parameters in entry.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """The parts of one kind.

    Attributes:
        kind: what one of them is called (``metric``).
        protocol: what each keeps; checked at run time.
        outside: how one from outside is written, for the error of an unknown name.
        built_in: name → class, or where it stands (``"module:Class"``), and is imported from on first use.
        aliases: what people call a built-in → its name.
        offers: what a scorer hands to a part from outside that takes one of the name.
    """

    kind: str
    protocol: Any
    outside: str
    built_in: Mapping[str, Any]
    aliases: Mapping[str, str] = field(default_factory=dict)
    offers: tuple[str, ...] = ()

    def each(self, given: Iterable[Any], /, **offered: Any) -> list[Any]:
        """Return parts: those that are given ready made as they are, those that are named (``Entry``) made.

        Raises:
            ConfigurationError: one is none, or cannot be made.
        """
        return [part for one in given for part in self._each(one, offered)]

    def one(self, given: Any, /, **offered: Any) -> Any:
        """Return the one part that is given or named; raises as ``each`` does."""
        self.check_one(given)
        return self.each([given], **offered)[0]

    def check_one(self, given: Any) -> None:
        """Make sure that one part is given or named.

        Raises:
            ConfigurationError: more are, or none.
        """
        if isinstance(given, Mapping) and len(given) != 1:
            raise ConfigurationError(f"{given!r} names {len(given)} {self.kind}s; name one")

    def made(self, name: str, params: Mapping[str, Any], /, **offered: Any) -> Any:
        """Return a part by its name.

        Args:
            name: a built-in's, an alias of one, or ``"my_pkg:Class"`` from outside: a class, a function that returns a part,
                or a part itself.
            params: of the part.
            offered: handed on to parts that take one of the name; ignored by the others.

        Raises:
            ConfigurationError: unknown name or parameter (the message names close ones), or a parameter that cannot be.
        """
        maker, given = self.checked(name, params, **offered)
        if self._is_part(maker):
            return maker
        made = maker(**given)
        if not self._is_part(made):
            raise ConfigurationError(f"{self.kind} {name!r} made a {type(made).__name__}, which is no {self.kind}")
        return made

    def checked(self, name: str, params: Mapping[str, Any], /, **offered: Any) -> tuple[Any, Mapping[str, Any]]:
        """Return what makes a part, and with which parameters, without making it.

        Raises:
            ConfigurationError: as ``made``, but for what only making it shows.
        """
        maker = self.found(name)
        if callable(maker) and not self._is_part(maker):
            given = {**_wanted(maker, offered), **params}
            self._check_parameters(name, maker, given)
            return maker, given
        if not self._is_part(maker):
            raise ConfigurationError(f"{self.kind} {name!r} is a {type(maker).__name__}, which is no {self.kind}")
        if params:
            raise ConfigurationError(
                f"{self.kind} {name!r} is ready made and takes no parameters, got {sorted(params)}"
            )
        return maker, {}

    def found(self, name: str) -> Any:
        """Return the class, function or part a name stands for.

        Raises:
            ConfigurationError: there is none.
        """
        place = self.built_in.get(self.aliases.get(name, name), name)
        if not isinstance(place, str):
            return place
        module, colon, attribute = place.partition(":")
        if not colon:
            raise ConfigurationError(self._unknown(name))
        try:
            held = import_module(module)
        except Exception as error:  # a user's own code: it may raise anything
            raise ConfigurationError(f"{self.kind} {name!r}: {_why(module, error)}") from error
        if not hasattr(held, attribute):
            raise ConfigurationError(f"{self.kind} {name!r}: {_lacks(held, attribute)}")
        return getattr(held, attribute)

    def _each(self, one: Any, offered: Mapping[str, Any]) -> Iterator[Any]:
        if isinstance(one, str | Mapping):
            yield from (self.made(name, params, **offered) for name, params in entries([one]))
        elif self._is_part(one):
            yield one
        else:
            raise ConfigurationError(f"{one!r} is no {self.kind}: it needs {_members(self.protocol)}")

    def _is_part(self, thing: object) -> bool:
        return isinstance(thing, self.protocol) and not isinstance(thing, type)

    def _unknown(self, name: str) -> str:
        known = f"built in are {', '.join(sorted(self.built_in))}." if self.built_in else "none is built in."
        hint = did_you_mean(name, [*self.built_in, *self.aliases], most=3) or known
        return f"unknown {self.kind} {name!r}: {hint} One from outside is written {self.outside!r}"

    def _check_parameters(self, name: str, maker: Any, given: Mapping[str, Any]) -> None:
        signature = inspect.signature(maker)
        known = [one for one in signature.parameters if one != "self"]
        for one in given:
            if one not in known and not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
                hint = did_you_mean(one, known) or f"it takes {', '.join(known)}"
                raise ConfigurationError(f"{self.kind} {name!r} has no parameter {one!r}: {hint}")
        try:
            signature.bind(**given)
        except TypeError as error:
            raise ConfigurationError(f"{self.kind} {name!r}: {error}") from error


def _wanted(maker: Any, offered: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the maker takes of it. A required one that is None is handed on: the part says best what it needs."""
    parameters = inspect.signature(maker).parameters
    return {
        name: value
        for name, value in offered.items()
        if name in parameters and (value is not None or parameters[name].default is inspect.Parameter.empty)
    }


def _why(module: str, error: Exception) -> str:
    """Return why a module cannot be imported, and what to do."""
    top = module.partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and error.name == top:
        return f"there is no module {top!r} where Python looks; install it, or name its folder in PYTHONPATH"
    if isinstance(error, ImportError):
        return str(error)
    return f"importing {module} raised {type(error).__name__}: {error}"


def _lacks(module: ModuleType, attribute: str) -> str:
    meant = did_you_mean(attribute, [name for name in vars(module) if name[0] != "_"])
    return f"module {module.__name__} has no {attribute}{meant and f'; {meant}'}"


def _members(protocol: Any) -> str:
    names = [name for name in vars(protocol) if not name.startswith("_")]
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
