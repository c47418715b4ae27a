"""Sampling: who is scored, and with which probability. Pure; same facts, same answer, on every replica and replay.

The OpenTelemetry rule (specification, ``trace/tracestate-probability-sampling.md``): R and T have 56 bits, a unit is kept
when R ≥ T, and its probability is (2**56 − T) / 2**56, derived from T and never from the configured rate. All metrics and
rules share one R per unit, so a smaller rate takes a subset of what a larger one takes.

The probability of a score is over all traffic that upstream tells of, by ``ot=th`` or as ``head_sampling_rate``: its share
times ours, for a trace's root and for a unit with a remote parent alike. Else the one would stand for ten, the other for one.
A unit with neither counts as if no head sampler had dropped any. ``Decision.upstream_by`` names the source, so that such units
are counted beside those with ``ot=th``.

R is the trace's own only where ``ot=th`` says that upstream sampled by it, and only for the trace's root. Otherwise R is a
keyed hash: the Python SDK's stable ratio sampler keeps *low* trace ids and writes no ``th``, so behind it the trace id's
own bits would score 100 % of the traces, or none. A hash meets the T of our share alone: upstream did not look at it.
R is the hash, too, if the trace's own is below the T of ``ot=th``: the Collector's tail sampler hashes ids as well.

A session has an R of its own, the keyed hash of its raw id: its turns are many traces, and are wanted all or none. Rules look
at units and not at it, and upstream sampled its turns apart: what it stands for is our share alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from operator import itemgetter
from types import MappingProxyType
from typing import Final, NamedTuple

from spanscore.config.sampling import HeadSampling, Rule, head_shares
from spanscore.core.job import BASE, CONFIGURED, STATED, UNKNOWN, Decision
from spanscore.core.span import SamplingContext
from spanscore.errors import ConfigurationError
from spanscore.sampling.pacing import BudgetPacer
from spanscore.sampling.rules import matches
from spanscore.sampling.threshold import probability, randomness_of_trace, thinned, threshold, upstream_of

__all__ = ["DEFAULT_KEY", "RateSampler"]

BUDGET: Final = "budget"
"""The rule of a unit that only a budget kept from being taken."""
FEEDBACK: Final = "feedback"
"""The rule of a unit that is judged because of what was said of it."""
SUBMITTED: Final = "submitted"
"""The rule of a unit that is scored because somebody asked for it."""
_KEY_BYTES: Final = 64
DEFAULT_KEY: Final = b"spanscore/unit-sampling/1"
"""Published, so that replicas agree without a setting; ``sampling.key`` replaces it."""


class _Draw(NamedTuple):
    """The dice of a unit.

    Attributes:
        r: R.
        upstream: T of who sampled before us; 0 where nobody did.
        is_traces: whether R is the trace's own, by which upstream decided, too.
        upstream_by: source of ``upstream``, as ``Decision.upstream_by``.
    """

    r: int
    upstream: int
    is_traces: bool
    upstream_by: str = UNKNOWN

    def met(self, t: int) -> int:
        """Return what R must reach where our share is that of ``t``."""
        return thinned(t, self.upstream) if self.is_traces else t


class RateSampler:
    """One rate per metric, raised by the rules that match.

    Attributes:
        gate_metrics: metrics at whose scores rules look.

    Args:
        rates: metric → rate in [0, 1].
        sessions: likewise of the metrics that score sessions: a share of these.
        rules: the largest matching rate wins; the metric's own is the floor.
        key: of the hash; at most 64 bytes.
        pacer: lowers the rate that comes out so that budgets last; None = there are none.
        feedback_rate: at which units are kept for feedback, [0, 1].
        head_sampling_rate: with which a trace without ``ot=th`` came here at all, (0, 1]; or ``by_service`` and ``default``.
        service: returns the name of this process's service, for units without a resource of their own.

    Raises:
        ConfigurationError: a rate is outside [0, 1], the key too long, or the upstream probability none.
    """

    def __init__(
        self,
        rates: Mapping[str, float],
        *,
        sessions: Mapping[str, float] = MappingProxyType({}),
        rules: Sequence[Rule] = (),
        key: bytes = DEFAULT_KEY,
        pacer: BudgetPacer | None = None,
        feedback_rate: float = 0.0,
        head_sampling_rate: HeadSampling | float = 1.0,
        service: Callable[[], str] = str,
    ) -> None:
        for name, rate in [*rates.items(), *sessions.items(), *((f"rule {rule.name}", rule.rate) for rule in rules)]:
            if not 0.0 <= rate <= 1.0:
                raise ConfigurationError(f"the sampling rate of {name} is {rate}; allowed is 0 to 1")
        if not 0 < len(key) <= _KEY_BYTES:
            raise ConfigurationError(f"sampling.key has {len(key)} bytes; allowed are 1 to {_KEY_BYTES}")
        self._rates = dict(rates)
        self._sessions = dict(sessions)
        most = max(sessions.values(), default=0.0)
        self._session_threshold = threshold(most) if most > 0 else None
        self._rules = tuple(rules)
        self.gate_metrics = frozenset(rule.when.score.metric for rule in rules if rule.when.score is not None)
        self._pacer = pacer
        by_service, default = head_shares(head_sampling_rate)
        self._upstream = threshold(default), CONFIGURED if default < 1 else UNKNOWN
        self._upstream_of_service = {name: (threshold(share), CONFIGURED) for name, share in by_service.items()}
        self._service = service
        self._hash = blake2b(key=key)
        self._feedback_rate = feedback_rate
        self._most = max([feedback_rate, *self._rates.values()])
        self._most_threshold = threshold(self._most)

    def could_sample(self, facts: SamplingContext) -> bool:
        """Whether any metric could still take the unit, or its session, whatever is to come and whatever is left to spend."""
        if facts.decided is not None and any(decided.take for decided in facts.decided.values()):
            return True
        if self._session_threshold is not None and (
            facts.conversation_id is None or self.wants_session(facts.conversation_id)
        ):
            return True
        t = self._most_threshold
        if self._rules:
            t = threshold(max(self._most, *(rule.rate for rule in self._rules if matches(rule, facts)), 0.0))
        if not facts.trace_state:  # the usual case, on the application's thread
            return self._hashed(facts) >= t
        draw = self._draw(facts)
        return draw.r >= draw.met(t)

    def preview_trace(self, trace_id: bytes) -> bool | None:
        """Return what ``could_sample`` would return for the root of a trace without a trace state.

        None: more than the trace id (16 bytes) decides.
        """
        if self._rules or self._session_threshold is not None:
            return None
        return self._hash_of(trace_id) >= self._most_threshold

    def decide(self, facts: SamplingContext, metric: str) -> Decision:
        """Decide for one metric, once, when the unit closes; facts that are not known yet count as if they matched.

        A unit that the rate would take, and not the rate that budgets leave of it, has the rule ``budget``.
        What another process decided stands.
        """
        if facts.decided is not None and (decided := facts.decided.get(metric)) is not None:
            return Decision(decided.take, probability(decided.threshold), decided.threshold, decided.rule)
        rates = [(BASE, self._rates.get(metric, 0.0))]
        rates += [(rule.name, rule.rate) for rule in self._rules if matches(rule, facts)]
        rule, rate = max(rates, key=itemgetter(1))  # the first of equals: no rule gets the credit for what needed none
        return self._paced(self._draw(facts), metric, rate, rule, tuple(rates))

    def _paced(
        self, draw: _Draw, metric: str, rate: float, rule: str, rates: tuple[tuple[str, float], ...]
    ) -> Decision:
        take = draw.r >= draw.met(threshold(rate))
        if self._pacer is not None and take and metric not in self.gate_metrics:  # they ask no judge, and cost nothing
            rate *= self._pacer.factor(metric)
            take = draw.r >= draw.met(threshold(rate))
            self._pacer.count(metric, taken=take)
            rule = rule if take else BUDGET
        return _decision(draw, take, rate, rule, rates)

    def matches(self, facts: SamplingContext) -> bool:
        """Whether some rule is for it."""
        return any(matches(rule, facts) for rule in self._rules)

    def decide_submitted(self, facts: SamplingContext, metric: str) -> Decision:
        """Take a unit that was submitted to be scored; its probability is the upstream sampler's."""
        return _decision(self._draw(facts), True, 1.0, SUBMITTED, ())

    def for_feedback(self, facts: SamplingContext) -> Decision:
        """Decide whether a unit is kept for what somebody may say of it, by the same dice."""
        draw, rate = self._draw(facts), self._feedback_rate
        return _decision(draw, draw.r >= draw.met(threshold(rate)), rate, FEEDBACK, ())

    def wants_session(self, conversation_id: str) -> bool:
        """Whether some metric could take the session of this id, whatever is left to spend; none is that of no id."""
        t = self._session_threshold
        return t is not None and bool(conversation_id) and self._of_session(conversation_id) >= t

    def session(self, conversation_id: str, metric: str) -> Decision:
        """Decide on a session for one metric, at the metric's own rate and what budgets leave of it."""
        draw = _Draw(self._of_session(conversation_id), 0, False)
        base = self._sessions.get(metric, 0.0)
        return self._paced(draw, metric, base, BASE, ((BASE, base),))

    def _of_session(self, conversation_id: str) -> int:
        return self._hash_of(b"session/" + conversation_id.encode("utf-8", "surrogatepass"))

    def _draw(self, facts: SamplingContext) -> _Draw:
        upstream = upstream_of(facts.trace_state) if facts.trace_state else None
        if upstream is None:
            return self._untold(facts)
        if facts.is_trace_root and (r := randomness_of_trace(facts.trace_state, facts.key.trace_id)) >= upstream:
            return _Draw(r, upstream, True, STATED)
        return _Draw(self._hashed(facts), upstream, False, STATED)

    def _untold(self, facts: SamplingContext) -> _Draw:
        """Return the dice of a unit without ``ot=th``."""
        upstream, by = self._upstream
        if self._upstream_of_service:
            name = self._service() if facts.service_name is None else facts.service_name
            upstream, by = self._upstream_of_service.get(name, self._upstream)
        return _Draw(self._hashed(facts), upstream, False, by)

    def _hashed(self, facts: SamplingContext) -> int:
        trace_id, span_id = facts.sampled_by or facts.key
        is_root = facts.is_trace_root
        return self._hash_of(
            trace_id.to_bytes(16, "big") if is_root else (trace_id << 64 | span_id).to_bytes(24, "big")
        )

    def _hash_of(self, ids: bytes) -> int:
        digest = self._hash.copy()
        digest.update(ids)
        return int.from_bytes(digest.digest()[:7], "big")


def _decision(draw: _Draw, take: bool, rate: float, rule: str, rates: tuple[tuple[str, float], ...]) -> Decision:
    own = threshold(rate)
    t = thinned(own, draw.upstream)
    return Decision(
        take, probability(t), t, rule, draw.r, draw.met(own), probability(draw.upstream), rates, draw.upstream_by
    )
