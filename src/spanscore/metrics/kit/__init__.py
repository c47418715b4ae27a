"""What metrics are made of: the fields they need, their steps, votes and averages."""
