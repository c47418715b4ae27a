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
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from spanscore.codec.text import jsonable
from spanscore.errors import ConfigurationError
from spanscore.model.job import Decision
from spanscore.model.span import Facts, UnitKey

__all__ = ["DEFAULT_KEY", "RateSampler", "Rule", "decode_threshold", "encode_threshold", "probability", "threshold"]

_SPACE: Final = 1 << 56
_MASK: Final = _SPACE - 1
_HEX_DIGITS: Final = 14
_KEY_BYTES: Final = 64
DEFAULT_KEY: Final = b"spanscore/unit-sampling/1"
"""Published, so that replicas agree without being told; ``sampling.key`` replaces it."""


def threshold(rate: float) -> int:
    """Return T for a rate in (0, 1]; 2**56, which no R reaches, for 0."""
    return _SPACE - round(rate * _SPACE)


def probability(t: int) -> float:
    """Return the probability with which R ≥ T."""
    return (_SPACE - t) / _SPACE


def encode_threshold(t: int) -> str:
    """Return T as the value of ``th``: 14 hex digits without trailing zeros, ``0`` for T = 0."""
    return f"{t:0{_HEX_DIGITS}x}".rstrip("0") or "0"


def decode_threshold(text: str) -> int | None:
    """Return T from the value of ``th`` (zeros padded on the right); None when it is not one."""
    if not 1 <= len(text) <= _HEX_DIGITS:
        return None
    try:
        return int(text.ljust(_HEX_DIGITS, "0"), 16)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Rule:
    """Scores matching units at a rate of their own, where that is larger than the metric's.

    Attributes:
        rate: probability in [0, 1].
        name: stands on the score as ``spanscore.sampling.rule``.
        status: ``error`` or ``ok`` (everything that is no error); None = any.
        workflow: the name of the root run; None = any.
        min_duration_s: units at least this slow; None = any.
        metadata: key → value that the root run's metadata must have; empty = any.
    """

    rate: float
    name: str
    status: str | None = None
    workflow: str | None = None
    min_duration_s: float | None = None
    metadata: Mapping[str, Any] | None = None

    def matches(self, facts: Facts) -> bool:
        """Whether it applies; a fact that is not known yet counts as a match, so that nothing is ruled out too early."""
        return self._matches_start(facts) and self._matches_end(facts)

    def _matches_start(self, facts: Facts) -> bool:
        if self.workflow is not None and facts.name != self.workflow:
            return False
        return all(_equal(facts.metadata.get(key), value) for key, value in (self.metadata or {}).items())

    def _matches_end(self, facts: Facts) -> bool:
        if (
            self.status is not None
            and facts.status is not None
            and (facts.status == "error") != (self.status == "error")
        ):
            return False
        if self.min_duration_s is None or facts.duration_ns is None:
            return True
        return facts.duration_ns >= self.min_duration_s * 1e9


def _equal(given: Any, wanted: Any) -> bool:
    """Compare a value of an application's metadata, which may be anything, as JSON has it: its own ``==`` may hang."""
    return given is wanted or jsonable(given) == jsonable(wanted)


class RateSampler:
    """One rate per metric, raised by the rules that match.

    Args:
        rates: metric → rate in [0, 1].
        rules: the largest matching rate wins; the metric's own is the floor.
        key: of the hash; at most 64 bytes.

    Raises:
        ConfigurationError: a rate is outside [0, 1], or the key too long.
    """

    def __init__(self, rates: Mapping[str, float], *, rules: Sequence[Rule] = (), key: bytes = DEFAULT_KEY) -> None:
        _check_rates({**rates, **{f"rule {rule.name}": rule.rate for rule in rules}})
        if not 0 < len(key) <= _KEY_BYTES:
            raise ConfigurationError(f"sampling.key has {len(key)} bytes; allowed are 1 to {_KEY_BYTES}")
        self._rates = dict(rates)
        self._rules = tuple(rules)
        self._hash = blake2b(key=key)
        self._most = max(self._rates.values(), default=0.0)
        self._most_threshold = threshold(self._most)

    def may(self, facts: Facts) -> bool:
        """Whether any metric could still take the unit, whatever the facts turn out to be."""
        t = self._most_threshold
        if self._rules:
            t = threshold(max(self._most, *(rule.rate for rule in self._rules if rule.matches(facts)), 0.0))
        if not facts.trace_state:  # the usual case, on the application's thread
            return self._hashed(facts) >= t
        r, upstream = self._randomness(facts)
        return r >= (t if upstream is None else _thinned(t, upstream))

    def foresee(self, key: UnitKey) -> bool | None:
        """Return what ``may`` will say of the first span of a new trace; None where rules ask for more than its ids."""
        return None if self._rules else self._hashed(Facts(key, is_trace_root=True)) >= self._most_threshold

    def decide(self, facts: Facts, metric: str) -> Decision:
        """Decide for one metric; facts that are not known yet count as if they matched."""
        rate, rule = self._rates.get(metric, 0.0), "base"
        for candidate in self._rules:
            if candidate.rate > rate and candidate.matches(facts):
                rate, rule = candidate.rate, candidate.name
        r, upstream = self._randomness(facts)
        t = threshold(rate) if upstream is None else _thinned(threshold(rate), upstream)
        return Decision(take=r >= t, probability=probability(t), threshold=t, rule=rule)

    def _randomness(self, facts: Facts) -> tuple[int, int | None]:
        """Return R, and the upstream threshold when R is the trace's own."""
        if facts.trace_state and facts.is_trace_root:
            fields = _ot_fields(facts.trace_state)
            upstream = decode_threshold(fields.get("th", ""))
            if upstream is not None:
                return _explicit_randomness(fields.get("rv", ""), facts.key.trace_id), upstream
        return self._hashed(facts), None

    def _hashed(self, facts: Facts) -> int:
        trace_id, span_id = facts.key
        digest = self._hash.copy()
        if facts.is_trace_root:
            digest.update(trace_id.to_bytes(16, "big"))
        else:
            digest.update((trace_id << 64 | span_id).to_bytes(24, "big"))
        return int.from_bytes(digest.digest()[:7], "big")


def _thinned(t: int, upstream: int) -> int:
    """Return the threshold of the share ``t`` of what arrives through ``upstream``: probabilities multiply."""
    return _SPACE - (_SPACE - t) * (_SPACE - upstream) // _SPACE


def _explicit_randomness(rv: str, trace_id: int) -> int:
    if len(rv) == _HEX_DIGITS:
        try:
            return int(rv, 16)
        except ValueError:
            pass
    return trace_id & _MASK


def _ot_fields(trace_state: str) -> dict[str, str]:
    for member in trace_state.split(","):
        vendor, _, value = member.strip().partition("=")
        if vendor == "ot":
            return dict(field.split(":", 1) for field in value.split(";") if ":" in field)
    return {}


def _check_rates(rates: Mapping[str, float]) -> None:
    for name, rate in rates.items():
        if not 0.0 <= rate <= 1.0:
            raise ConfigurationError(f"the sampling rate of {name} is {rate}; allowed is 0 to 1")
