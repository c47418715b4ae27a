"""Makes the parts of one scorer from its options, starts and ends them, and reports their state."""
