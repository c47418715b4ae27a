"""Metrics by name, from a configuration, with documentation and price."""
