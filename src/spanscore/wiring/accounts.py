"""The accounts and budgets of a scorer's judges: made from the settings, and read for ``status()`` and the instruments."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

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
from spanscore.judges.effects.limited import limiters_of
from spanscore.judges.jury import members_of
from spanscore.judges.tiktoken_count import load_counter
from spanscore.metrics.catalog.registry import under_current_names
from spanscore.outputs.aggregates import GaugeReading, labels_of_source
from spanscore.protocols import Judge, Metric

_BREAKER: Mapping[BreakerState, str] = {
    "closed": "closed",
    "half_open": "half-open",
    "open": "open: no question is sent",
}

_WINDOW_NAMES: Mapping[str, str] = {"1m": "this minute", "1h": "this hour", "1d": "this day"}


def account_rows(accounts: Sequence[AccountState], budgets: Sequence[BudgetState]) -> Iterator[str]:
    """Yield the lines of ``status()``: one per account, and one for the budgets, which are on the line of a single account."""
    paid = [_budget_cell(budget) for budget in budgets]
    only = paid if len(accounts) == 1 else []
    for state in accounts:
        yield "\n  ".join([" · ".join([repr(state.account), *_account_cells(state, only)]), *state.notes])
    if paid and not only:
        yield " · ".join(["budget", *paid])


def _budget_cell(state: BudgetState) -> str:
    label = " ".join(filter(None, (state.metric, state.source)))
    label = f"{label}: " if label else ""
    spent, limit = (
        format_usd(amount) if state.unit == "usd" else f"{amount:,.0f}" for amount in (state.spent, state.limit)
    )
    unit = "USD" if state.unit == "usd" else state.unit
    window = _WINDOW_NAMES.get(state.window, f"in this window of {state.window}")
    return f"{label}{spent} of {limit} {unit} {window}, factor {state.factor:.2g}"


def _account_cells(state: AccountState, paid: Sequence[str]) -> Iterator[str]:
    places = f"{state.places:,.0f}" if state.places >= 1 else f"{state.places:.2g}"  # below 1 it is a rate
    yield f"{state.inflight:,} of {places} places (ceiling {state.ceiling:,})"
    if state.share < 1:
        yield f"{100 * state.share:.0f} % of its limits"
    yield f"{state.waiting:,} waiting, longest {format_age(state.longest_wait_s)}" if state.waiting else "none waiting"
    yield f"breaker {_BREAKER[state.breaker]}" + (f" ({state.because})" if state.because else "")
    if state.last_throttled_s is not None:
        times = "once" if state.throttled == 1 else f"{state.throttled:,} times"
        yield f"limited {times}, last {format_age(state.last_throttled_s)} ago"
    yield ", ".join([format_count(state.calls, "call"), *paid])
    if state.cached:
        yield f"{state.cached:,} from cache"


_BREAKER_NUMBERS: Mapping[BreakerState, int] = {"closed": 0, "half_open": 1, "open": 2}
_COUNTERS = (semconv.JUDGE_THROTTLED, semconv.JUDGE_RETRIES, semconv.JUDGE_CACHE_HITS)
_MIN_SHARE = 0.01
"""Minimum share of the limits, so that a process without assigned work scores its last units."""
_MAX_READS = 3
"""Attempts at reading an account's state, because the loop may change it meanwhile."""


def judges_of(metric: Metric) -> list[Judge]:
    """Return the judges of a metric (each member of a jury) and of its embeddings, unless the embedder is a user's own."""
    judge = getattr(metric, "_judge", None)
    of_embeddings = getattr(getattr(metric, "_embedder", None), "asked", None)
    own = [] if judge is None else members_of(judge)
    return [*own] if of_embeddings is None else [*own, of_embeddings]


def models_of(metric: Metric) -> dict[str, Price | None]:
    """Return model → its price for the models that a metric may ask; None for a model without a price."""
    return {model: price for judge in judges_of(metric) for model, price in asked_models(judge).items()}


class Accounts:
    """The accounts and budgets of one scorer, for its status and its instruments. Thread-safe.

    Args:
        metrics: the scorer's metrics; other scorers of the process may ask the same accounts.
        budget_ledger: budgets of the metrics' questions; None = no budget.
        shadows: second judges.
        shadow_budget_ledger: budgets of second judges' questions; None = no budget.
        earlier: accounts before a reload; their counters and share stay in force. None = no reload.
    """

    def __init__(
        self,
        metrics: Iterable[Metric],
        budget_ledger: BudgetLedger | None = None,
        *,
        shadows: Iterable[Metric] = (),
        shadow_budget_ledger: BudgetLedger | None = None,
        earlier: Accounts | None = None,
    ) -> None:
        self._budget_ledgers: Mapping[str | None, BudgetLedger | None] = {
            None: budget_ledger,
            semconv.SOURCE_SHADOW: shadow_budget_ledger,
        }
        own = dict.fromkeys(_limiters_of(metrics))
        self._of_shadows = dict.fromkeys(limiter for limiter in _limiters_of(shadows) if limiter not in own)
        self._limiters: Sequence[AccountLimiter] = [*own, *self._of_shadows]
        self._share = 1.0
        self._retired: Sequence[AccountLimiter] = ()
        if earlier is not None:
            before = dict.fromkeys([*earlier._retired, *earlier._limiters])
            self._retired = [limiter for limiter in before if limiter not in self._limiters]
            self._share = earlier._share
            for limiter in self._limiters if self._share < 1 else ():
                limiter.share(self._share)

    def share(self, fraction: float) -> None:
        """Set this process's share, [0, 1], of the limits and budgets of all processes. Thread-safe.

        A worker of a topic begins with 0, and sets assigned ÷ all partitions on every rebalance.
        """
        own_share = self._share = max(fraction, _MIN_SHARE)
        for limited in (*self._limiters, *self._budget_ledgers.values()):
            if limited is not None:
                limited.share(own_share)

    def states(self) -> list[AccountState]:
        """Return the state of each account."""
        return [_state(limiter) for limiter in self._limiters]

    def budgets(self) -> list[BudgetState]:
        """Return the state of each budget: budgets of all metrics first, budgets of second judges last."""
        states = [
            replace(state, source=source)
            for source, budget_ledger in self._budget_ledgers.items()
            for state in ([] if budget_ledger is None else budget_ledger.states())
        ]
        return sorted(states, key=lambda state: (state.source or "", state.metric or ""))

    def points(self) -> dict[Hashable, GaugeReading]:
        """Return the gauges of accounts and budgets."""
        accounts: dict[Hashable, GaugeReading] = {}
        for limiter, state in zip(self._limiters, self.states(), strict=True):
            accounts[state.account] = _point(state, semconv.SOURCE_SHADOW if limiter in self._of_shadows else None)
        for state in map(_state, self._retired):
            labels, values = _point(state, None)
            accounts[state.account] = GaugeReading(labels, {name: values[name] for name in _COUNTERS})
        budgets = {(id(self), position): _point_of(state) for position, state in enumerate(self.budgets())}
        return accounts | budgets

    def report_waits(self, listener: Callable[[str, str, float], None]) -> None:
        """Call a listener for each question of these accounts with the time for which it waited."""
        for limiter in self._limiters:
            limiter.add_wait_listener(listener)


