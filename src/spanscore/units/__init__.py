"""Spans → units: assembled, counted, held until their scores are there, let go."""
