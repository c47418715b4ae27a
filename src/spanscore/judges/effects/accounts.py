"""Accounts: the one gate that each account has in this process."""

from __future__ import annotations

from threading import Lock
from weakref import WeakValueDictionary

from spanscore.core.threads import reset_in_child
from spanscore.judges.effects.account import Account, AccountLimits
from spanscore.judges.effects.effect import unwrapped
from spanscore.judges.effects.gate import Gate
from spanscore.protocols import Judge

__all__ = ["gate_of"]

_SERVICE, _IN_PROCESS = 64, 1
"""The most questions at once, where nobody says how many."""


class _Gates:
    """Account → its gate, for as long as a judge is behind it. Any thread."""

    def __init__(self) -> None:
        self._gates: WeakValueDictionary[Account, Gate] = WeakValueDictionary()
        self.reset()
        reset_in_child(self, _Gates.reset)

    def reset(self) -> None:
        """Make the lock anew: a thread that held it at a fork does not exist in the child. Gates reset themselves."""
        self._lock = Lock()

    def gate(self, account: Account, ceiling: int) -> Gate:
        """Return the gate of an account, made if there was none."""
        with self._lock:
            known = self._gates.get(account)
            if known is None:
                known = self._gates[account] = Gate(account, ceiling)
            return known


_registry = _Gates()


def gate_of(judge: Judge, limits: AccountLimits) -> Gate:
    """Return the gate of the account that a judge asks: one for all who ask it, and the strictest of their limits holds."""
    inner = unwrapped(judge)
    account = getattr(inner, "account", None)
    if not isinstance(account, Account):
        account = Account(type(inner).__name__, inner.model, key=f"object {id(inner)}")
    gate = _registry.gate(account, _IN_PROCESS if getattr(inner, "in_process", False) is True else _SERVICE)
    gate.restrict(limits)
    for note in getattr(inner, "notes", ()):
        gate.note(note)
    return gate
