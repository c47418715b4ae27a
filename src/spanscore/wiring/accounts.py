"""Accounts and budgets of a scorer: what judges may cost, and what ``status()`` and the instruments show of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from spanscore import semconv
from spanscore.config.judging import Budget
from spanscore.config.tree import ScorerSettings
from spanscore.core.printable import format_age, format_count, format_usd
from spanscore.core.threads import start_daemon
from spanscore.errors import ConfigurationError
from spanscore.judges.effects.account import AccountState, BreakerState
from spanscore.judges.effects.account_limiter import AccountLimiter
from spanscore.judges.effects.budget_ledger import BudgetLedger, BudgetState
from spanscore.judges.effects.cost import Price, asked_models
from spanscore.judges.effects.limited import gates_of
from spanscore.judges.tiktoken_count import load_counter
from spanscore.metrics.catalog.registry import under_current_names
from spanscore.outputs.aggregates import GaugeReading, within
from spanscore.pipeline.sampling import BudgetPacer
from spanscore.protocols import Judge, Metric

__all__ = [
    "Accounts",
    "account_rows",
    "budget_of",
    "judges_of",
    "models_of",
    "pacer_of",
    "purse_for",
    "purse_of",
    "shadow_purse_of",
]

# --- account row ----------------------------------------------------------------------------------------------------

# Accounts and budgets → the rows that ``status()`` has of them.

_BREAKER: Mapping[BreakerState, str] = {"closed": "closed", "half_open": "half-open", "open": "open: nothing is sent"}


_THIS: Mapping[str, str] = {"1m": "this minute", "1h": "this hour", "1d": "this day"}


def account_rows(accounts: Sequence[AccountState], budgets: Sequence[BudgetState]) -> Iterator[str]:
    """Yield what each account is at, and what must be known of it; then the budgets, on the row of an only account."""
    paid = [_budget(budget) for budget in budgets]
    only = paid if len(accounts) == 1 else []
    for state in accounts:
        yield "\n  ".join([" · ".join([repr(state.account), *_parts(state, only)]), *state.notes])
    if paid and not only:
        yield " · ".join(["budget", *paid])


def _budget(state: BudgetState) -> str:
    whose = " ".join(filter(None, (state.metric, state.source)))
    whose = f"{whose}: " if whose else ""
    spent, limit = (
        format_usd(amount) if state.unit == "usd" else f"{amount:,.0f}" for amount in (state.spent, state.limit)
    )
    unit = "USD" if state.unit == "usd" else state.unit
    window = _THIS.get(state.window, f"in this window of {state.window}")
    return f"{whose}{spent} of {limit} {unit} {window}, factor {state.factor:.2g}"


def _parts(state: AccountState, paid: Sequence[str]) -> Iterator[str]:
    yield f"{state.inflight:,} of {_places(state.places)} places (ceiling {state.ceiling:,})"
    if state.share < 1:
        yield f"{100 * state.share:.0f} % of its limits"
    yield f"{state.waiting:,} waiting, longest {format_age(state.longest_wait_s)}" if state.waiting else "none waiting"
    yield f"breaker {_BREAKER[state.breaker]}" + (f" ({state.because})" if state.because else "")
    if state.last_throttled_s is not None:
        yield f"limited {_times(state.throttled)}, last {format_age(state.last_throttled_s)} ago"
    yield ", ".join([format_count(state.calls, "call"), *paid])
    if state.cached:
        yield f"{state.cached:,} from cache"


def _places(places: float) -> str:
    """Return the level; below 1 it is a pace, and a part of a place."""
    return f"{places:,.0f}" if places >= 1 else f"{places:.2g}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


# --- accounts -------------------------------------------------------------------------------------------------------

# The accounts that a scorer's metrics ask, and its budgets, for its status and its instruments. Any thread.

_BREAKER_NUMBERS: Mapping[BreakerState, int] = {"closed": 0, "half_open": 1, "open": 2}
_LEAST_SHARE = 0.01
"""Of the limits, for a process to which no part of the work is assigned: what it still has of it comes to an end."""
_READS = 3
"""The loop goes on while they are read; that it changes a list just then, each time, is no more than possible."""


def judges_of(metric: Metric) -> list[Judge]:
    """Return the judges that a metric asks, that of its embeddings among them; a user's own embedder tells nothing."""
    own = (getattr(metric, "_judge", None), getattr(getattr(metric, "_embedder", None), "asked", None))
    return [judge for judge in own if judge is not None]


