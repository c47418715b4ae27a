"""The parts of metrics: fields, steps, votes, averages, versions, and the tuning of a judge by labels."""
