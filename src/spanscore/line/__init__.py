"""Settings → the parts of one scorer, put together, driven, drained and shown."""
