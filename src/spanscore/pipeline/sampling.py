"""Decides which units are scored, and with which probability: by sampling rates, rules and the pace of budgets. Pure.

``R`` is a unit's random number, and ``T`` the threshold of a rate: a unit is sampled if R ≥ T. *Upstream* is a head sampler,
which dropped traces before they arrived.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import chain, islice, zip_longest
from math import inf
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from spanscore.config.judging import Budget, MetricCost
from spanscore.config.sampling import HeadSampling, Rule, RuleCondition, head_shares
from spanscore.core.codecs.text import jsonable
from spanscore.core.job import BASE, CONFIGURED, STATED, UNKNOWN, Decision
from spanscore.core.span import InnerGroup, SamplingContext, UnitKey
from spanscore.errors import ConfigurationError
from spanscore.judges.effects.budget_ledger import BudgetLedger


def matches(rule: Rule, facts: SamplingContext) -> bool:
    """Whether a rule applies to a unit. An unknown fact (None) counts as matching."""
    when = rule.when
    if when.workflow is not None and facts.name is not None and facts.name != when.workflow:
        return False
    failed = facts.status == "error"
    if when.status is not None and facts.status is not None and failed != (when.status == "error"):
        return False
    least_s = when.slower_than
    if least_s is not None and facts.duration_ns is not None and facts.duration_ns < least_s * 1e9:
        return False
    return _matches_metadata(when.metadata, facts.metadata) and _matches_inside(when, facts)


def _matches_metadata(expected: Mapping[str, Any] | None, metadata: Mapping[str, Any] | None) -> bool:
    if metadata is None or not expected:
        return True
    # as JSON, because an object's own ``==`` may hang
    pairs = [(metadata.get(key), value) for key, value in expected.items()]
    return all(value is wanted or jsonable(value) == jsonable(wanted) for value, wanted in pairs)


def _matches_inside(when: RuleCondition, facts: SamplingContext) -> bool:
    if when.any_error and facts.any_error is False:
        return False
    if when.min_tool_calls is not None and facts.tool_calls is not None and facts.tool_calls < when.min_tool_calls:
        return False
    if when.model is not None and facts.models is not None and when.model not in facts.models:
        return False
    if when.score is None or facts.scores is None:
        return True
    quality = facts.scores.get(when.score.metric)
    return quality is not None and quality < when.score.below


# T and R of the OpenTelemetry sampling rule have 56 bits (specification, ``trace/tracestate-probability-sampling.md``).
_SPACE: Final = 1 << 56
_HEX_DIGITS: Final = 14
_THRESHOLD: Final = re.compile(f"[0-9A-Fa-f]{{1,{_HEX_DIGITS}}}")
"""A threshold as text. ``int`` would also accept a sign, which gives a probability above 1."""
DEFAULT_KEY: Final = b"spanscore/unit-sampling/1"
"""Public, so that replicas agree without a setting; ``sampling.key`` replaces it."""
BUDGET: Final = "budget"
"""Rule of a unit that would be sampled without the budget."""
FEEDBACK: Final = "feedback"
"""Rule of a unit that is judged because of a human label."""
SUBMITTED: Final = "submitted"
"""Rule of a submitted unit."""


def threshold(rate: float) -> int:
    """Return T for a rate in [0, 1]. T is 2**56, which no R reaches, only for rate 0."""
    return _SPACE - max(round(rate * _SPACE), rate > 0)


def probability(t: int) -> float:
    """Return the probability with which R ≥ T."""
    return (_SPACE - t) / _SPACE


def decode_threshold(text: str) -> int | None:
    """Return T from the value of ``th``, 1 to 14 hex digits; None if it is invalid. Missing digits on the right are zeros."""
    return int(text.ljust(_HEX_DIGITS, "0"), 16) if _THRESHOLD.fullmatch(text) else None


def thinned(t: int, upstream: int) -> int:
    """Return the T whose probability is the product of the probabilities of ``t`` and ``upstream``.

    The product is rounded up, because a probability of 0 would have an infinite weight.
    """
    return _SPACE - ((_SPACE - t) * (_SPACE - upstream) + _SPACE - 1) // _SPACE


def upstream_of(trace_state: str) -> int | None:
    """Return T of the sampler upstream, from ``ot=th``; None if the trace state has no ``ot=th``."""
    return decode_threshold(_ot_fields(trace_state).get("th", ""))


def randomness_of_trace(trace_state: str, trace_id: int) -> int:
    """Return R of a trace, from ``ot=rv``, otherwise from its id."""
    rv = _ot_fields(trace_state).get("rv", "")
    explicit = decode_threshold(rv) if len(rv) == _HEX_DIGITS else None  # a threshold with all digits
    return trace_id % _SPACE if explicit is None else explicit


def _ot_fields(trace_state: str) -> dict[str, str]:
    for member in trace_state.split(","):
        vendor, _, value = member.strip().partition("=")
        if vendor == "ot":
            return dict(field.split(":", 1) for field in value.split(";") if ":" in field)
    return {}


STEPS: Final = 20
"""Number of steps in a budget's window."""
RESERVE: Final = 0.05
"""Share of a budget that is not planned, because units may cost more than expected, or more units may arrive."""
_MIN_SHARE: Final = 0.25
"""Share of the remaining money that may be planned in any case, so that a nearly spent window has some scores to its end."""
_MAX_RISE: Final = 1.5
"""Maximum rise of the factor per step, so that a burst after little traffic does not meet the full rate."""
_NEWEST_WEIGHT: Final = 0.3
"""Weight of the newest step in the expected values."""


