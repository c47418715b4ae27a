"""Units → jobs → scores, on the loop."""
