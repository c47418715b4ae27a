"""Who is scored, and with which probability. Pure; same facts, same answer, on every replica and replay."""
