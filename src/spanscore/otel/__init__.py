"""What we are towards OpenTelemetry: whose providers, which spans, ids and instruments."""
