"""The configuration: YAML, overridden by ``SPANSCORE_*`` variables (``SPANSCORE_SAMPLING__RATE=0.2``)."""
