"""Rules and rates → which of some units they would take, and how many they are expected to. Nothing is scored. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, zip_longest
from typing import Final

from spanscore.config.sampling import HeadSampling, Rule
from spanscore.core.job import BASE, Decision
from spanscore.core.span import SamplingContext, UnitKey
from spanscore.sampling.rates import DEFAULT_KEY, RateSampler
from spanscore.sampling.rules import matches

__all__ = ["PreviewTally", "TakenUnit", "TakerCount"]

_NAMED: Final = 10
"""Units that are told one by one."""
_LOOKS_AT: Final[Mapping[str, str]] = {
    "workflow": "name",
    "status": "status",
    "slower_than": "duration_ns",
    "any_error": "any_error",
    "min_tool_calls": "tool_calls",
    "model": "models",
    "score": "scores",
    "metadata": "metadata",
}
"""What a rule asks for → the fact at which it looks for that."""


@dataclass(slots=True)
class TakerCount:
    """What a rule, a metric's own rate, or a metric does to units.

    Attributes:
        matched: units for which it is.
        taken: of them, those that it takes; by a rule: that no larger rate is for.
        expected: of them, how many that are on average: the sum of the probabilities.
        unknown: units of which nobody knows whether it is for them; none of them is counted above.
    """

    matched: int = 0
    taken: int = 0
    expected: float = 0.0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class TakenUnit:
    """One unit that is taken.

    Attributes:
        name: of the workflow, agent or model that was run; empty where it is not known.
        began_ns: since the epoch; None likewise.
        taken: metric → the rule that takes it, and with which probability of all traffic, (0, 1].
    """

    key: UnitKey
    name: str
    began_ns: int | None
    taken: Mapping[str, tuple[str, float]]


@dataclass(slots=True)
class _Named:
    """The first units of each rule."""

    of_rule: dict[str, list[TakenUnit]] = field(default_factory=dict)

    def add(self, unit: TakenUnit) -> None:
        for rule in {rule: None for rule, _ in unit.taken.values()}:
            kept = self.of_rule.setdefault(rule, [])
            if len(kept) < _NAMED:
                kept.append(unit)

    def __iter__(self) -> Iterator[TakenUnit]:
        """Yield the first of each rule, then the second of each, each once: a rule that takes few is among them."""
        units = (unit for unit in chain.from_iterable(zip_longest(*self.of_rule.values())) if unit is not None)
        return iter({unit.key: unit for unit in units}.values())


class PreviewTally:
    """Throws the dice of a sampler for units that have ended, and counts. Budgets, which lower rates by the hour, have no say.

    Args:
        rates: metric → its own rate, [0, 1].
        rules: that raise it.
        key: of the hash; likewise ``head_sampling_rate`` and ``service``, as of the sampler that would take them.
        metadata: keys that the units' metadata would show; None = all that they had.

    Attributes:
        units: that were counted.
        taken: of them, those that some metric takes.
        rules: name → what it does; ``base``, a metric's own rate, is the first.
        metrics: metric → what is done for it.
        scores: (rule, metric) → units that the metric takes by it.

    Raises:
        ConfigurationError: a rate is outside [0, 1].
    """

    def __init__(
        self,
        rates: Mapping[str, float],
        rules: Sequence[Rule] = (),
        *,
        key: bytes = DEFAULT_KEY,
        head_sampling_rate: HeadSampling | float = 1.0,
        service: Callable[[], str] = str,
        metadata: Collection[str] | None = None,
    ) -> None:
        self._rates, self._given = dict(rates), tuple(rules)
        self._make = partial(RateSampler, rates, key=key, head_sampling_rate=head_sampling_rate, service=service)
        self._metadata = metadata
        self._samplers: dict[tuple[int, ...], RateSampler] = {}
        self._sampler(())  # refuses what is no rate
        self._named = _Named()
        self.units = self.taken = 0
        self.rules = {name: TakerCount() for name in (BASE, *(rule.name for rule in rules))}
        self.metrics = {name: TakerCount() for name in rates}
        self.scores: Counter[tuple[str, str]] = Counter()

    def add(self, facts: SamplingContext, began_ns: int | None = None) -> Mapping[str, Decision]:
        """Count a unit; return the decisions on it. What another process decided on it does not stand here."""
        facts = facts._replace(decided=None)
        held = [self._holds(rule, facts) for rule in self._given]
        sampler = self._sampler(tuple(place for place, holds in enumerate(held) if holds is None))
        decisions = {metric: sampler.decide(facts, metric) for metric in self._rates}
        self.units += 1
        self._count_matches(held)
        self._count_taken(decisions)
        if by := {metric: (one.rule, one.probability) for metric, one in decisions.items() if one.take}:
            self.taken += 1
            self._named.add(TakenUnit(facts.key, facts.name or "", began_ns, by))
        return decisions

    def named(self) -> tuple[TakenUnit, ...]:
        """Return ten of the units that are taken, each rule's among them; in the order in which they began."""
        return tuple(sorted(islice(self._named, _NAMED), key=lambda unit: unit.began_ns or 0))

    def unlisted(self, rule: Rule) -> tuple[str, ...]:
        """Return the keys of metadata at which a rule looks and that the units would not show."""
        if self._metadata is None:
            return ()
        return tuple(key for key in rule.when.metadata or {} if key not in self._metadata)

    def _sampler(self, unknown: tuple[int, ...]) -> RateSampler:
        """Return one without the rules of which it is not known whether they are for a unit: to it, they are for all."""
        if unknown not in self._samplers:
            rules = [rule for place, rule in enumerate(self._given) if place not in unknown]
            self._samplers[unknown] = self._make(rules=rules)
        return self._samplers[unknown]

    def _count_matches(self, held: Sequence[bool | None]) -> None:
        by_name = dict[str, bool | None]({BASE: True})
        for rule, holds in zip(self._given, held, strict=True):
            known = by_name.get(rule.name, False)  # two may share a name
            by_name[rule.name] = True if known or holds else None if None in (known, holds) else False
        for name, holds in by_name.items():
            self.rules[name].matched += holds is True
            self.rules[name].unknown += holds is None

    def _count_taken(self, decisions: Mapping[str, Decision]) -> None:
        shares, takers = dict[str, float](), set[str]()
        for metric, decision in decisions.items():
            share, count, rule = _share(decision), self.metrics[metric], decision.rule
            count.matched += 1
            count.taken += decision.take
            count.expected += share
            self.scores[rule, metric] += decision.take
            shares[rule] = max(share, shares.get(rule, 0.0))  # all metrics share a unit's dice
            takers |= {rule} if decision.take else set()
        for rule, share in shares.items():
            self.rules[rule].taken += rule in takers
            self.rules[rule].expected += share

    def _holds(self, rule: Rule, facts: SamplingContext) -> bool | None:
        """Return whether a rule is for a unit; None where a fact at which it looks is not known, and no other says no."""
        if rule.when.score is not None and rule.when.score.metric not in (facts.scores or {}):
            facts = facts._replace(scores=None)
        if self.unlisted(rule):
            facts = facts._replace(metadata=None)
        if not matches(rule, facts):
            return False
        asked = (fact for asks, fact in _LOOKS_AT.items() if getattr(rule.when, asks) not in (None, False, {}))
        return None if any(getattr(facts, fact) is None for fact in asked) else True


def _share(decision: Decision) -> float:
    """Return with which probability a unit that is here is taken, [0, 1]: what upstream left out is not here."""
    return min(1.0, decision.probability / decision.upstream)
