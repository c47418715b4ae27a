"""The way of a unit from its spans to its scores: gathering, sampling, queue, engine, ledger, sessions."""