def models_of(metric: Metric) -> dict[str, Price | None]:
    """Return the models that a metric may ask, and their prices; None where one has none."""
    return {model: price for judge in judges_of(metric) for model, price in asked_models(judge).items()}


class Accounts:
    """Whom the metrics of one scorer ask; others of the process may ask them, too.

    Args:
        purse: what the scorer may pay them; None = nobody asks.
        shadows: second judges, and what they may be paid.
    """

    def __init__(
        self,
        metrics: Iterable[Metric],
        purse: BudgetLedger | None = None,
        *,
        shadows: Iterable[Metric] = (),
        shadow_purse: BudgetLedger | None = None,
    ) -> None:
        self._purses: Mapping[str | None, BudgetLedger | None] = {None: purse, semconv.SOURCE_SHADOW: shadow_purse}
        own = dict.fromkeys(_gates_of(metrics))
        self._of_shadows = frozenset(_gates_of(shadows)) - own.keys()
        self._gates: Sequence[AccountLimiter] = [
            *own,
            *dict.fromkeys(gate for gate in _gates_of(shadows) if gate not in own),
        ]

    def share(self, fraction: float) -> None:
        """Have such a part of what the user allows all processes together, [0, 1], from now on. Any thread."""
        part = max(fraction, _LEAST_SHARE)
        for divided in (*self._gates, *self._purses.values()):
            if divided is not None:
                divided.share(part)

    def states(self) -> list[AccountState]:
        """Return what each is at."""
        return [_state(gate) for gate in self._gates]

    def budgets(self) -> list[BudgetState]:
        """Return what each budget is at; those of all metrics first, those of second judges last."""
        states = [
            replace(state, source=source)
            for source, purse in self._purses.items()
            for state in ([] if purse is None else purse.states())
        ]
        return sorted(states, key=lambda state: (state.source or "", state.metric or ""))

    def points(self) -> dict[Hashable, GaugeReading]:
        """Return the same as numbers."""
        accounts: dict[Hashable, GaugeReading] = {}
        for gate, state in zip(self._gates, self.states(), strict=True):
            accounts[state.account] = _point(state, semconv.SOURCE_SHADOW if gate in self._of_shadows else None)
        budgets = {(id(self), position): _point_of(state) for position, state in enumerate(self.budgets())}
        return accounts | budgets

    def tell_waits(self, listener: Callable[[str, str, float], None]) -> None:
        """Have a listener hear how long each of their questions waits."""
        for gate in self._gates:
            gate.tell_waits(listener)


def _gates_of(metrics: Iterable[Metric]) -> Iterator[AccountLimiter]:
    return (gate for metric in metrics for judge in judges_of(metric) for gate in gates_of(judge))


def _state(gate: AccountLimiter) -> AccountState:
    for _ in range(_READS - 1):
        try:
            return gate.state
        except RuntimeError:  # its queue changed meanwhile
            continue
    return gate.state


def _point(state: AccountState, source: str | None) -> GaugeReading:
    """Return an account's numbers under its provider and model: its key is told nowhere."""
    named = ((semconv.PROVIDER_NAME, state.account.provider), (semconv.REQUEST_MODEL, state.account.model))
    return GaugeReading(
        (*named, *within(source)),
        {
            semconv.JUDGE_CONCURRENCY_LIMIT: state.places,
            semconv.JUDGE_ACTIVE_CALLS: state.inflight,
            semconv.JUDGE_QUEUE_SIZE: state.waiting,
            semconv.JUDGE_CIRCUIT_BREAKER_STATE: _BREAKER_NUMBERS[state.breaker],
            semconv.JUDGE_THROTTLED: state.throttled,
            semconv.JUDGE_RETRIES: state.retries,
            semconv.JUDGE_CACHE_HITS: state.cached,
        },
    )


