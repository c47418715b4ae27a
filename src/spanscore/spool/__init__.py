"""The spool: what was accepted, in a file that survives the process and that several processes share."""
