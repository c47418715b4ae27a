"""Options → the parts of one scorer, put together, driven and drained."""
