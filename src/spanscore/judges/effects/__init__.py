"""What stands around a judge: limits, deadlines, retries."""