@dataclass(eq=False, repr=False)
class BudgetPacer:
    """Lowers each metric's sampling rate by a factor, so that budgets last to the end of their window. Call on the span thread.

    Without the factor only the beginning of a window is scored: a measured bias of 0.005 to 0.013 on a day's mean. So a window
    has 20 steps, and the factor of each step is computed before the step, from the past alone. The probability on every score
    is therefore the true one, and Hájek's mean stays unbiased.

        factor = (money left − money of units under way) ÷ (expected units in the rest of the window × cost of a unit)

    A step ends early if its share is spent: in a burst of five times the traffic, with more expensive units, a whole step
    takes half of a window's money. In 25 simulated days with such bursts, this cut the units lost to a spent budget from 2 %
    to 0.05 %, and the bias of a day's mean from 0.005 to 0.000.

    Attributes:
        budgets: this process's part of each budget; at least one.
        spending: the money that the budgets have paid and reserved so far.
        under_way: returns metric → number of sampled units without a score yet.
        clock: returns seconds since the epoch.
    """

    budgets: Sequence[Budget]
    spending: BudgetLedger
    under_way: Callable[[], Mapping[str, int]]
    _: KW_ONLY
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._paces = [_BudgetPace(budget, self.clock()) for budget in self.budgets]

    def change(self, budgets: Sequence[Budget]) -> None:
        """Pace other budgets from now on. A budget of the same kind keeps its factor and its expected cost."""
        self.budgets, paces = budgets, {pace.budget.kind: pace for pace in self._paces}
        self._paces = [paces.get(budget.kind) or _BudgetPace(budget, self.clock()) for budget in budgets]
        for pace, budget in zip(self._paces, budgets, strict=True):
            pace.budget = budget

    def factors(self) -> list[float]:
        """Return each budget's present factor, in their order. Thread-safe."""
        return [pace.factor for pace in self._paces]

    def factor(self, metric: str) -> float:
        """Return the factor on a metric's rate, (0, 1], for a unit that closes now."""
        now_s = self.clock()
        for pace in self._paces:
            if pace.is_over(now_s):
                others = [other for other in self._paces if other is not pace]
                pace.begin(now_s, self.spending, self.under_way(), partial(self._least, paces=others))
        return self._least(metric, self._paces)

    def count(self, metric: str, *, taken: bool) -> None:
        """Count a unit that the rate samples without the factor; ``taken`` is whether the lowered rate samples it, too."""
        for pace in self._paces:
            if pace.budget.holds_for(metric):
                pace.count(metric, taken=taken)

    def _least(self, metric: str, paces: Sequence[_BudgetPace]) -> float:
        return min((pace.factor for pace in paces if pace.budget.holds_for(metric)), default=1.0)


@dataclass(slots=True)
class _RecentMean:
    """A weighted mean in which each new part reduces the weight of the earlier ones."""

    total: float = 0.0
    weight: float = 0.0

    def add(self, total: float, weight: float) -> None:
        self.total = (1 - _NEWEST_WEIGHT) * self.total + total
        self.weight = (1 - _NEWEST_WEIGHT) * self.weight + weight

    @property
    def value(self) -> float:
        return self.total / self.weight if self.weight > 0 else 0.0