def _point_of(state: BudgetState) -> GaugeReading:
    whose = () if state.metric is None else ((semconv.EVALUATION_NAME, state.metric),)
    return GaugeReading(
        ((semconv.BUDGET_UNIT, state.unit), (semconv.BUDGET_WINDOW, state.window), *whose, *within(state.source)),
        {
            semconv.BUDGET_SPENT: state.spent,
            semconv.BUDGET_LIMIT: state.limit,
            semconv.BUDGET_FACTOR: state.factor,
        },
    )


# --- budget ---------------------------------------------------------------------------------------------------------

# Configuration → what judges may be paid, and the sampler's pace by it.


def purse_of(budgets: Sequence[Budget], share: float, metrics: Mapping[str, Metric]) -> BudgetLedger | None:
    """Return what the judges of a scorer may be paid; None where nothing says so.

    Raises:
        ConfigurationError: a budget is of no metric of the scorer, or in USD while a model has no price; or the share is none.
    """
    parts = [budget_of(budget, metrics).part(share) for budget in budgets]
    for part in parts:
        if part.unit == "usd":
            _check_prices(part, metrics)
    purse = BudgetLedger(parts) if parts else None
    if purse is not None and purse.in_tokens:
        start_daemon(partial(_load_counters, [*metrics.values()]), "spanscore-tokens")
    return purse


def shadow_purse_of(settings: ScorerSettings, shadows: Mapping[str, Metric]) -> BudgetLedger | None:
    """Return what second judges may be paid: of a purse of their own, so that they take nothing from the metrics.

    Raises:
        ConfigurationError: as ``purse_of``.
    """
    if not shadows:
        return None
    own = settings.judge.shadow_budget
    return purse_for(settings, shadows) if own is None else purse_of(own, settings.judge.replica_share, shadows)


def purse_for(settings: ScorerSettings, metrics: Mapping[str, Metric]) -> BudgetLedger | None:
    """Return what the judges of some of a configuration's metrics may be paid; budgets of its other metrics are left out.

    Raises:
        ConfigurationError: a budget is in USD while a model has no price; or the share is none.
    """
    own = [
        budget
        for budget in settings.judge.budget
        if budget.metric is None or _name_now(budget.metric, metrics) in metrics
    ]
    return purse_of(own, settings.judge.replica_share, metrics)


def pacer_of(purse: BudgetLedger | None, under_way: Callable[[], Mapping[str, int]]) -> BudgetPacer | None:
    """Return what lowers the rates so that a purse lasts; None where there is none.

    Args:
        purse: what may be paid.
        under_way: metric → units that it took and that are not done yet.
    """
    if purse is None:
        return None
    pacer = BudgetPacer(purse.budgets, purse, under_way)
    purse.factors = pacer.factors
    return pacer


def budget_of(budget: Budget, metrics: Mapping[str, Metric]) -> Budget:
    """Return a budget under the name that its metric has now.

    Raises:
        ConfigurationError: there is no such metric.
    """
    if budget.metric is None:
        return budget
    name = _name_now(budget.metric, metrics)
    if name not in metrics:
        raise ConfigurationError(
            f"judge.budget names {budget.metric!r}, which is no metric of this scorer; it has {', '.join(metrics)}"
        )
    return budget.model_copy(update={"metric": name})


def _name_now(metric: str, metrics: Mapping[str, Metric]) -> str:
    return next(iter(under_current_names({metric: None}, metrics)))


def _load_counters(metrics: Sequence[Metric]) -> None:
    for model in {judge.model for metric in metrics for judge in judges_of(metric)}:
        load_counter(model)


def _check_prices(budget: Budget, metrics: Mapping[str, Metric]) -> None:
    for name, metric in metrics.items():
        unpriced = [model for model, price in models_of(metric).items() if price is None]
        if unpriced and budget.holds_for(name):
            model = unpriced[0]
            raise ConfigurationError(
                f"judge.budget is in usd, and {model!r}, which {name} asks, has no price: set judge.prices, "
                f"{{{model}: {{input: …, output: …}}}}, or judge(…, prices={{{model!r}: (…, …)}})"
            )
