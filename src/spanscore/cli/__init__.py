"""The command line. Each command is a module with the command's name; helper modules begin with an underscore."""