def _limiters_of(metrics: Iterable[Metric]) -> Iterator[AccountLimiter]:
    return (limiter for metric in metrics for judge in judges_of(metric) for limiter in limiters_of(judge))


def _state(limiter: AccountLimiter) -> AccountState:
    for _ in range(_MAX_READS - 1):
        try:
            return limiter.state
        except RuntimeError:  # its queue changed meanwhile
            continue
    return limiter.state


def _point(state: AccountState, source: str | None) -> GaugeReading:
    """Return an account's gauges under its provider and model, without its key."""
    named = ((semconv.PROVIDER_NAME, state.account.provider), (semconv.REQUEST_MODEL, state.account.model))
    return GaugeReading(
        (*named, *labels_of_source(source)),
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
    label = () if state.metric is None else ((semconv.EVALUATION_NAME, state.metric),)
    return GaugeReading(
        (
            (semconv.BUDGET_UNIT, state.unit),
            (semconv.BUDGET_WINDOW, state.window),
            *label,
            *labels_of_source(state.source),
        ),
        {semconv.BUDGET_SPENT: state.spent, semconv.BUDGET_LIMIT: state.limit, semconv.BUDGET_FACTOR: state.factor},
    )


def build_budget_ledger(
    settings: ScorerSettings, metrics: Mapping[str, Metric], budgets: Sequence[Budget] | None = None
) -> BudgetLedger | None:
    """Return the budget ledger of a scorer's judges; None without a budget. ``budgets``: None = those of ``judge``.

    Raises:
        ConfigurationError: a budget names an unknown metric, a budget is in USD while a model has no price, or the share is
            invalid.
    """
    chosen, share = settings.judge.budget if budgets is None else budgets, settings.judge.replica_share
    parts = [budget_of(budget, metrics).part(share) for budget in chosen]
    for part in parts:
        if part.unit == "usd":
            _check_prices(part, metrics)
    budget_ledger = BudgetLedger(parts) if parts else None
    if budget_ledger is not None and budget_ledger.estimates_tokens:
        start_daemon(_load_counters, "spanscore-tokens", [*metrics.values()])
    return budget_ledger


def replace_budgets(present: BudgetLedger | None, new: BudgetLedger | None) -> BudgetLedger | None:
    """Return the ledger after a reload: the present one, which keeps its spending, with the new budgets."""
    if present is None or new is None:
        return new
    present.change(new.budgets)
    return present


def build_shadow_budget_ledger(settings: ScorerSettings, shadows: Mapping[str, Metric]) -> BudgetLedger | None:
    """Return the budget ledger of second judges, which do not spend the metrics' budgets; None without a budget.

    Raises:
        ConfigurationError: as ``build_budget_ledger``.
    """
    if not shadows:
        return None
    own = settings.judge.shadow_budget
    return configured_budget_ledger(settings, shadows) if own is None else build_budget_ledger(settings, shadows, own)


def configured_budget_ledger(settings: ScorerSettings, metrics: Mapping[str, Metric]) -> BudgetLedger | None:
    """Return a budget ledger with the configured budgets that apply to these metrics; None without a budget.

    Raises:
        ConfigurationError: as ``build_budget_ledger``.
    """
    own = [
        budget
        for budget in settings.judge.budget
        if budget.metric is None or _current_name(budget.metric, metrics) in metrics
    ]
    return build_budget_ledger(settings, metrics, own)


def budget_of(budget: Budget, metrics: Mapping[str, Metric]) -> Budget:
    """Return a budget that names its metric by the current name.

    Raises:
        ConfigurationError: there is no such metric.
    """
    if budget.metric is None:
        return budget
    name = _current_name(budget.metric, metrics)
    if name not in metrics:
        raise ConfigurationError(
            f"judge.budget names {budget.metric!r}, which is not a metric of this scorer; it has {', '.join(metrics)}"
        )
    return budget.model_copy(update={"metric": name})


def _current_name(metric: str, metrics: Mapping[str, Metric]) -> str:
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
