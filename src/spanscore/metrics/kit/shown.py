"""Selection of the sample fields in a judge's prompt: the user's parameter ``fields``, or a default."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from spanscore.core.printable import did_you_mean
from spanscore.core.sample import MultiTurnSample, Sample
from spanscore.errors import ConfigurationError
from spanscore.metrics.kit.base import MULTI_TURN, SINGLE_TURN
from spanscore.metrics.kit.step import Step

Fields: TypeAlias = Sequence[str] | Mapping[str, Collection[str]]
"""Names of fields, such as ``response`` or ``reference:optional``; or kind of sample → such names, as in ragas."""

ALL_FIELDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        SINGLE_TURN: ("user_input", "response", "retrieved_contexts", "reference_contexts", "reference"),
        MULTI_TURN: ("user_input", "reference"),
    }
)
"""Kind of sample → fields that a judge can be shown of it, in the order of the prompt."""
DEFAULT_FIELDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {SINGLE_TURN: ("user_input", "response", "reference"), MULTI_TURN: ALL_FIELDS[MULTI_TURN]}
)
"""Kind of sample → fields shown by default. Contexts are left out, as they would be most of the prompt."""
_OPTIONAL: Final = ":optional"
_CONTEXTS: Final = re.compile(
    r"\b(?:(?<!out of )(?<!in the )(?:retrieved |given |provided )?contexts?(?! of\b)|documents?|documentation|passages?"
    r"|(?<!open )(?<!open-)sources?(?! ?code)|retriev(?:ed|al)|excerpts?|snippets?|chunks?|search results?"
    r"|knowledge base|cit(?:es?|ed|ing|ations?))\b",
    re.IGNORECASE,
)
"""Words for contexts in an instruction or condition. ``open source``, ``source code`` and ``out of context`` do not match."""


class ContextsHiddenWarning(UserWarning):
    """A metric's instruction or condition mentions contexts, but ``fields`` is not given, so the judge does not see them."""


def evidence_of(sample: Sample, names: Iterable[str]) -> dict[str, Any]:
    """Return field → value for the named fields that the sample has; a conversation as messages."""
    shown = {name: getattr(sample, name, None) for name in names}
    if isinstance(sample, MultiTurnSample) and "user_input" in shown:
        shown["user_input"] = sample.messages()
    return {name: value for name, value in shown.items() if value is not None}


def fields_wanted(
    metric: str, fields: Fields | None, required_columns: Fields | None
) -> Mapping[str, tuple[str, ...]] | None:
    """Return kind of sample → fields in the order of the prompt, an optional field as ``reference:optional``.

    A list applies to each kind of sample that can have all required fields of the list.

    Args:
        metric: name of the metric, for the errors.
        fields: the user's parameter ``fields``; None = the default.
        required_columns: ragas's name for ``fields``; None or empty = the default.

    Returns:
        None if neither argument is given.

    Raises:
        ConfigurationError: both arguments are given; names are empty, unknown or not in a list; or a mapping's kind of sample
            lacks a field; or, for a list, each kind lacks one.
    """
    if fields is not None and required_columns:
        raise ConfigurationError(f"{metric}: fields and required_columns are two names of one parameter; give fields")
    wanted = fields if fields is not None else required_columns or None
    if wanted is None:
        return None
    named = _by_kind(metric, wanted)
    kinds = {kind: names for kind, names in named.items() if _can_have(kind, names)}
    if not kinds or (isinstance(wanted, Mapping) and len(kinds) < len(named)):
        raise ConfigurationError(
            f"{metric}: fields are {wanted!r}; {_lack(wanted, named)}. A single turn has "
            f"{', '.join(ALL_FIELDS[SINGLE_TURN])}; a conversation has {', '.join(ALL_FIELDS[MULTI_TURN])}"
        )
    return {kind: _in_order(kind, names) for kind, names in kinds.items()}


def contexts_hidden(metric: str, steps: Iterable[Step[Any]]) -> str | None:
    """Return the advice to set ``fields`` if an instruction or condition mentions contexts; otherwise None."""
    for step in steps:
        word = _CONTEXTS.search(f"{step.instruction}\n{step.applies_when or ''}")
        if word is not None:
            return (
                f"{metric}: its instruction or condition speaks of {word[0].lower()!r}, but the judge is shown no contexts; "
                "to show them, set fields: [user_input, response, retrieved_contexts], else name the fields that it reads"
            )
    return None


def _by_kind(metric: str, fields: Fields) -> dict[str, dict[str, bool]]:
    """Return kind of sample → field → whether it is required; a list applies to every kind."""
    if isinstance(fields, Mapping):
        return {str(getattr(kind, "value", kind)): _marked(metric, names) for kind, names in fields.items()}
    return dict.fromkeys(ALL_FIELDS, _marked(metric, fields))


def _marked(metric: str, names: Any) -> dict[str, bool]:
    """Return field → whether it is required."""
    if isinstance(names, str) or not isinstance(names, Collection) or not names:
        raise ConfigurationError(f"{metric}: fields are {names!r}; name one or more in a list, such as [response]")
    marked: dict[str, bool] = {}
    for name in names:
        field = str(name).removesuffix(_OPTIONAL)
        if field not in ALL_FIELDS[SINGLE_TURN]:
            meant = did_you_mean(field, ALL_FIELDS[SINGLE_TURN])
            raise ConfigurationError(
                f"{metric}: fields has {name!r}; {meant and f'{meant} '}A field is one of "
                f"{', '.join(ALL_FIELDS[SINGLE_TURN])}, each alone or with {_OPTIONAL} behind it"
            )
        marked[field] = marked.get(field, False) or field == name
    return marked


def _can_have(kind: str, marked: Mapping[str, bool]) -> bool:
    """Whether a kind of sample has all required fields and at least one field."""
    fields = ALL_FIELDS.get(kind, ())
    return any(field in fields for field in marked) and all(field in fields for field in marked if marked[field])


def _lack(wanted: Fields, named: Mapping[str, Mapping[str, bool]]) -> str:
    for kind, marked in named.items() if isinstance(wanted, Mapping) else ():
        if not _can_have(kind, marked):
            return f"a {kind} sample has no {', '.join(field for field in marked if field not in ALL_FIELDS.get(kind, ()))}"
    return "no kind of sample has them all"


def _in_order(kind: str, marked: Mapping[str, bool]) -> tuple[str, ...]:
    return tuple(name if marked[name] else name + _OPTIONAL for name in ALL_FIELDS[kind] if name in marked)
