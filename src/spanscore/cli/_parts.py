"""A configuration → what the parts of its scorer would refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from spanscore.dialects.extract import Extract
from spanscore.dialects.registry import DIALECTS
from spanscore.dialects.translations.registry import TRANSLATIONS
from spanscore.errors import ConfigurationError
from spanscore.line.configuration import value_at
from spanscore.line.options import PLACES, Options, rules_in
from spanscore.otel.sums import checked_dimensions
from spanscore.runtime import plugins
from spanscore.runtime.plugins import Registry
from spanscore.sampling.rates import DEFAULT_KEY, RateSampler
from spanscore.scoring.queues import QUEUES
from spanscore.scoring.redactors import REDACTORS
from spanscore.settings.tree import PlaceSettings, Settings
from spanscore.sinks.registry import SINKS

__all__ = ["part_problems"]

_NAMED: Mapping[str, Registry] = {
    "sinks": SINKS,
    "dialects": DIALECTS,
    "queue": QUEUES,
    "redactor": REDACTORS,
    "units.translations": TRANSLATIONS,
}
"""Key → where the parts are found that it names."""


def part_problems(settings: Settings) -> Iterator[ConfigurationError]:
    """Yield what a scorer's parts would refuse: they are tried here."""
    rules, key = rules_in(value_at(settings, "sampling.rules")), value_at(settings, "sampling.key")
    tried: list[tuple[str, Callable[[], object]]] = [
        ("", lambda: RateSampler({}, rules=rules, key=DEFAULT_KEY if key is None else key)),
        ("monitoring.dimensions: ", lambda: checked_dimensions(settings.monitoring.dimensions)),
    ]
    places = {name: value_at(settings, f"capture.{name}") for name in PlaceSettings.model_fields}
    tried += [("capture.", partial(Extract, **{name: place})) for name, place in places.items()]
    tried += [("", lambda: Options(sinks=value_at(settings, "sinks")))]
    for section, registry in _NAMED.items():
        parts, offered = value_at(settings, section), dict.fromkeys(registry.offers)
        listed = plugins.entries(parts if isinstance(parts, list) else [parts] if parts else [])
        own = [part for part in listed if part[0] not in PLACES]  # a place is refused above
        tried += [(f"{section}: ", partial(registry.checked, *part, **offered)) for part in own]
    tried += [("queue: ", lambda: QUEUES.check_one(value_at(settings, "queue")))]
    for at, make in tried:
        try:
            make()
        except ConfigurationError as error:
            yield ConfigurationError(f"{at}{error}")
