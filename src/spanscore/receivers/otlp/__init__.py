"""The receiver of spans that arrive over the wire, from any language."""
