"""The command line: one file per command, found by its name; a helper's name begins with an underscore."""
