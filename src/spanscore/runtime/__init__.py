"""What every part runs on: the one loop, daemon threads, the way between threads, the log."""
