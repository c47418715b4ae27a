"""What stands around a judge: one file for each effect; which there are and in which order says ``stack.py``."""