@dataclass(slots=True)
class _MetricDemand:
    """The units and the money of one metric.

    Attributes:
        wanted: number of units of this step that the rate samples without the factor.
        taken: number of units of this step that the lowered rate samples.
        spent: the metric's cost when the step began.
        under_way: number of sampled units without a score when the step began.
        per_step: recent mean of ``wanted`` per whole step.
        newest: ``wanted`` of the last step, scaled to a whole step.
        per_unit: recent mean cost of a sampled unit.
    """

    wanted: int = 0
    taken: int = 0
    spent: float = 0.0
    under_way: int = 0
    per_step: _RecentMean = field(default_factory=_RecentMean)
    newest: float = 0.0
    per_unit: _RecentMean = field(default_factory=_RecentMean)

    @property
    def expected(self) -> float:
        """Expected cost of a step without the factor. A burst is expected to go on."""
        return max(self.per_step.value, self.newest) * self.per_unit.value


class _BudgetPace:
    """The present step, the factor and the expected cost of one budget."""

    def __init__(self, budget: Budget, now_s: float) -> None:
        self.budget = budget
        self.factor = 1.0
        self._step_s = budget.window_s / STEPS
        self._since_s = now_s
        self._step_money = inf  # money left for this step
        self._demands: dict[str, _MetricDemand] = {}
        self._not_attempted = 0  # rejected questions when the step began
        self._unpaid = 0.0  # expected cost of the units under way, beyond their reserved money

    def is_over(self, now_s: float) -> bool:
        """Whether the step is over: its time is over, or its money is spent; never for a budget that lowers no rates."""
        is_spent = self._step_money <= 0 and now_s > self._since_s
        return self.budget.lowers_rates and (is_spent or self._is_next(now_s))

    def count(self, metric: str, *, taken: bool) -> None:
        demand = self._demands.setdefault(metric, _MetricDemand())
        demand.wanted += 1
        demand.taken += taken
        self._step_money -= taken * demand.per_unit.value

    def begin(
        self, now_s: float, spending: BudgetLedger, under_way: Mapping[str, int], limit: Callable[[str], float]
    ) -> None:
        """Begin a step; ``limit`` returns the factor that other budgets allow a metric."""
        max_factor = min(1.0, self.factor * (_MAX_RISE if self._is_next(now_s) else 1.0))
        self._record_step(now_s, spending, under_way)
        budget_now = spending.limit(self.budget)
        money_left = budget_now - (spending.spent(self.budget) + self._unpaid)
        planned = max(money_left - RESERVE * budget_now, _MIN_SHARE * money_left)
        steps_left = STEPS - now_s / self._step_s % STEPS
        costs = [(limit(metric), demand.expected) for metric, demand in self._demands.items()]
        factor = min(max_factor, largest_factor(planned / steps_left, costs))
        if factor > 0:  # otherwise the last factor stays, because 1/π must be finite; units end as ``budget_exhausted``
            self.factor = factor
        self._step_money = planned / max(1.0, steps_left) if planned > 0 else inf

    def _record_step(self, now_s: float, spending: BudgetLedger, under_way: Mapping[str, int]) -> None:
        """Add the last step, and the idle time after it, to the expected values; set ``_unpaid``."""
        paid, not_attempted = spending.paid(), spending.not_attempted
        steps = (now_s - self._since_s) / self._step_s
        self._unpaid = 0.0
        for metric, demand in self._demands.items():
            cost = paid.get(metric, MetricCost())
            spent, reserved = cost.spent.of(self.budget.unit), cost.reserved.of(self.budget.unit)
            demand.newest = demand.wanted / steps
            demand.per_step.add(demand.wanted, steps)
            waiting = under_way.get(metric, 0)
            if not_attempted == self._not_attempted:  # a rejected unit would count as a unit without cost
                demand.per_unit.add(spent - demand.spent, max(0, demand.taken - (waiting - demand.under_way)))
            self._unpaid += max(0.0, waiting * demand.per_unit.value - reserved)
            demand.spent, demand.wanted, demand.taken, demand.under_way = spent, 0, 0, waiting
        self._since_s, self._not_attempted = now_s, not_attempted

    def _is_next(self, now_s: float) -> bool:
        return now_s // self._step_s > self._since_s // self._step_s


