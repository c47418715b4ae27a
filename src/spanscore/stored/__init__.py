"""Trace stores and data sets: evaluate(), replay, explain, annotations import; no live traffic."""
