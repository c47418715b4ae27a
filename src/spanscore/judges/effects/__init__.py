"""Middleware around a judge: limits, cache, cost and fallbacks, and the order of the layers."""