def largest_factor(money: float, costs: Sequence[tuple[float, float]]) -> float:
    """Return the largest factor at which all metrics together cost at most ``money``: infinite if no factor is needed, 0
    without money.

    ``costs`` has for each metric the factor that other budgets allow, and its cost without a factor.
    """
    if money <= 0:
        return 0.0
    rest = sum(cost for _, cost in costs)
    for limit, cost in sorted(costs):
        if money < limit * rest:
            return money / rest
        money -= limit * cost
        rest -= cost
    return inf


class _Draw(NamedTuple):
    """The random number of a unit.

    Attributes:
        r: R.
        upstream: T of the sampler upstream; 0 without one.
        is_of_trace: whether R is the random number of the trace, by which upstream also decided.
        upstream_by: source of ``upstream``, as in ``Decision.upstream_by``.
    """

    r: int
    upstream: int
    is_of_trace: bool
    upstream_by: str = UNKNOWN

    def threshold_to_meet(self, t: int) -> int:
        """Return the T that R must reach, if ``t`` is the T of spanscore's own share."""
        return thinned(t, self.upstream) if self.is_of_trace else t


class RateSampler:
    """Samples units by one rate per metric, which the matching rules raise. Pure: equal facts have equal decisions, on every
    replica and in a replay.

    By the OpenTelemetry rule a unit is sampled if R ≥ T. The probability is (2**56 − T) / 2**56, derived from T and never from
    the configured rate. All metrics and rules share one R per unit, so a smaller rate samples a subset of the units of a larger
    rate.

    The probability of a score is over all traffic: upstream's share times spanscore's. Upstream's share is ``ot=th``,
    otherwise ``head_sampling_rate``, otherwise 1; ``Decision.upstream_by`` names its source. This also holds for a unit with a
    remote parent.

    R depends on the kind of unit:

    - The root of a trace with ``ot=th``: the trace's random number, if it reaches the T of ``ot=th``.
    - Any other root: a keyed hash of its ids, compared with spanscore's T alone. The bits of the trace id are not random if
      upstream has used them: the Python SDK's ratio sampler keeps *low* trace ids and writes no ``th``, and the Collector's
      tail sampler hashes ids as well.
    - A session: the keyed hash of its raw id, so that all or none of its turns are sampled. Rules do not apply. The probability
      is spanscore's share alone, because upstream sampled the turns separately.
    - An inner unit: the keyed hash of its ids, compared with the T of its entry's rate. It exists only below a recorded root,
      so its probability is that rate times the probability with which the root was recorded.

    Attributes:
        condition_metrics: metrics with scores that rules read.

    Args:
        rates: metric → rate in [0, 1].
        sessions: metric → share of sessions that it scores, [0, 1].
        inner: entry of ``units.also`` → share of its units below recorded roots that its metrics score, [0, 1].
        rules: the largest matching rate wins; the metric's own rate is the minimum.
        key: key of the hash, 1 to 64 bytes.
        pacer: lowers the rates so that budgets last; None = no budget.
        feedback_rate: share of units that are kept for feedback, [0, 1].
        head_sampling_rate: share of traces without ``ot=th`` that arrived here, (0, 1]; or ``by_service`` and ``default``.
        service: returns the name of this process's service, for units without their own resource.

    Raises:
        ConfigurationError: a rate is outside [0, 1], or ``head_sampling_rate`` is invalid.
    """

    def __init__(
        self,
        rates: Mapping[str, float],
        *,
        sessions: Mapping[str, float] = MappingProxyType({}),
        inner: Mapping[InnerGroup, float] = MappingProxyType({}),
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
        self._rates = dict(rates)
        self._sessions = dict(sessions)
        self._inner = dict(inner)
        session_rate = max(sessions.values(), default=0.0)
        self._session_threshold = threshold(session_rate) if session_rate > 0 else None
        self._rules = tuple(rules)
        self.condition_metrics = frozenset(rule.when.score.metric for rule in rules if rule.when.score is not None)
        self._pacer = pacer
        by_service, default = head_shares(head_sampling_rate)
        self._upstream = threshold(default), CONFIGURED if default < 1 else UNKNOWN
        self._upstream_of_service = {name: (threshold(share), CONFIGURED) for name, share in by_service.items()}
        self._service = service
        self._hash = blake2b(key=key)
        self._feedback_rate = feedback_rate
        self._max_rate = max([feedback_rate, *self._rates.values()])
        self._max_rate_threshold = threshold(self._max_rate)

    def could_sample(self, facts: SamplingContext) -> bool:
        """Whether any metric could sample the unit or its session without budgets, whatever its unknown facts will be."""
        if facts.decided is not None and any(decided.take for decided in facts.decided.values()):
            return True
        session_id = facts.conversation_id
        if self._session_threshold is not None and (session_id is None or self.wants_session(session_id)):
            return True
        t = self._highest_threshold(facts) if self._rules else self._max_rate_threshold
        if not facts.trace_state:  # the usual case, on the application's thread
            return self._hash_facts(facts) >= t
        draw = self._draw(facts)
        return draw.r >= draw.threshold_to_meet(t)

    def records_root(self, facts: SamplingContext) -> bool:
        """Whether a closed unit was recorded because a metric of units could sample it, by the facts of its start."""
        draw = self._draw(facts)
        return draw.r >= draw.threshold_to_meet(self._recording_threshold(facts))

    def could_sample_trace(self, trace_id: bytes) -> bool | None:
        """Return ``could_sample`` for the root of a trace without a trace state, from the 16 bytes of the trace id; None if it
        depends on other facts.
        """
        if self._rules or self._session_threshold is not None:
            return None
        return self._hash_of(trace_id) >= self._max_rate_threshold

    def decide(self, facts: SamplingContext, metric: str) -> Decision:
        """Decide for one metric, once, when the unit closes. Rules with unknown facts count as matching.

        If only a budget prevents sampling, the decision has the rule ``budget``. The decision of another process is final.
        """
        if facts.decided is not None and (decided := facts.decided.get(metric)) is not None:
            return Decision(decided.take, probability(decided.threshold), decided.threshold, decided.rule)
        if facts.inner is not None:
            root, rate = self._draw(facts), self._inner[facts.inner]
            recorded = thinned(self._recording_threshold(facts), root.upstream)
            r = self._hash_of(b"inner/" + facts.key.trace_id.to_bytes(16) + facts.key.span_id.to_bytes(8))
            return self._decide_paced(_Draw(r, recorded, False, root.upstream_by), metric, rate, BASE, ((BASE, rate),))
        rates = [(BASE, self._rates.get(metric, 0.0))]
        rates += [(rule.name, rule.rate) for rule in self._rules if matches(rule, facts)]
        # If rates are equal, the first: the metric's own, then the rules in order.
        rule, rate = max(rates, key=itemgetter(1))
        return self._decide_paced(self._draw(facts), metric, rate, rule, tuple(rates))

    def _recording_threshold(self, facts: SamplingContext) -> int:
        """Return the T with which a root is recorded. The facts that are unknown when it begins count as matching."""
        if not self._rules:
            return self._max_rate_threshold
        return self._highest_threshold(
            facts._replace(status=None, duration_ns=None, any_error=None, tool_calls=None, models=None, scores=None)
        )

    def _highest_threshold(self, facts: SamplingContext) -> int:
        """Return the T of the largest rate that a metric may have with these facts."""
        return threshold(max(self._max_rate, *(rule.rate for rule in self._rules if matches(rule, facts)), 0.0))

    def _decide_paced(
        self, draw: _Draw, metric: str, rate: float, rule: str, rates: tuple[tuple[str, float], ...]
    ) -> Decision:
        take = draw.r >= draw.threshold_to_meet(threshold(rate))
        if self._pacer is not None and take and metric not in self.condition_metrics:  # condition metrics ask no judge
            rate *= self._pacer.factor(metric)
            take = draw.r >= draw.threshold_to_meet(threshold(rate))
            self._pacer.count(metric, taken=take)
            rule = rule if take else BUDGET
        return _decision(draw, take, rate, rule, rates)

    def matches(self, facts: SamplingContext) -> bool:
        """Whether any rule applies to a unit."""
        return any(matches(rule, facts) for rule in self._rules)

    def decide_submitted(self, facts: SamplingContext, metric: str) -> Decision:
        """Sample a submitted unit with the probability of the upstream sampler."""
        return _decision(self._draw(facts), True, 1.0, SUBMITTED, ())

    def for_feedback(self, facts: SamplingContext) -> Decision:
        """Decide whether a unit is kept for feedback, by the random number that also decides on sampling."""
        draw, rate = self._draw(facts), self._feedback_rate
        return _decision(draw, draw.r >= draw.threshold_to_meet(threshold(rate)), rate, FEEDBACK, ())

    def wants_session(self, conversation_id: str) -> bool:
        """Whether any metric could sample the session of this id, without budgets; False for an empty id."""
        t = self._session_threshold
        return t is not None and bool(conversation_id) and self._hash_of_session(conversation_id) >= t

    def session(self, conversation_id: str, metric: str) -> Decision:
        """Decide on a session for one metric, at the metric's own rate, lowered by budgets."""
        draw = _Draw(self._hash_of_session(conversation_id), 0, False)
        base = self._sessions.get(metric, 0.0)
        return self._decide_paced(draw, metric, base, BASE, ((BASE, base),))

    def _hash_of_session(self, conversation_id: str) -> int:
        return self._hash_of(b"session/" + conversation_id.encode("utf-8", "surrogatepass"))

    def _draw(self, facts: SamplingContext) -> _Draw:
        upstream = upstream_of(facts.trace_state) if facts.trace_state else None
        if upstream is None:
            upstream, by = self._upstream
            if self._upstream_of_service:
                name = self._service() if facts.service_name is None else facts.service_name
                upstream, by = self._upstream_of_service.get(name, self._upstream)
            return _Draw(self._hash_facts(facts), upstream, False, by)
        if facts.is_trace_root and (r := randomness_of_trace(facts.trace_state, facts.key.trace_id)) >= upstream:
            return _Draw(r, upstream, True, STATED)
        return _Draw(self._hash_facts(facts), upstream, False, STATED)

    def _hash_facts(self, facts: SamplingContext) -> int:
        trace_id, span_id = facts.sampled_by or facts.key
        is_root = facts.is_trace_root
        return self._hash_of(trace_id.to_bytes(16) if is_root else (trace_id << 64 | span_id).to_bytes(24))

    def _hash_of(self, ids: bytes) -> int:
        digest = self._hash.copy()
        digest.update(ids)
        return int.from_bytes(digest.digest()[:7], "big")


def _decision(draw: _Draw, take: bool, rate: float, rule: str, rates: tuple[tuple[str, float], ...]) -> Decision:
    own = threshold(rate)
    t = thinned(own, draw.upstream)
    upstream, met = probability(draw.upstream), draw.threshold_to_meet(own)
    return Decision(take, probability(t), t, rule, draw.r, met, upstream, rates, draw.upstream_by)


_MAX_NAMED: Final = 10
"""Maximum number of sampled units that a preview lists."""
_FACT_OF: Final[Mapping[str, str]] = {
    "workflow": "name",
    "status": "status",
    "slower_than": "duration_ns",
    "any_error": "any_error",
    "min_tool_calls": "tool_calls",
    "model": "models",
    "score": "scores",
    "metadata": "metadata",
}
"""Field of a rule's condition → the fact that the field is compared with."""


@dataclass(slots=True)
class SamplingCount:
    """Counts the units of a rule, of the metrics' own rates, or of a metric.

    Attributes:
        matched: number of units to which it applies.
        taken: number of units that it samples. A unit that several rules match counts for the rule with the largest rate.
        expected: expected number of units that it samples: the sum of the probabilities.
        unknown: number of units with unknown facts for its condition; no other count includes these units.
    """

    matched: int = 0
    taken: int = 0
    expected: float = 0.0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class TakenUnit:
    """One sampled unit.

    Attributes:
        name: name of the workflow, agent or model; empty if unknown.
        began_ns: nanoseconds since the epoch; None if unknown.
        taken: metric → (the rule that samples the unit, its probability in all traffic, (0, 1]).
    """

    key: UnitKey
    name: str
    began_ns: int | None
    taken: Mapping[str, tuple[str, float]]


class PreviewTally:
    """Counts the ended units that rates and rules would sample, without budgets. No unit is scored.

    The arguments are those of `RateSampler`, and ``metadata``: the metadata keys that the units have, None = all keys.

    Attributes:
        taken: number of units that a metric samples.
        rules: name → counts; ``base``, the metrics' own rates, is the first.
        metrics: metric → counts.
        scores: (rule, metric) → number of units that the metric samples by the rule.

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
        self._rates, self._all_rules = dict(rates), tuple(rules)
        self._make = partial(RateSampler, rates, key=key, head_sampling_rate=head_sampling_rate, service=service)
        self._metadata = metadata
        self._samplers: dict[tuple[int, ...], RateSampler] = {}
        self._sampler(())  # rejects invalid rates
        self._named: dict[str, list[TakenUnit]] = {}  # rule → the first units that it samples
        self.units = self.taken = 0
        self.rules = {name: SamplingCount() for name in (BASE, *(rule.name for rule in rules))}
        self.metrics = {name: SamplingCount() for name in rates}
        self.scores: Counter[tuple[str, str]] = Counter()

    def add(self, facts: SamplingContext, began_ns: int | None = None) -> Mapping[str, Decision]:
        """Count a unit; return the decisions on it, without those of another process."""
        facts = facts._replace(decided=None)
        rule_matches = [self._match(rule, facts) for rule in self._all_rules]
        sampler = self._sampler(tuple(index for index, match in enumerate(rule_matches) if match is None))
        decisions = {metric: sampler.decide(facts, metric) for metric in self._rates}
        self.units += 1
        self._count_matches(rule_matches)
        self._count_taken(decisions)
        taken_by = {name: (each.rule, each.probability) for name, each in decisions.items() if each.take}
        if taken_by:
            self.taken += 1
            unit = TakenUnit(facts.key, facts.name or "", began_ns, taken_by)
            for rule in {rule: None for rule, _ in taken_by.values()}:
                units = self._named.setdefault(rule, [])
                if len(units) < _MAX_NAMED:
                    units.append(unit)
        return decisions

    def named(self) -> tuple[TakenUnit, ...]:
        """Return at most ten sampled units, some of each rule, in the order of their start."""
        # The first unit of each rule, then the second of each rule, so that every rule is represented. Each unit is named
        # once.
        units = (unit for unit in chain.from_iterable(zip_longest(*self._named.values())) if unit is not None)
        first = islice({unit.key: unit for unit in units}.values(), _MAX_NAMED)
        return tuple(sorted(first, key=lambda unit: unit.began_ns or 0))

    def unlisted(self, rule: Rule) -> tuple[str, ...]:
        """Return the metadata keys that a rule reads and that the units do not have."""
        if self._metadata is None:
            return ()
        return tuple(key for key in rule.when.metadata or {} if key not in self._metadata)

    def _sampler(self, unknown: tuple[int, ...]) -> RateSampler:
        """Return a sampler without the rules at these indexes: a sampler applies a rule with unknown facts to every unit."""
        if unknown not in self._samplers:
            rules = [rule for index, rule in enumerate(self._all_rules) if index not in unknown]
            self._samplers[unknown] = self._make(rules=rules)
        return self._samplers[unknown]

    def _count_matches(self, rule_matches: Sequence[bool | None]) -> None:
        by_name: dict[str, set[bool | None]] = {BASE: {True}}  # several rules may have one name
        for rule, match in zip(self._all_rules, rule_matches, strict=True):
            by_name.setdefault(rule.name, set()).add(match)
        for name, results in by_name.items():
            self.rules[name].matched += True in results
            self.rules[name].unknown += None in results and True not in results

    def _count_taken(self, decisions: Mapping[str, Decision]) -> None:
        shares, rules_taken = dict[str, float](), set[str]()
        for metric, decision in decisions.items():
            share = min(1.0, decision.probability / decision.upstream)  # among the units that upstream sampled
            count, rule = self.metrics[metric], decision.rule
            count.matched += 1
            count.taken += decision.take
            count.expected += share
            self.scores[rule, metric] += decision.take
            shares[rule] = max(share, shares.get(rule, 0.0))  # all metrics share a unit's random number
            rules_taken |= {rule} if decision.take else set()
        for rule, share in shares.items():
            self.rules[rule].taken += rule in rules_taken
            self.rules[rule].expected += share

    def _match(self, rule: Rule, facts: SamplingContext) -> bool | None:
        """Return whether a rule applies to a unit; None if a fact that the rule reads is unknown, and its other facts match."""
        if rule.when.score is not None and rule.when.score.metric not in (facts.scores or {}):
            facts = facts._replace(scores=None)
        if self.unlisted(rule):
            facts = facts._replace(metadata=None)
        if not matches(rule, facts):
            return False
        names = (fact for field_, fact in _FACT_OF.items() if getattr(rule.when, field_) not in (None, False, {}))
        return None if any(getattr(facts, name) is None for name in names) else True
