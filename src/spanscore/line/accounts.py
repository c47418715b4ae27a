"""The accounts that a scorer's metrics ask, and its budgets, for its status and its instruments. Any thread."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from spanscore import semconv
from spanscore.judges.effects.account import AccountState, BreakerState
from spanscore.judges.effects.account_limiter import Gate
from spanscore.judges.effects.budget_ledger import BudgetState, Purse
from spanscore.judges.effects.cost import Price, asked_models
from spanscore.judges.effects.limited import gates_of
from spanscore.outputs.aggregates import Point, within
from spanscore.protocols import Judge, Metric

__all__ = ["Accounts", "judges_of", "models_of"]

_BREAKER: Mapping[BreakerState, int] = {"closed": 0, "half_open": 1, "open": 2}
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
        purse: Purse | None = None,
        *,
        shadows: Iterable[Metric] = (),
        shadow_purse: Purse | None = None,
    ) -> None:
        self._purses: Mapping[str | None, Purse | None] = {None: purse, semconv.SOURCE_SHADOW: shadow_purse}
        own = dict.fromkeys(_gates_of(metrics))
        self._of_shadows = frozenset(_gates_of(shadows)) - own.keys()
        self._gates: Sequence[Gate] = [*own, *dict.fromkeys(gate for gate in _gates_of(shadows) if gate not in own)]

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

    def points(self) -> dict[Hashable, Point]:
        """Return the same as numbers."""
        accounts: dict[Hashable, Point] = {}
        for gate, state in zip(self._gates, self.states(), strict=True):
            accounts[state.account] = _point(state, semconv.SOURCE_SHADOW if gate in self._of_shadows else None)
        budgets = {(id(self), position): _point_of(state) for position, state in enumerate(self.budgets())}
        return accounts | budgets

    def tell_waits(self, listener: Callable[[str, str, float], None]) -> None:
        """Have a listener hear how long each of their questions waits."""
        for gate in self._gates:
            gate.tell_waits(listener)


def _gates_of(metrics: Iterable[Metric]) -> Iterator[Gate]:
    return (gate for metric in metrics for judge in judges_of(metric) for gate in gates_of(judge))


def _state(gate: Gate) -> AccountState:
    for _ in range(_READS - 1):
        try:
            return gate.state
        except RuntimeError:  # its queue changed meanwhile
            continue
    return gate.state


def _point(state: AccountState, source: str | None) -> Point:
    """Return an account's numbers under its provider and model: its key is told nowhere."""
    named = ((semconv.PROVIDER_NAME, state.account.provider), (semconv.REQUEST_MODEL, state.account.model))
    return Point(
        (*named, *within(source)),
        {
            semconv.JUDGE_CONCURRENCY_LIMIT: state.places,
            semconv.JUDGE_ACTIVE_CALLS: state.inflight,
            semconv.JUDGE_QUEUE_SIZE: state.waiting,
            semconv.JUDGE_CIRCUIT_BREAKER_STATE: _BREAKER[state.breaker],
            semconv.JUDGE_THROTTLED: state.throttled,
            semconv.JUDGE_RETRIES: state.retries,
            semconv.JUDGE_CACHE_HITS: state.cached,
        },
    )


def _point_of(state: BudgetState) -> Point:
    whose = () if state.metric is None else ((semconv.EVALUATION_NAME, state.metric),)
    return Point(
        ((semconv.BUDGET_UNIT, state.unit), (semconv.BUDGET_WINDOW, state.window), *whose, *within(state.source)),
        {
            semconv.BUDGET_SPENT: state.spent,
            semconv.BUDGET_LIMIT: state.limit,
            semconv.BUDGET_FACTOR: state.factor,
        },
    )
