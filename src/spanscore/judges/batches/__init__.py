"""Batch endpoints of providers: a judge's questions in rounds, at half price, answered within a day."""
