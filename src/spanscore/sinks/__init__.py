"""Where scores go: one file per place."""
