"""Building blocks of metrics: base classes, steps, votes, averages, versions, and the tuning of prompts by labels."""
