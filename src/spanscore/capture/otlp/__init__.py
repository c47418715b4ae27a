"""The receiver of OTLP requests, which gathers spans of any language into units."""
