"""A configuration → what the parts of its scorer would refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from spanscore.config.tree import Configuration
from spanscore.core import plugins
from spanscore.core.plugins import Registry
from spanscore.errors import ConfigurationError
from spanscore.outputs.aggregates import checked_dimensions
from spanscore.outputs.sinks import SINKS
from spanscore.pipeline.jobs import REDACTORS
from spanscore.pipeline.queues import QUEUES
from spanscore.pipeline.sampling import DEFAULT_KEY, RateSampler
from spanscore.samples.genai import DIALECTS
from spanscore.samples.normalizers.registry import TRANSLATIONS

__all__ = ["part_problems"]


def part_problems(settings: Configuration) -> Iterator[ConfigurationError]:
    """Yield what a scorer's parts would refuse: they are tried here."""
    rules, key = settings.sampling.rules, settings.sampling.key
    tried: list[tuple[str, Callable[[], object]]] = [
        ("", lambda: RateSampler({}, rules=rules, key=DEFAULT_KEY if key is None else key)),
        ("monitoring.dimensions: ", lambda: checked_dimensions(settings.monitoring.dimensions)),
    ]
    queue, redactor = settings.limits.job_queue, settings.redactor
    named: Mapping[str, tuple[Registry, Sequence[Any]]] = {
        "outputs.sinks": (SINKS, settings.outputs.sinks),
        "units.dialects": (DIALECTS, settings.units.dialects),
        "limits.job_queue": (QUEUES, [queue]),
        "redactor": (REDACTORS, [redactor] if redactor else []),
        "units.translations": (TRANSLATIONS, settings.units.translations),
    }
    for section, (registry, parts) in named.items():
        offered = dict.fromkeys(registry.offers)
        tried += [(f"{section}: ", partial(registry.checked, *part, **offered)) for part in plugins.entries(parts)]
    tried += [("limits.job_queue: ", lambda: QUEUES.check_one(queue))]
    for at, make in tried:
        try:
            make()
        except ConfigurationError as error:
            yield ConfigurationError(f"{at}{error}")
