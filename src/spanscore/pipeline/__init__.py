"""Sampling, units, ledger, sessions, queue and engine: a unit from its first span to its scores; no receiver."""
