"""Estimates, PromQL, alert rules, baselines, releases and calibration; no running scorer."""
