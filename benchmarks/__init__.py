"""Speed, against peers, in one run."""
