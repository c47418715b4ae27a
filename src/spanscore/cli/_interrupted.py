"""How a command ends that Ctrl-C ended."""

__all__ = ["INTERRUPTED"]

INTERRUPTED = 130
"""128 + SIGINT: the exit code that a shell expects of it."""
