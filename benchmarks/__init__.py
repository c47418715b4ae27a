"""Benchmarks and simulations: speed against comparable libraries, and statistical properties of the estimates and alerts."""
