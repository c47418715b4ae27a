"""Statistics and alerting on scores: estimates, PromQL, alert rules, baselines, release comparison, judge calibration."""
