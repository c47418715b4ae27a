"""Sampling: who is scored, and with which probability. Pure; same facts, same answer, on every replica and replay.

The OpenTelemetry rule (specification, ``trace/tracestate-probability-sampling.md``): R and T have 56 bits, a unit is kept
when R ≥ T, and its probability is (2**56 − T) / 2**56, derived from T and never from the configured rate. All metrics and
rules share one R per unit, so a smaller rate takes a subset of what a larger one takes.

R is the trace's own only where ``ot=th`` says that upstream sampled by it, and only for the trace's root. Otherwise R is a
keyed hash: the Python SDK's stable ratio sampler keeps *low* trace ids and writes no ``th``, so behind it the trace id's
own bits would score 100 % of the traces, or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final

from spanscore.errors import ConfigurationError
from spanscore.model.job import Decision
from spanscore.model.span import Facts, UnitKey
from spanscore.sampling.pacing import BudgetPacer
from spanscore.sampling.rules import Rule
from spanscore.sampling.threshold import probability, randomness_of_trace, thinned, threshold

__all__ = ["DEFAULT_KEY", "RateSampler"]

BUDGET: Final = "budget"
"""The rule of a unit that only a budget kept from being taken."""
_KEY_BYTES: Final = 64
DEFAULT_KEY: Final = b"spanscore/unit-sampling/1"
"""Published, so that replicas agree without a setting; ``sampling.key`` replaces it."""


class RateSampler:
    """One rate per metric, raised by the rules that match.

    Args:
        rates: metric → rate in [0, 1].
        rules: the largest matching rate wins; the metric's own is the floor.
        key: of the hash; at most 64 bytes.
        pacer: lowers the rate that comes out so that budgets last; None = there are none.

    Raises:
        ConfigurationError: a rate is outside [0, 1], or the key too long.
    """

    def __init__(
        self,
        rates: Mapping[str, float],
        *,
        rules: Sequence[Rule] = (),
        key: bytes = DEFAULT_KEY,
        pacer: BudgetPacer | None = None,
    ) -> None:
        for name, rate in [*rates.items(), *((f"rule {rule.name}", rule.rate) for rule in rules)]:
            if not 0.0 <= rate <= 1.0:
                raise ConfigurationError(f"the sampling rate of {name} is {rate}; allowed is 0 to 1")
        if not 0 < len(key) <= _KEY_BYTES:
            raise ConfigurationError(f"sampling.key has {len(key)} bytes; allowed are 1 to {_KEY_BYTES}")
        self._rates = dict(rates)
        self._rules = tuple(rules)
        self._pacer = pacer
        self._hash = blake2b(key=key)
        self._most = max(self._rates.values(), default=0.0)
        self._most_threshold = threshold(self._most)

    def may(self, facts: Facts) -> bool:
        """Whether any metric could still take the unit, whatever the facts turn out to be, and whatever is left to spend."""
        t = self._most_threshold
        if self._rules:
            t = threshold(max(self._most, *(rule.rate for rule in self._rules if rule.matches(facts)), 0.0))
        if not facts.trace_state:  # the usual case, on the application's thread
            return self._hashed(facts) >= t
        r, upstream = self._randomness(facts)
        return r >= (t if upstream is None else thinned(t, upstream))

    def would_sample(self, key: UnitKey) -> bool | None:
        """Return what ``may`` will say of the first span of a new trace; None where rules ask for more than its ids."""
        return None if self._rules else self._hashed(Facts(key, is_trace_root=True)) >= self._most_threshold

    def decide(self, facts: Facts, metric: str) -> Decision:
        """Decide for one metric, once, when the unit closes; facts that are not known yet count as if they matched.

        A unit that the rate would take, and not the rate that budgets leave of it, has the rule ``budget``.
        """
        rate, rule = self._rates.get(metric, 0.0), "base"
        for candidate in self._rules:
            if candidate.rate > rate and candidate.matches(facts):
                rate, rule = candidate.rate, candidate.name
        r, upstream = self._randomness(facts)
        t = _threshold(rate, upstream)
        if self._pacer is not None and r >= t:
            t = _threshold(rate * self._pacer.factor(metric), upstream)
            self._pacer.count(metric, taken=r >= t)
            rule = rule if r >= t else BUDGET
        return Decision(take=r >= t, probability=probability(t), threshold=t, rule=rule)

    def _randomness(self, facts: Facts) -> tuple[int, int | None]:
        """Return R, and the upstream threshold when R is the trace's own."""
        if facts.trace_state and facts.is_trace_root:
            of_trace = randomness_of_trace(facts.trace_state, facts.key.trace_id)
            if of_trace is not None:
                return of_trace
        return self._hashed(facts), None

    def _hashed(self, facts: Facts) -> int:
        trace_id, span_id = facts.key
        digest = self._hash.copy()
        if facts.is_trace_root:
            digest.update(trace_id.to_bytes(16, "big"))
        else:
            digest.update((trace_id << 64 | span_id).to_bytes(24, "big"))
        return int.from_bytes(digest.digest()[:7], "big")


def _threshold(rate: float, upstream: int | None) -> int:
    """Return T of a rate: of all traffic, where upstream let only a share of it through."""
    return threshold(rate) if upstream is None else thinned(threshold(rate), upstream)
