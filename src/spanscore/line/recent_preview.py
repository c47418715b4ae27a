"""A line's last units, rules and rates → what these would take of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from spanscore import semconv
from spanscore.config.sampling import Rule
from spanscore.config.tree import ScorerSettings
from spanscore.errors import ConfigurationError
from spanscore.judges.lexical.judge import is_offline
from spanscore.line.accounts import models_of
from spanscore.line.checked import checked_rates
from spanscore.line.preview import NOTHING, Preview, UnitCost, preview_of
from spanscore.pipeline.decisions import RecentUnit
from spanscore.pipeline.sampling import DEFAULT_KEY, PreviewTally

if TYPE_CHECKING:
    from spanscore.line.build import Line

__all__ = ["costs_so_far", "recent_preview", "tally_of"]


def tally_of(
    settings: ScorerSettings,
    rates: Mapping[str, float],
    rules: Sequence[Rule],
    metadata: Sequence[str] | None = None,
    service: Callable[[], str] = str,
) -> PreviewTally:
    """Return what counts with the dice of a scorer; ``metadata`` and ``service``: as of ``PreviewTally``."""
    return PreviewTally(
        rates,
        rules,
        key=DEFAULT_KEY if settings.sampling.key is None else settings.sampling.key,
        head_sampling_rate=settings.sampling.head_sampling_rate,
        metadata=metadata,
        service=service,
    )


def recent_preview(
    line: Line, rules: Sequence[Rule] | None, rate: float | None, rates: Mapping[str, float] | None
) -> Preview:
    """Return what rules and rates would take of the last units that have closed.

    Args:
        rules: None = those that are in force.
        rate: of every metric that ``rates`` does not name; None = as it is in force.
        rates: metric → one of its own; None = none has.

    Raises:
        ConfigurationError: a rate is none, or of no metric; or what is given is no rule.
    """
    chosen = line.settings.sampling.rules if rules is None else tuple(rules)
    if strange := next((rule for rule in chosen if not isinstance(rule, Rule)), None):
        raise ConfigurationError(
            f"rules holds {strange!r}; write [Rule(rate=0.5, when=RuleCondition(slower_than=2.0))]"
        )
    own = _rates(line, rate, rates)
    tally = tally_of(line.settings, own, chosen, line.known.recent.metadata, line.providers.service_name)
    for unit in line.known.recent.units():
        tally.add(unit.facts, _began_ns(unit))
    return preview_of(tally, rates=own, rules=chosen, costs=costs_so_far(line), notes=_notes(line))


def _rates(line: Line, rate: float | None, rates: Mapping[str, float] | None) -> dict[str, float]:
    checked = checked_rates(rates or {}, line.of_units)
    in_force = line.settings.sampling
    return {name: checked.get(name, in_force.rates_of(name)[0] if rate is None else rate) for name in line.of_units}


def _began_ns(unit: RecentUnit) -> int | None:
    """Return when a unit began, to some seconds: it closes a little after its end."""
    return None if unit.closed_ns is None else unit.closed_ns - (unit.facts.duration_ns or 0)


def costs_so_far(line: Line) -> dict[str, UnitCost]:
    """Return metric → what its judge has cost per unit that it was asked about; those of which nobody knows are left out."""
    return {name: cost for name in line.of_units if (cost := _cost_so_far(line, name)) is not None}


def _cost_so_far(line: Line, name: str) -> UnitCost | None:
    metric = line.of_units[name]
    if not models_of(metric) or is_offline(getattr(metric, "_judge", None)):
        return NOTHING
    units = _count_asked(line, name)
    if line.telemetry is None or name in line.shadowing or not units:  # a second judge's are in the same sums
        return None
    calls, tokens, usd = (
        _of_metric(name, line.telemetry.sums(of))
        for of in (semconv.JUDGE_CALLS, semconv.JUDGE_TOKENS, semconv.JUDGE_COST)
    )
    if not calls:  # other processes asked it
        return None
    priced = {*usd} >= {model for model, amount in tokens.items() if amount}
    per_unit = sum(usd.values()) / units if priced else None
    return UnitCost(sum(calls.values()) / units, sum(tokens.values()) / units, per_unit)


def _count_asked(line: Line, name: str) -> int:
    """Return of how many units a metric has been asked, and that have ended: by the dice, or for what was said of them."""
    parts = (part for source, part in line.count_units().parts if source != semconv.SOURCE_SHADOW)
    ended = chain.from_iterable(part.outcomes.items() for part in parts)
    return sum(units for (metric, outcome, _), units in ended if metric == name and not outcome.not_attempted)


def _of_metric(name: str, sums: Mapping[tuple[tuple[str, str], ...], float]) -> dict[str, float]:
    """Return model → what a sum says of a metric."""
    totals = dict[str, float]()
    for labels, amount in sums.items():
        attributes = dict(labels)
        if attributes[semconv.EVALUATION_NAME] == name:
            model = attributes[semconv.REQUEST_MODEL]
            totals[model] = totals.get(model, 0.0) + amount
    return totals


def _notes(line: Line) -> Iterator[str]:
    if line.pacer is not None:
        yield "budgets lower the rates by the hour: what is told here is without that"
    if line.of_sessions:
        yield f"conversations are not previewed: {', '.join(line.of_sessions)}"
