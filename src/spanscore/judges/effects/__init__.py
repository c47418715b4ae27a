"""Middleware around a judge: limits, cache, cost, fallback, and the order in which they stand."""
