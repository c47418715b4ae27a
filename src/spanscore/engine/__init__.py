"""The span thread, the hand-over to the loop, and the end: flush, exit, fork."""
